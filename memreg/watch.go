package memreg

import (
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
)

// Access is an access to memory by a key.
type Access struct {
	QPN    rocev2.QPN // whose peer wants it; 0: it is this side's own
	Key    ib.Key
	Addr   uint64
	Length uint64
	Need   ib.Access // rights
	Fault  ib.Fault
	Ended  bool // the key was a region's, a grant's or a window's until lately
}

// Watch has f called with every access that Resolve or ResolveLocal has looked
// at. It comes before they are called, and f must call nothing here.
func (t *Table) Watch(f func(Access)) { t.watch = f }

// watched is view for a table with a watcher. g is nil if no grant has the key.
func (t *Table) watched(g *Grant, pd *PD, a Access) (v View, f ib.Fault) {
	f = ib.FaultUnknownKey
	if g != nil {
		v, f = g.view(pd, a.QPN, a.Addr, a.Length, a.Need)
	}
	a.Fault = f
	a.Ended = f == ib.FaultUnknownKey && (g != nil || t.keys.quarantined(a.Key))
	t.watch(a)
	return v, f
}
