package memreg

import (
	"math"
	"sync/atomic"
	"unsafe"

	"github.com/gosoftroce/rocev2/ib"
)

// Region is a registered memory region. Only the pins in its two grants, and
// the count of other grants, change after Register. A lookup of an rkey reads
// the first cache line, a lookup of an lkey both.
type Region struct {
	access ib.Access // and what the memory is, see isSealed and so on
	bound  bindings  // other grants and windows on it
	pd     *PD
	base   uint64 // the address of byte 0; base+length does not wrap
	remote Grant  // of the rkey

	local Grant // of the lkey
	data  *byte // the first byte of mem.Bytes(), nil when the memory is not local
	mem   Memory
}

// What a region's memory is: bits of Region.access that are not rights.
const (
	isSealed  ib.Access = 1 << (10 + iota) // it is read-only
	isPaged                                // it is a PagedMemory
	isSparse                               // it is a SparseMemory
	isGuarded                              // it is Guarded, and nothing else
)

// LKey is the key for local use, in an SGE.
func (r *Region) LKey() ib.Key { return r.local.key }

// RKey is the key for the peer. A region without remote rights has one too, but
// it grants nothing.
func (r *Region) RKey() ib.Key { return r.remote.key }

// Bound returns how many grants and windows there are on the region. While
// there are any it cannot be deregistered.
func (r *Region) Bound() int { return int(r.bound.n.Load() &^ dead) }

// Invalidated reports whether the region is registered and its rkey was
// invalidated. See [Table.Invalidate].
func (r *Region) Invalidated() bool {
	// Deregister kills the lkey first: a dead rkey beside a live lkey is
	// invalidated.
	return !r.remote.Alive() && r.Alive()
}

// Addr is the address of the region's first byte, in SGEs and on the wire.
func (r *Region) Addr() uint64 { return r.base }

// Len is the region's length in bytes.
func (r *Region) Len() uint64 { return r.local.length }

// Access is the set of granted rights.
func (r *Region) Access() ib.Access { return r.access & ib.AccessMask }

// PD is the protection domain that the region belongs to.
func (r *Region) PD() *PD { return r.pd }

// Memory is what the region was registered over.
func (r *Region) Memory() Memory { return r.mem }

// Alive reports whether the region is still registered.
func (r *Region) Alive() bool { return r.local.Alive() }

// owns reports whether g is one of the region's own two grants.
func (r *Region) owns(g *Grant) bool { return g == &r.local || g == &r.remote }

// bytes is the memory of a local region, nil of another.
func (r *Region) bytes() []byte {
	if r.data == nil {
		return nil
	}
	return unsafe.Slice(r.data, r.local.length)
}

// SGE returns a scatter/gather entry for n bytes from offset off of the region.
// It is not checked here: one beyond the region faults with ib.FaultOutOfBounds
// when used.
func (r *Region) SGE(off uint64, n uint32) ib.SGE {
	return ib.SGE{Addr: r.base + off, Length: n, LKey: r.local.key}
}

// Slice returns a scatter/gather entry for n bytes from offset off of the
// region. An entry of a range that is not inside the region, or longer than the
// 32 bits of its length, stands for no memory: its Err says why.
func (r *Region) Slice(off, n int) ib.SGE {
	switch {
	case off < 0:
		return ib.InvalidSGE(ib.BadOffset)
	case n < 0:
		return ib.InvalidSGE(ib.BadLength)
	case !inside(uint64(off), uint64(n), r.local.length):
		return ib.InvalidSGE(ib.BadEnd)
	}
	return r.entry(uint64(off), uint64(n))
}

// All returns a scatter/gather entry for the whole region. If that is longer
// than the 32 bits of an entry's length, the entry's Err says so.
func (r *Region) All() ib.SGE { return r.entry(0, r.local.length) }

func (r *Region) entry(off, n uint64) ib.SGE {
	if n > math.MaxUint32 {
		return ib.InvalidSGE(ib.BadSize)
	}
	return r.SGE(off, uint32(n))
}

// CopyIn writes src at byte off of the region. It needs no right, as Load64.
// Faults: ib.FaultOutOfBounds, and nothing is written; ib.FaultNoAccess
// for read-only memory; ib.FaultGone after deregistration; ib.FaultMemory, and
// any part may be written.
func (r *Region) CopyIn(off uint64, src []byte) ib.Fault {
	v, f := r.pinned(off, len(src))
	switch {
	case f != ib.FaultNone:
		return f
	case r.access&isPaged != 0 && r.access&isSealed == 0: // the program may wait for its pages
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
	case r.access&isPaged != 0:
		f = faultOf(r.mem.CopyOut(dst, off))
	default:
		f = v.CopyOut(dst, 0)
	}
	v.Release()
	return f
}

// pinned returns a view of n bytes at off.
func (r *Region) pinned(off uint64, n int) (View, ib.Fault) {
	if !inside(off, uint64(n), r.local.length) {
		return View{}, ib.FaultOutOfBounds
	}
	if !r.local.acquire() {
		return View{}, ib.FaultGone
	}
	return View{g: &r.local, off: off, n: uint64(n)}, ib.FaultNone
}

// Load64 reads the 64-bit word at byte off of the region, atomically towards
// remote atomics, in this machine's byte order. It needs no right, because it
// is the program's own access. Faults: ib.FaultOutOfBounds;
// ib.FaultMisaligned when the word's address in the region (Addr()+off) or its
// real address is not a multiple of 8; ib.FaultGone after deregistration;
// ib.FaultMemory.
func (r *Region) Load64(off uint64) (uint64, ib.Fault) {
	if !r.local.acquire() {
		return 0, ib.FaultGone
	}
	v, f := r.load64(r.base+off, off)
	r.local.release()
	return v, f
}

// Store64 writes the word at off; otherwise as Load64. Read-only memory faults
// with ib.FaultNoAccess, as it does in CompareSwap64 and FetchAdd64.
func (r *Region) Store64(off, v uint64) ib.Fault {
	if !r.local.acquire() {
		return ib.FaultGone
	}
	f := r.store64(r.base+off, off, v)
	r.local.release()
	return f
}

// CompareSwap64 writes swap to the word at off if it equals compare, and
// returns the value before; otherwise as Load64.
func (r *Region) CompareSwap64(off, compare, swap uint64) (uint64, ib.Fault) {
	if !r.local.acquire() {
		return 0, ib.FaultGone
	}
	v, f := r.compareSwap64(r.base+off, off, compare, swap)
	r.local.release()
	return v, f
}

// FetchAdd64 adds to the word at off modulo 2^64 and returns the value before;
// otherwise as Load64.
func (r *Region) FetchAdd64(off, add uint64) (uint64, ib.Fault) {
	if !r.local.acquire() {
		return 0, ib.FaultGone
	}
	v, f := r.fetchAdd64(r.base+off, off, add)
	r.local.release()
	return v, f
}

// checkWord checks the bounds of the word at off, and the alignment of addr,
// the address that its user knows it by (IBTA 9.4.5.1: the virtual address of
// an atomic is 8-byte aligned).
func (r *Region) checkWord(addr, off uint64) ib.Fault {
	if !inside(off, 8, r.local.length) {
		return ib.FaultOutOfBounds
	}
	if addr%8 != 0 {
		return ib.FaultMisaligned
	}
	return ib.FaultNone
}

// localWord returns the word at off of a local region, or nil for a foreign
// one.
func (r *Region) localWord(addr, off uint64) (*uint64, ib.Fault) {
	if f := r.checkWord(addr, off); f != ib.FaultNone || r.data == nil {
		return nil, f
	}
	p := unsafe.Pointer(&r.bytes()[off])
	if uintptr(p)%8 != 0 {
		return nil, ib.FaultMisaligned
	}
	return (*uint64)(p), ib.FaultNone
}

func (r *Region) load64(addr, off uint64) (uint64, ib.Fault) {
	p, f := r.localWord(addr, off)
	if p != nil {
		return atomic.LoadUint64(p), ib.FaultNone
	}
	if f != ib.FaultNone {
		return 0, f
	}
	v, err := r.mem.Load64(off)
	return v, faultOf(err)
}

func (r *Region) store64(addr, off, v uint64) ib.Fault {
	if r.access&isSealed != 0 {
		return ib.FaultNoAccess
	}
	p, f := r.localWord(addr, off)
	if p != nil {
		atomic.StoreUint64(p, v)
		return ib.FaultNone
	}
	if f != ib.FaultNone {
		return f
	}
	return faultOf(r.mem.Store64(off, v))
}

func (r *Region) compareSwap64(addr, off, compare, swap uint64) (uint64, ib.Fault) {
	if r.access&isSealed != 0 {
		return 0, ib.FaultNoAccess
	}
	p, f := r.localWord(addr, off)
	if p != nil {
		return compareSwap64(p, compare, swap), ib.FaultNone
	}
	if f != ib.FaultNone {
		return 0, f
	}
	v, err := r.mem.CompareSwap64(off, compare, swap)
	return v, faultOf(err)
}

func (r *Region) fetchAdd64(addr, off, add uint64) (uint64, ib.Fault) {
	if r.access&isSealed != 0 {
		return 0, ib.FaultNoAccess
	}
	p, f := r.localWord(addr, off)
	if p != nil {
		return atomic.AddUint64(p, add) - add, ib.FaultNone
	}
	if f != ib.FaultNone {
		return 0, f
	}
	v, err := r.mem.FetchAdd64(off, add)
	return v, faultOf(err)
}
