package memreg

import (
	"fmt"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
)

// Resolve checks an access by rkey to length bytes at addr: the key, the protection
// domain, every right in need, and the bounds, in this order. On None the view is
// pinned and the caller releases it. Of length 0 the same is asked, with addr
// inside the region or just behind it; a caller that does not validate empty
// accesses does not call.
func (t *Table) Resolve(pd *PD, qpn rocev2.QPN, key ib.Key, addr, length uint64, need ib.Access) (View, ib.Fault) {
	r := t.keys.lookup(key)
	if r == nil || r.rkey != key || r.invalid.Load() {
		return View{}, ib.FaultUnknownKey
	}
	return r.view(pd, addr, length, need)
}

// ResolveLocal checks an access by lkey to the whole of s, as Resolve does. The
// need is LocalWrite for writing and 0 for reading.
func (t *Table) ResolveLocal(pd *PD, s ib.SGE, need ib.Access) (View, ib.Fault) {
	r := t.keys.lookup(s.LKey)
	if r == nil || r.lkey != s.LKey {
		return View{}, ib.FaultUnknownKey
	}
	return r.view(pd, s.Addr, uint64(s.Length), need)
}

// view checks and pins. The pin comes last: it is the check that the region is
// alive, and a refused access costs no atomic write.
func (r *Region) view(pd *PD, addr, length uint64, need ib.Access) (View, ib.Fault) {
	off, f := r.check(pd, addr, length, need)
	if f != ib.FaultNone {
		if !r.Alive() {
			f = ib.FaultUnknownKey
		}
		return View{}, f
	}
	if !r.Acquire() {
		return View{}, ib.FaultUnknownKey
	}
	return View{r: r, off: off, n: length}, ib.FaultNone
}

// check returns the offset of addr in the region. addr+length is never formed: it
// could wrap. base+length does not, so an addr below base has, modulo 2^64, a
// distance from base beyond every length.
func (r *Region) check(pd *PD, addr, length uint64, need ib.Access) (off uint64, f ib.Fault) {
	if r.pd != pd {
		return 0, ib.FaultWrongPD
	}
	if r.access&need != need {
		return 0, ib.FaultNoAccess
	}
	off = addr - r.base
	if !inside(off, length, r.length) {
		return 0, ib.FaultOutOfBounds
	}
	return off, ib.FaultNone
}

// Gather reads len(dst) bytes of a scatter/gather list, from byte off of the list.
// Faults: OutOfBounds, with nothing copied, when the list is shorter than that;
// those of ResolveLocal for each entry that contributes a byte, which must be
// valid as a whole; those of the memory. Entries that contribute nothing are not
// looked at. After a fault any part of dst may have been written.
func (t *Table) Gather(pd *PD, sg []ib.SGE, off uint64, dst []byte) ib.Fault {
	if !inside(off, uint64(len(dst)), ib.TotalLength(sg)) {
		return ib.FaultOutOfBounds
	}
	for i := 0; len(dst) > 0; i++ {
		size := uint64(sg[i].Length)
		if off >= size {
			off -= size
			continue
		}
		n := min(size-off, uint64(len(dst)))
		v, f := t.ResolveLocal(pd, sg[i], 0)
		if f != ib.FaultNone {
			return f
		}
		f = v.CopyOut(dst[:n], off)
		v.Release()
		if f != ib.FaultNone {
			return f
		}
		dst, off = dst[n:], 0
	}
	return ib.FaultNone
}

// Scatter writes src to a scatter/gather list, from byte off of the list. The
// entries need LocalWrite; otherwise the faults are those of Gather. After a
// fault any part of src may have been written.
func (t *Table) Scatter(pd *PD, sg []ib.SGE, off uint64, src []byte) ib.Fault {
	if !inside(off, uint64(len(src)), ib.TotalLength(sg)) {
		return ib.FaultOutOfBounds
	}
	for i := 0; len(src) > 0; i++ {
		size := uint64(sg[i].Length)
		if off >= size {
			off -= size
			continue
		}
		n := min(size-off, uint64(len(src)))
		v, f := t.ResolveLocal(pd, sg[i], ib.LocalWrite)
		if f != ib.FaultNone {
			return f
		}
		f = v.CopyIn(off, src[:n])
		v.Release()
		if f != ib.FaultNone {
			return f
		}
		src, off = src[n:], 0
	}
	return ib.FaultNone
}

// Explain says in words what Resolve (or ResolveLocal, when need has no remote
// right) finds wrong with an access, or that nothing is. It is for diagnostics:
// it allocates, and what it sees may change at any moment.
func (t *Table) Explain(pd *PD, key ib.Key, addr, length uint64, need ib.Access) string {
	remote := need&(ib.RemoteWrite|ib.RemoteRead|ib.RemoteAtomic|ib.FlushGlobal|ib.FlushPersistent) != 0
	r := t.keys.lookup(key)
	switch {
	case t.keys.quarantined(key):
		return fmt.Sprintf("key %v: its region was deregistered", key)
	case r == nil || r.lkey != key && r.rkey != key:
		return fmt.Sprintf("key %v: no region has it", key)
	case remote && r.rkey != key:
		return fmt.Sprintf("key %v: it is an lkey, a remote access needs the rkey", key)
	case remote && r.invalid.Load():
		return fmt.Sprintf("key %v: it was invalidated", key)
	case !remote && r.lkey != key:
		return fmt.Sprintf("key %v: it is an rkey, a local access needs the lkey", key)
	}
	_, f := r.check(pd, addr, length, need)
	switch f {
	case ib.FaultNone:
		return fmt.Sprintf("key %v: the access is valid", key)
	case ib.FaultNoAccess:
		return fmt.Sprintf("key %v: %v is not granted, the region has %v", key, need&^r.access, r.access)
	case ib.FaultOutOfBounds:
		return fmt.Sprintf("key %v: %d bytes at %#x are not inside the region's %d bytes at %#x",
			key, length, addr, r.length, r.base)
	}
	return fmt.Sprintf("key %v: %v", key, f)
}
