package memreg

import "fmt"

// Resolve checks an access by rkey to length bytes at addr: the key, the protection
// domain, every right in need, and the bounds, in this order. On None the view is
// pinned and the caller releases it. Of length 0 the same is asked, with addr
// inside the region or just behind it; a caller that does not validate empty
// accesses does not call.
func (t *Table) Resolve(pd *PD, key Key, addr, length uint64, need Access) (View, Fault) {
	r := t.keys.lookup(key)
	if r == nil || r.rkey != key || r.invalid.Load() {
		return View{}, UnknownKey
	}
	return r.view(pd, addr, length, need)
}

// ResolveLocal checks an access by lkey to the whole of s, as Resolve does. The
// need is LocalWrite for writing and 0 for reading.
func (t *Table) ResolveLocal(pd *PD, s SGE, need Access) (View, Fault) {
	r := t.keys.lookup(s.LKey)
	if r == nil || r.lkey != s.LKey {
		return View{}, UnknownKey
	}
	return r.view(pd, s.Addr, uint64(s.Length), need)
}

// view checks and pins. The pin comes last: it is the check that the region is
// alive, and a refused access costs no atomic write.
func (r *Region) view(pd *PD, addr, length uint64, need Access) (View, Fault) {
	off, f := r.check(pd, addr, length, need)
	if f != None {
		if !r.Alive() {
			f = UnknownKey
		}
		return View{}, f
	}
	if !r.Acquire() {
		return View{}, UnknownKey
	}
	return View{r: r, off: off, n: length}, None
}

// check returns the offset of addr in the region. addr+length is never formed: it
// could wrap. base+length does not, so an addr below base has, modulo 2^64, a
// distance from base beyond every length.
func (r *Region) check(pd *PD, addr, length uint64, need Access) (off uint64, f Fault) {
	if r.pd != pd {
		return 0, WrongPD
	}
	if r.access&need != need {
		return 0, NoAccess
	}
	off = addr - r.base
	if !inside(off, length, r.length) {
		return 0, OutOfBounds
	}
	return off, None
}

// Gather reads len(dst) bytes of a scatter/gather list, from byte off of the list.
// Faults: OutOfBounds, with nothing copied, when the list is shorter than that;
// those of ResolveLocal for each entry that contributes a byte, which must be
// valid as a whole; those of the memory. Entries that contribute nothing are not
// looked at. After a fault any part of dst may have been written.
func (t *Table) Gather(pd *PD, sg []SGE, off uint64, dst []byte) Fault {
	if !inside(off, uint64(len(dst)), TotalLength(sg)) {
		return OutOfBounds
	}
	for i := 0; len(dst) > 0; i++ {
		size := uint64(sg[i].Length)
		if off >= size {
			off -= size
			continue
		}
		n := min(size-off, uint64(len(dst)))
		v, f := t.ResolveLocal(pd, sg[i], 0)
		if f != None {
			return f
		}
		f = v.CopyOut(dst[:n], off)
		v.Release()
		if f != None {
			return f
		}
		dst, off = dst[n:], 0
	}
	return None
}

// Scatter writes src to a scatter/gather list, from byte off of the list. The
// entries need LocalWrite; otherwise the faults are those of Gather. After a
// fault any part of src may have been written.
func (t *Table) Scatter(pd *PD, sg []SGE, off uint64, src []byte) Fault {
	if !inside(off, uint64(len(src)), TotalLength(sg)) {
		return OutOfBounds
	}
	for i := 0; len(src) > 0; i++ {
		size := uint64(sg[i].Length)
		if off >= size {
			off -= size
			continue
		}
		n := min(size-off, uint64(len(src)))
		v, f := t.ResolveLocal(pd, sg[i], LocalWrite)
		if f != None {
			return f
		}
		f = v.CopyIn(off, src[:n])
		v.Release()
		if f != None {
			return f
		}
		src, off = src[n:], 0
	}
	return None
}

// Explain says in words what Resolve (or ResolveLocal, when need has no remote
// right) finds wrong with an access, or that nothing is. It is for diagnostics:
// it allocates, and what it sees may change at any moment.
func (t *Table) Explain(pd *PD, key Key, addr, length uint64, need Access) string {
	remote := need&(RemoteWrite|RemoteRead|RemoteAtomic|FlushGlobal|FlushPersistent) != 0
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
	case None:
		return fmt.Sprintf("key %v: the access is valid", key)
	case NoAccess:
		return fmt.Sprintf("key %v: %v is not granted, the region has %v", key, need&^r.access, r.access)
	case OutOfBounds:
		return fmt.Sprintf("key %v: %d bytes at %#x are not inside the region's %d bytes at %#x",
			key, length, addr, r.length, r.base)
	}
	return fmt.Sprintf("key %v: %v", key, f)
}
