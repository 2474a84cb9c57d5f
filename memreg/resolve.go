package memreg

import (
	"fmt"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
)

// Resolve checks an access of queue pair qpn by rkey to length bytes at addr:
// the key, the protection domain, the queue pair if the grant is bound to one,
// every right in need, and the bounds, in this order (IBTA 9.7.4.1.5). A grant
// that is bound to another queue pair is ib.FaultNoAccess. On ib.FaultNone the
// view is pinned and the caller releases it. Length 0 is checked in the same
// way, with addr inside the grant or just past it; a caller that does not
// validate empty accesses does not call.
func (t *Table) Resolve(pd *PD, qpn rocev2.QPN, key ib.Key, addr, length uint64, need ib.Access) (View, ib.Fault) {
	g := t.keys.lookup(key)
	if g == nil {
		g = t.inSlot(key)
	}
	if g != nil && (g.key != key || g.local()) {
		g = nil
	}
	if t.watch != nil {
		return t.watched(g, pd, Access{QPN: qpn, Key: key, Addr: addr, Length: length, Need: need})
	}
	if g == nil {
		return View{}, ib.FaultUnknownKey
	}
	return g.view(pd, qpn, addr, length, need)
}

// ResolveLocal checks an access by lkey to the whole of s, as Resolve does. The
// need is LocalWrite for writing and 0 for reading.
func (t *Table) ResolveLocal(pd *PD, s ib.SGE, need ib.Access) (View, ib.Fault) {
	g := t.keys.lookup(s.LKey)
	if g == nil {
		g = t.inSlot(s.LKey)
	}
	if g != nil && (g.key != s.LKey || !g.local()) {
		g = nil
	}
	if t.watch != nil {
		return t.watched(g, pd, Access{Key: s.LKey, Addr: s.Addr, Length: uint64(s.Length), Need: need})
	}
	if g == nil {
		return View{}, ib.FaultUnknownKey
	}
	return g.view(pd, 0, s.Addr, uint64(s.Length), need)
}

// view checks and pins. The pin comes last: it is the check that the key is
// alive, and a refused access costs no atomic write.
func (g *Grant) view(pd *PD, qpn rocev2.QPN, addr, length uint64, need ib.Access) (View, ib.Fault) {
	off, f := g.check(pd, qpn, addr, length, need)
	if f != ib.FaultNone {
		if !g.Alive() {
			f = ib.FaultUnknownKey
		}
		return View{}, f
	}
	if !g.acquire() {
		return View{}, ib.FaultUnknownKey
	}
	return View{g: g, off: off, n: length}, ib.FaultNone
}

// check returns the offset of addr in the region. addr+length is never formed:
// it could wrap. The grant's address plus its length does not, so an addr below
// it has, modulo 2^64, a distance from it beyond every length.
func (g *Grant) check(pd *PD, qpn rocev2.QPN, addr, length uint64, need ib.Access) (off uint64, f ib.Fault) {
	if g.region.pd != pd {
		return 0, ib.FaultWrongPD
	}
	if g.qpn != 0 && g.qpn != qpn || ib.Access(g.rights)&need != need {
		return 0, ib.FaultNoAccess
	}
	off = addr - g.Addr()
	if !inside(off, length, g.length) {
		return 0, ib.FaultOutOfBounds
	}
	if g.region.access&isSparse != 0 && !g.region.mem.(SparseMemory).Contains(g.off+off, length) {
		return 0, ib.FaultOutOfBounds
	}
	return g.off + off, ib.FaultNone
}

// Gather reads len(dst) bytes of a scatter/gather list, from byte off of the
// list. Faults: ib.FaultOutOfBounds, with nothing copied, when the list is
// shorter than that; those of ResolveLocal for each entry that contributes a
// byte, which must be valid as a whole; those of the memory. Entries that
// contribute nothing are not looked at. After a fault any part of dst may have
// been written.
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

// PlaceLocal returns the memory of a scatter list from byte off to the end of
// the entry that has it, for others than Scatter to write while the view is
// pinned. It returns nothing, and no pin, where Scatter would meet a fault, or
// where the memory is not placeable.
func (t *Table) PlaceLocal(pd *PD, sg []ib.SGE, off uint64) View {
	for i := range sg {
		size := uint64(sg[i].Length)
		if off >= size {
			off -= size
			continue
		}
		v, f := t.ResolveLocal(pd, sg[i], ib.LocalWrite)
		if f != ib.FaultNone {
			break
		}
		if !v.Placeable() {
			v.Release()
			break
		}
		return v.Part(off, size-off)
	}
	return View{}
}

// Explain says in words what Resolve (or ResolveLocal, when need has no remote
// right) finds wrong with an access, or that nothing is. It is for diagnostics:
// it allocates, and what it sees may change at any moment.
func (t *Table) Explain(pd *PD, qpn rocev2.QPN, key ib.Key, addr, length uint64, need ib.Access) string {
	remote := need&grantRights != 0
	g := t.lookup(key)
	switch {
	case t.keys.quarantined(key):
		return fmt.Sprintf("key %v: its region was deregistered, or its grant revoked", key)
	case g == nil || g.key != key:
		return fmt.Sprintf("key %v: no region has it", key)
	case remote && g.local():
		return fmt.Sprintf("key %v: it is an lkey, a remote access needs the rkey", key)
	case remote && !g.Alive():
		return fmt.Sprintf("key %v: it was invalidated", key)
	case !remote && !g.local():
		return fmt.Sprintf("key %v: it is an rkey, a local access needs the lkey", key)
	}
	what, has := "region", g.region.access
	if !g.region.owns(g) {
		what, has = "grant", g.Access()
	}
	_, f := g.check(pd, qpn, addr, length, need)
	switch {
	case f == ib.FaultNone:
		return fmt.Sprintf("key %v: the access is valid", key)
	case f == ib.FaultNoAccess && has&need == need:
		return fmt.Sprintf("key %v: it is bound to queue pair %#x, the access is by %#x", key, uint32(g.qpn), uint32(qpn))
	case f == ib.FaultNoAccess:
		return fmt.Sprintf("key %v: %v is not granted, the %s has %v", key, need&^has, what, has)
	case f == ib.FaultOutOfBounds:
		return fmt.Sprintf("key %v: %d bytes at %#x are not inside the %s's %d bytes at %#x",
			key, length, addr, what, g.length, g.Addr())
	}
	return fmt.Sprintf("key %v: %v", key, f)
}
