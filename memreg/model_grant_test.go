package memreg

import (
	"math"
	"math/bits"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
)

var grantedRights = []ib.Access{0, ib.RemoteRead, ib.RemoteWrite, ib.RemoteAtomic | ib.RemoteRead, ib.RemoteRead | ib.ZeroBased, ib.LocalWrite}

// grant makes a grant on a part of a region, which need not be inside.
func (w *world) grant() {
	if len(w.regions) == 0 {
		return
	}
	m := w.regions[w.next(len(w.regions))]
	o := GrantOptions{Offset: uint64(w.next(len(m.image) + 2)), Length: uint64(w.next(len(m.image) + 2)),
		Access: grantedRights[w.next(len(grantedRights))], QPN: rocev2.QPN(w.next(3)), Invalidatable: w.next(2) == 0}
	g, err := w.tab.Grant(m.r, o)
	ok := m.alive && m.acc&ib.MWBind != 0 && o.Access&ib.LocalWrite == 0 &&
		o.Length != 0 && o.Offset+o.Length <= uint64(len(m.image))
	if ok != (err == nil) {
		w.t.Fatalf("Grant of %+v on %d bytes with %v: %v", o, len(m.image), m.acc, err)
	}
	if ok {
		w.grants = append(w.grants, &modelGrant{g, m, o, true, true})
	}
}

// endGrant revokes or invalidates a grant.
func (w *world) endGrant() {
	if len(w.grants) == 0 {
		return
	}
	g := w.grants[w.next(len(w.grants))]
	if w.next(2) == 0 {
		w.tab.Revoke(g.g) // of a dead one: nothing happens
		g.alive, g.there = false, false
		return
	}
	pd, qpn := w.pds[w.next(len(w.pds))], rocev2.QPN(1+w.next(2))
	want := ib.FaultNone
	switch {
	case !g.alive:
		want = ib.FaultUnknownKey
	case g.m.pd != pd:
		want = ib.FaultWrongPD
	case !g.o.Invalidatable:
		want = ib.FaultNotInvalidatable
	case g.o.QPN != 0 && g.o.QPN != qpn:
		want = ib.FaultNoAccess
	default:
		g.alive = false
	}
	wantFault(w.t, "Invalidate", w.tab.Invalidate(pd, qpn, g.g.Key()), want)
}

// want is the model's answer, by arithmetic in 65 bits.
func (g *modelGrant) want(pd *PD, qpn rocev2.QPN, addr, length uint64, need ib.Access) ib.Fault {
	end, wrap := bits.Add64(addr, length, 0)
	base := g.base()
	switch {
	case !g.alive:
		return ib.FaultUnknownKey
	case g.m.pd != pd:
		return ib.FaultWrongPD
	case g.o.QPN != 0 && g.o.QPN != qpn, g.o.Access&need != need:
		return ib.FaultNoAccess
	case addr < base || wrap != 0 || end > base+g.o.Length:
		return ib.FaultOutOfBounds
	}
	return ib.FaultNone
}

func (g *modelGrant) base() uint64 {
	if g.o.Access&ib.ZeroBased != 0 {
		return 0
	}
	return g.m.base + g.o.Offset
}

// resolveGrant accesses memory through a grant.
func (w *world) resolveGrant() {
	if len(w.grants) == 0 {
		return
	}
	g := w.grants[w.next(len(w.grants))]
	pd, qpn := w.pds[w.next(len(w.pds))], rocev2.QPN(1+w.next(2))
	need := grantedRights[w.next(len(grantedRights))]
	addr := g.base() + uint64(w.next(64)) - 4
	length := uint64(w.next(64))
	if w.next(8) == 0 {
		length = math.MaxUint64 - uint64(w.next(256))
	}
	v, f := w.tab.Resolve(pd, qpn, g.g.Key(), addr, length, need)
	if want := g.want(pd, qpn, addr, length, need); f != want {
		w.t.Fatalf("%d bytes at %#x, grant %+v at %#x: fault %q, want %q", length, addr, g.o, g.base(), f, want)
	}
	if f != ib.FaultNone {
		return
	}
	if v.Addr() != addr {
		w.t.Fatalf("the view is at %#x, want %#x", v.Addr(), addr)
	}
	w.use(g.m, v, addr-g.base()+g.o.Offset, length)
	v.Release()
}
