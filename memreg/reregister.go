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
	t.publish(next)
	t.retire(r)
	return next, nil
}
