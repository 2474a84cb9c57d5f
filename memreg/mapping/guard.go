package mapping

import (
	"runtime/debug"
	"unsafe"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
)

// guarded is mapped memory whose accesses may fault in hardware, such as a file
// mapping that was truncated: the fault becomes an error.
type guarded struct {
	data  []byte
	local memreg.Memory
	pages *presence
}

// catch ends the guard of one access, as a deferred call: a panic that is a
// fault inside the mapping becomes ib.FaultMemory, any other goes on.
func (g *guarded) catch(before bool, err *error) {
	debug.SetPanicOnFault(before)
	p := recover()
	if p == nil {
		return
	}
	if fault, ok := p.(interface{ Addr() uintptr }); ok {
		start := uintptr(unsafe.Pointer(unsafe.SliceData(g.data)))
		if fault.Addr()-start < uintptr(len(g.data)) {
			*err = ib.FaultMemory
			return
		}
	}
	panic(p)
}

func (g *guarded) Len() uint64   { return uint64(len(g.data)) }
func (g *guarded) Bytes() []byte { return nil }

func (g *guarded) CopyIn(off uint64, src []byte) (err error) {
	defer g.catch(debug.SetPanicOnFault(true), &err)
	return g.local.CopyIn(off, src)
}

func (g *guarded) CopyOut(dst []byte, off uint64) (err error) {
	defer g.catch(debug.SetPanicOnFault(true), &err)
	return g.local.CopyOut(dst, off)
}

func (g *guarded) Load64(off uint64) (v uint64, err error) {
	defer g.catch(debug.SetPanicOnFault(true), &err)
	return g.local.Load64(off)
}

func (g *guarded) Store64(off, v uint64) (err error) {
	defer g.catch(debug.SetPanicOnFault(true), &err)
	return g.local.Store64(off, v)
}

func (g *guarded) CompareSwap64(off, compare, swap uint64) (old uint64, err error) {
	defer g.catch(debug.SetPanicOnFault(true), &err)
	return g.local.CompareSwap64(off, compare, swap)
}

func (g *guarded) FetchAdd64(off, add uint64) (old uint64, err error) {
	defer g.catch(debug.SetPanicOnFault(true), &err)
	return g.local.FetchAdd64(off, add)
}
