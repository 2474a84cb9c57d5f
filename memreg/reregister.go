package memreg

import (
	"github.com/gosoftroce/rocev2/ib"
)

// Options returns what would register other memory as r is registered: its
// rights, its address, and whether its rkey can be invalidated. The address of
// a region that is not zero-based is an IOVA.
func (r *Region) Options() Options {
	o := Options{Access: r.Access(), Invalidatable: r.remote.kind == kindInvalidatable}
	if o.Access&ib.ZeroBased != 0 {
		o.Base = BaseZero
	} else {
		o.Base, o.IOVA = BaseIOVA, r.base
	}
	return o
}

// Reregister replaces a region by one over m in pd with other options (IBTA
// 11.2.8.5): it is Register and Deregister in one, and neither a limit nor a
// lack of keys can come in between. The new region has new keys. The old one is
// gone when Reregister returns, and no view of it is in use. On an error, which
// is one of Register, ErrRegion or ErrRegionInUse, it is as it was.
func (t *Table) Reregister(r *Region, pd *PD, m Memory, o Options) (*Region, error) {
	next, err := t.successor(r, pd, m, o)
	if err == nil {
		t.publish(next)
		t.retire(r)
	}
	return next, err
}

// Replace is Reregister, but for the keys: the new region has those of the old
// one, so that no peer has to be told new ones. An access with them meanwhile
// meets the old region or the new one.
func (t *Table) Replace(r *Region, pd *PD, m Memory, o Options) (*Region, error) {
	next, err := t.successor(r, pd, m, o)
	if err != nil {
		return nil, err
	}
	next.local.key, next.remote.key = r.local.key, r.remote.key
	t.keys.exchange(next.local.key, &next.local)
	t.keys.exchange(next.remote.key, &next.remote)
	pd.regions.Add(1)
	r.pd.regions.Add(-1)
	endGrants(r)
	return next, nil
}

// successor makes a region that is to replace r; nothing can be bound to r any
// more then. No lookup finds the new region yet.
func (t *Table) successor(r *Region, pd *PD, m Memory, o Options) (*Region, error) {
	if r == nil || r.pd.table != t || !r.Alive() {
		return nil, ErrRegion
	}
	next, err := t.prepare(pd, m, o)
	if err != nil {
		return nil, err
	}
	if !r.bound.seal() {
		return nil, r.inUse()
	}
	return next, nil
}
