package memreg

import (
	"math"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/gosoftroce/rocev2/ib"
)

// dead is added to a region's pin count when it is deregistered, so that one
// atomic add both pins and tells whether the region was alive.
const dead int64 = 1 << 62

// Region is a registered memory region. Everything but the pin count
// and invalid is constant from Register on. What a lookup needs lies in the first cache line.
type Region struct {
	pins   atomic.Int64 // views in use, plus dead
	pd     *PD
	base   uint64 // the address of byte 0; base+length does not wrap
	length uint64
	lkey   ib.Key
	rkey   ib.Key
	access ib.Access
	sealed bool   // the memory is read-only
	paged  bool   // mem is a PagedMemory
	bytes  []byte // mem.Bytes(), nil when the memory is not local

	invalidatable bool
	invalid       atomic.Bool // the rkey was invalidated

	mem   Memory
	table *Table
	owner any
	_     [8]byte // to 128 bytes: aligned, and no line shared with another region's pins
}

// LKey is the key for local use, in an SGE.
func (r *Region) LKey() ib.Key { return r.lkey }

// RKey is the key for the peer. A region without remote rights has one too, but it
// grants nothing.
func (r *Region) RKey() ib.Key { return r.rkey }

// Invalidated reports whether the rkey was invalidated; see Table.Invalidate.
func (r *Region) Invalidated() bool { return r.invalid.Load() }

// Addr is the address of the region's first byte, in SGEs and on the wire.
func (r *Region) Addr() uint64 { return r.base }

// Len is the region's length in bytes.
func (r *Region) Len() uint64 { return r.length }

// Access is the set of granted rights.
func (r *Region) Access() ib.Access { return r.access }

// PD is the protection domain that the region belongs to.
func (r *Region) PD() *PD { return r.pd }

// Memory is what the region was registered over.
func (r *Region) Memory() Memory { return r.mem }

// Owner is Options.Owner of the registration.
func (r *Region) Owner() any { return r.owner }

// Alive reports whether the region is still registered.
func (r *Region) Alive() bool { return r.pins.Load() < dead }

// SGE returns a scatter/gather entry for n bytes from offset off of the region.
// It is not checked here: one beyond the region faults OutOfBounds when used.
func (r *Region) SGE(off uint64, n uint32) ib.SGE {
	return ib.SGE{Addr: r.base + off, Length: n, LKey: r.lkey}
}

// Slice returns a scatter/gather entry for n bytes from offset off of the region.
// An entry of a range that is not inside the region, or longer than the 32 bits
// of its length, stands for no memory: its Err says why.
func (r *Region) Slice(off, n int) ib.SGE {
	switch {
	case off < 0:
		return ib.InvalidSGE(ib.BadOffset)
	case n < 0:
		return ib.InvalidSGE(ib.BadLength)
	case !inside(uint64(off), uint64(n), r.length):
		return ib.InvalidSGE(ib.BadEnd)
	}
	return r.entry(uint64(off), uint64(n))
}

// All returns a scatter/gather entry for the whole region; its Err says so if
// that is longer than the 32 bits of its length.
func (r *Region) All() ib.SGE { return r.entry(0, r.length) }

func (r *Region) entry(off, n uint64) ib.SGE {
	if n > math.MaxUint32 {
		return ib.InvalidSGE(ib.BadSize)
	}
	return r.SGE(off, uint32(n))
}

// CopyIn writes src at byte off of the region. Like Load64 it asks for no right.
// Faults: OutOfBounds, and nothing is written; NoAccess for read-only memory;
// Gone after deregistration; MemoryFault, and any part may be written.
func (r *Region) CopyIn(off uint64, src []byte) ib.Fault {
	v, f := r.pinned(off, len(src))
	switch {
	case f != ib.FaultNone:
		return f
	case r.paged && !r.sealed: // the program may wait for its pages
		f = faultOf(r.mem.CopyIn(off, src))
	default:
		f = v.CopyIn(0, src)
	}
	v.Release()
	return f
}

// CopyOut reads len(dst) bytes at byte off of the region; faults as CopyIn.
func (r *Region) CopyOut(dst []byte, off uint64) ib.Fault {
	v, f := r.pinned(off, len(dst))
	switch {
	case f != ib.FaultNone:
		return f
	case r.paged:
		f = faultOf(r.mem.CopyOut(dst, off))
	default:
		f = v.CopyOut(dst, 0)
	}
	v.Release()
	return f
}

// pinned returns a view of n bytes at off.
func (r *Region) pinned(off uint64, n int) (View, ib.Fault) {
	if !inside(off, uint64(n), r.length) {
		return View{}, ib.FaultOutOfBounds
	}
	if !r.Acquire() {
		return View{}, ib.FaultGone
	}
	return View{r: r, off: off, n: uint64(n)}, ib.FaultNone
}

// Acquire pins the region again, for a view resolved earlier whose pin was
// released. It reports false, without a pin, once the region is deregistered.
// A holder of a pin must not block and must not call Deregister.
func (r *Region) Acquire() bool {
	if r.pins.Add(1) >= dead {
		r.pins.Add(-1)
		return false
	}
	return true
}

// Release drops a pin of Acquire.
func (r *Region) Release() {
	if r.pins.Add(-1) < 0 {
		panic("memreg: Release without a pin")
	}
}

// kill makes Acquire fail from now on and returns when no pin is left.
func (r *Region) kill() {
	r.pins.Add(dead)
	// Failed Acquires show up here for an instant; holders do not block, so this ends.
	for r.pins.Load() > dead {
		runtime.Gosched()
	}
}

// Load64 reads the 64-bit word at byte off of the region, atomically towards
// remote atomics, in this machine's byte order. Unlike an access by key it asks
// for no right: the region is the owner's. Faults: OutOfBounds; Misaligned when
// the word's address in the region (Addr()+off) or its real address is not a
// multiple of 8; Gone after deregistration; MemoryFault.
func (r *Region) Load64(off uint64) (uint64, ib.Fault) {
	if !r.Acquire() {
		return 0, ib.FaultGone
	}
	v, f := r.load64(off)
	r.Release()
	return v, f
}

// Store64 writes the word at off; otherwise as Load64. Read-only memory faults
// with NoAccess, as it does in CompareSwap64 and FetchAdd64.
func (r *Region) Store64(off, v uint64) ib.Fault {
	if !r.Acquire() {
		return ib.FaultGone
	}
	f := r.store64(off, v)
	r.Release()
	return f
}

// CompareSwap64 writes swap to the word at off if it equals compare, and returns
// the value before; otherwise as Load64.
func (r *Region) CompareSwap64(off, compare, swap uint64) (uint64, ib.Fault) {
	if !r.Acquire() {
		return 0, ib.FaultGone
	}
	v, f := r.compareSwap64(off, compare, swap)
	r.Release()
	return v, f
}

// FetchAdd64 adds to the word at off modulo 2^64 and returns the value before;
// otherwise as Load64.
func (r *Region) FetchAdd64(off, add uint64) (uint64, ib.Fault) {
	if !r.Acquire() {
		return 0, ib.FaultGone
	}
	v, f := r.fetchAdd64(off, add)
	r.Release()
	return v, f
}

// checkWord checks bounds and the alignment of the address that the peer uses
// (IBTA 9.4.5.1: the virtual address of an atomic is 8-byte aligned).
func (r *Region) checkWord(off uint64) ib.Fault {
	if !inside(off, 8, r.length) {
		return ib.FaultOutOfBounds
	}
	if (r.base+off)%8 != 0 {
		return ib.FaultMisaligned
	}
	return ib.FaultNone
}

// localWord returns the word at off of a local region, or nil for a foreign one.
func (r *Region) localWord(off uint64) (*uint64, ib.Fault) {
	if f := r.checkWord(off); f != ib.FaultNone || r.bytes == nil {
		return nil, f
	}
	p := unsafe.Pointer(&r.bytes[off])
	if uintptr(p)%8 != 0 {
		return nil, ib.FaultMisaligned
	}
	return (*uint64)(p), ib.FaultNone
}

func (r *Region) load64(off uint64) (uint64, ib.Fault) {
	p, f := r.localWord(off)
	if p != nil {
		return atomic.LoadUint64(p), ib.FaultNone
	}
	if f != ib.FaultNone {
		return 0, f
	}
	v, err := r.mem.Load64(off)
	return v, faultOf(err)
}

func (r *Region) store64(off, v uint64) ib.Fault {
	if r.sealed {
		return ib.FaultNoAccess
	}
	p, f := r.localWord(off)
	if p != nil {
		atomic.StoreUint64(p, v)
		return ib.FaultNone
	}
	if f != ib.FaultNone {
		return f
	}
	return faultOf(r.mem.Store64(off, v))
}

func (r *Region) compareSwap64(off, compare, swap uint64) (uint64, ib.Fault) {
	if r.sealed {
		return 0, ib.FaultNoAccess
	}
	p, f := r.localWord(off)
	if p != nil {
		return compareSwap64(p, compare, swap), ib.FaultNone
	}
	if f != ib.FaultNone {
		return 0, f
	}
	v, err := r.mem.CompareSwap64(off, compare, swap)
	return v, faultOf(err)
}

func (r *Region) fetchAdd64(off, add uint64) (uint64, ib.Fault) {
	if r.sealed {
		return 0, ib.FaultNoAccess
	}
	p, f := r.localWord(off)
	if p != nil {
		return atomic.AddUint64(p, add) - add, ib.FaultNone
	}
	if f != ib.FaultNone {
		return 0, f
	}
	v, err := r.mem.FetchAdd64(off, add)
	return v, faultOf(err)
}
