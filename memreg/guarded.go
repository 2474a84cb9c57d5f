package memreg

import (
	"runtime/debug"
	"unsafe"

	"github.com/gosoftroce/rocev2/ib"
)

// Guarded returns b as a Memory that may go away, or lose its rights, while
// regions stand on it: pages that a program unmaps, or a file mapping that was
// truncated. What faults in hardware then is ib.FaultMemory. It has no local
// Bytes; a link may receive into it nevertheless, see View.Target. The caller
// keeps nothing of b alive by it.
func Guarded(b []byte) Memory {
	return &guarded{uintptr(unsafe.Pointer(unsafe.SliceData(b))), uint64(len(b))}
}

// guarded is by number: the garbage collector must not meet a pointer to what
// is unmapped.
type guarded struct {
	addr uintptr
	n    uint64
}

func (g *guarded) bytes() []byte {
	p := *(*unsafe.Pointer)(unsafe.Pointer(&g.addr))
	return unsafe.Slice((*byte)(p), g.n)
}

// Catch ends the guard of an access to n bytes at an address that may go away,
// as a deferred call whose argument turns the guard on:
// debug.SetPanicOnFault(true). A panic that is a fault there becomes
// ib.FaultMemory, any other goes on.
func Catch(before bool, addr uintptr, n uint64, err *error) {
	debug.SetPanicOnFault(before)
	p := recover()
	if p == nil {
		return
	}
	if fault, ok := p.(interface{ Addr() uintptr }); !ok || uint64(fault.Addr()-addr) >= n {
		panic(p)
	}
	*err = ib.FaultMemory
}

func (g *guarded) Len() uint64   { return g.n }
func (g *guarded) Bytes() []byte { return nil }

func (g *guarded) CopyIn(off uint64, src []byte) (err error) {
	if !inside(off, uint64(len(src)), g.n) {
		return ib.FaultOutOfBounds
	}
	dst := g.bytes()[off:]
	if len(src) == 0 || &dst[0] == &src[0] { // it was received there, see View.Target
		return nil
	}
	defer Catch(debug.SetPanicOnFault(true), g.addr, g.n, &err)
	copy(dst, src)
	return nil
}

func (g *guarded) CopyOut(dst []byte, off uint64) (err error) {
	if !inside(off, uint64(len(dst)), g.n) {
		return ib.FaultOutOfBounds
	}
	defer Catch(debug.SetPanicOnFault(true), g.addr, g.n, &err)
	copy(dst, g.bytes()[off:])
	return nil
}

func (g *guarded) Load64(off uint64) (v uint64, err error) {
	defer Catch(debug.SetPanicOnFault(true), g.addr, g.n, &err)
	return local(g.bytes()).Load64(off)
}

func (g *guarded) Store64(off, v uint64) (err error) {
	defer Catch(debug.SetPanicOnFault(true), g.addr, g.n, &err)
	return local(g.bytes()).Store64(off, v)
}

func (g *guarded) CompareSwap64(off, compare, swap uint64) (old uint64, err error) {
	defer Catch(debug.SetPanicOnFault(true), g.addr, g.n, &err)
	return local(g.bytes()).CompareSwap64(off, compare, swap)
}

func (g *guarded) FetchAdd64(off, add uint64) (old uint64, err error) {
	defer Catch(debug.SetPanicOnFault(true), g.addr, g.n, &err)
	return local(g.bytes()).FetchAdd64(off, add)
}
