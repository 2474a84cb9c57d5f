package memreg

import "github.com/gosoftroce/rocev2/ib"

// View is a checked range of a region: what Resolve returns. It pins its grant,
// and so the region, until Release. Its memory may be touched only while it is
// pinned. A copy of a View shares its pin. The zero View is empty.
type View struct {
	g   *Grant
	off uint64 // of the view, in the region
	n   uint64
}

// Region is the region that the view is of, nil for the zero View.
func (v View) Region() *Region {
	if v.g == nil {
		return nil
	}
	return v.g.region
}

// Len is the view's length in bytes.
func (v View) Len() uint64 { return v.n }

// Addr is the address of the view's first byte, as it was resolved.
func (v View) Addr() uint64 {
	if v.g == nil {
		return 0
	}
	return v.g.Addr() + (v.off - v.g.off)
}

// Release drops the view's pin. The view may be kept and pinned again with
// Acquire. To release it twice is a bug of the caller. The zero View has
// nothing to release.
func (v View) Release() {
	if v.g != nil {
		v.g.release()
	}
}

// Acquire pins a released view again. It reports false, without a pin, once the
// key that it was resolved with is dead (the fault then is ib.FaultGone).
// Bounds and rights were checked when it was resolved and cannot change. The
// zero View acquires nothing and reports true.
func (v View) Acquire() bool { return v.g == nil || v.g.acquire() }

// Bytes is the view's memory, nil if it is not local. Its capacity ends with
// the view. Only a view resolved for writing may be written through it.
func (v View) Bytes() []byte {
	if v.g == nil || v.g.region.data == nil {
		return nil
	}
	end := v.off + v.n
	return v.g.region.bytes()[v.off:end:end]
}

// CopyIn writes src at byte off of the view: ib.FaultNone; ib.FaultOutOfBounds,
// or ib.FaultNoAccess for read-only memory, or ib.FaultNotPresent (nothing is
// written); or the fault of the memory (any part may be written). The caller
// makes sure that the view was resolved for writing.
func (v View) CopyIn(off uint64, src []byte) ib.Fault {
	if !inside(off, uint64(len(src)), v.n) {
		return ib.FaultOutOfBounds
	}
	if v.g == nil {
		return ib.FaultNone
	}
	r := v.g.region
	if r.access&isSealed != 0 {
		return ib.FaultNoAccess
	}
	if r.data != nil {
		if dst := r.bytes()[v.off+off:]; len(src) > 0 && &dst[0] != &src[0] {
			copy(dst, src)
		} // else it was received there, see Place
		return ib.FaultNone
	}
	if !r.present(v.off+off, uint64(len(src)), true) {
		return ib.FaultNotPresent
	}
	return faultOf(r.mem.CopyIn(v.off+off, src))
}

// Place returns the memory of n bytes at byte off of the view, for others than
// CopyIn to write while the view is pinned; nil if it is not local, or must not
// be written. CopyIn of what lies there already copies nothing. The caller
// makes sure that the view was resolved for writing.
func (v View) Place(off, n uint64) []byte {
	if !inside(off, n, v.n) || v.g == nil || v.g.region.data == nil || v.g.region.access&isSealed != 0 {
		return nil
	}
	off += v.off
	return v.g.region.bytes()[off : off+n : off+n]
}

// Target is Place for a link, which receives there: of memory that is Guarded,
// too. There only a system call, or what Catch ends, may touch it. CopyIn of
// what lies there already copies nothing.
func (v View) Target(off, n uint64) []byte {
	if v.g == nil || v.g.region.access&isGuarded == 0 {
		return v.Place(off, n)
	}
	if !inside(off, n, v.n) || v.g.region.access&isSealed != 0 {
		return nil
	}
	off += v.off
	return v.g.region.mem.(*guarded).bytes()[off : off+n : off+n]
}

// Part returns n bytes of the view from byte off on, which are inside of it,
// with the same pin.
func (v View) Part(off, n uint64) View {
	if !inside(off, n, v.n) {
		panic("memreg: View.Part out of range")
	}
	return View{g: v.g, off: v.off + off, n: n}
}

// Placeable reports whether Target returns memory.
func (v View) Placeable() bool {
	return v.g != nil && (v.g.region.data != nil || v.g.region.access&isGuarded != 0) && v.g.region.access&isSealed == 0
}

// CopyOut reads len(dst) bytes at byte off of the view; faults as CopyIn.
func (v View) CopyOut(dst []byte, off uint64) ib.Fault {
	if !inside(off, uint64(len(dst)), v.n) {
		return ib.FaultOutOfBounds
	}
	if v.g == nil {
		return ib.FaultNone
	}
	r := v.g.region
	if r.data != nil {
		copy(dst, r.bytes()[v.off+off:])
		return ib.FaultNone
	}
	if !r.present(v.off+off, uint64(len(dst)), false) {
		return ib.FaultNotPresent
	}
	return faultOf(r.mem.CopyOut(dst, v.off+off))
}

// Load64 reads the 64-bit word at byte off of the view, atomically, in this
// machine's byte order. Faults: ib.FaultOutOfBounds; ib.FaultMisaligned when
// the address (Addr()+off) or, for local memory, the real address is not a
// multiple of 8, which differ in a region whose address the caller chose badly;
// ib.FaultNotPresent; ib.FaultMemory.
func (v View) Load64(off uint64) (uint64, ib.Fault) {
	if !inside(off, 8, v.n) {
		return 0, ib.FaultOutOfBounds
	}
	r := v.g.region
	if !r.present(v.off+off, 8, false) {
		return 0, ib.FaultNotPresent
	}
	return r.load64(v.Addr()+off, v.off+off)
}

// Store64 writes the word at off; faults as Load64.
func (v View) Store64(off, x uint64) ib.Fault {
	if !inside(off, 8, v.n) {
		return ib.FaultOutOfBounds
	}
	r := v.g.region
	if !r.present(v.off+off, 8, true) {
		return ib.FaultNotPresent
	}
	return r.store64(v.Addr()+off, v.off+off, x)
}

// CompareSwap64 writes swap to the word at off if it equals compare, and
// returns the value before; faults as Load64.
func (v View) CompareSwap64(off, compare, swap uint64) (uint64, ib.Fault) {
	if !inside(off, 8, v.n) {
		return 0, ib.FaultOutOfBounds
	}
	r := v.g.region
	if !r.present(v.off+off, 8, true) {
		return 0, ib.FaultNotPresent
	}
	return r.compareSwap64(v.Addr()+off, v.off+off, compare, swap)
}

// FetchAdd64 adds to the word at off modulo 2^64 and returns the value before;
// faults as Load64.
func (v View) FetchAdd64(off, add uint64) (uint64, ib.Fault) {
	if !inside(off, 8, v.n) {
		return 0, ib.FaultOutOfBounds
	}
	r := v.g.region
	if !r.present(v.off+off, 8, true) {
		return 0, ib.FaultNotPresent
	}
	return r.fetchAdd64(v.Addr()+off, v.off+off, add)
}
