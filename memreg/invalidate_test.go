package memreg

import (
	"testing"

	"github.com/gosoftroce/rocev2/ib"
)

// A SEND with invalidate ends an rkey that was registered for it, in the domain
// of its queue pair (IBTA 9.4.1.1.3). The lkey stays.
func TestInvalidateEndsTheRKeyOnly(t *testing.T) {
	t.Parallel()
	tab := newTable(1)
	pd, other := tab.AllocPD(), tab.AllocPD()
	mem := Local(make([]byte, 64))
	all := ib.LocalWrite | ib.RemoteWrite | ib.RemoteRead
	r := mustRegister(t, tab, pd, mem, Options{Access: all, Invalidatable: true})
	plain := mustRegister(t, tab, pd, mem, Options{Access: all})

	wantFault(t, "not registered for it", tab.Invalidate(pd, 1, plain.RKey()), ib.FaultNotInvalidatable)
	wantFault(t, "another domain", tab.Invalidate(other, 1, r.RKey()), ib.FaultWrongPD)
	wantFault(t, "an lkey", tab.Invalidate(pd, 1, r.LKey()), ib.FaultUnknownKey)
	wantFault(t, "no region has it", tab.Invalidate(pd, 1, r.RKey()^r.LKey()^1), ib.FaultUnknownKey)

	wantFault(t, "the first time", tab.Invalidate(pd, 1, r.RKey()), ib.FaultNone)
	if !r.Invalidated() || !r.Alive() {
		t.Errorf("invalidated %t, alive %t", r.Invalidated(), r.Alive())
	}
	_, f := tab.Resolve(pd, 1, r.RKey(), r.Addr(), 8, ib.RemoteRead)
	wantFault(t, "a remote access", f, ib.FaultUnknownKey)
	wantFault(t, "a local access", tab.Scatter(pd, []ib.SGE{r.SGE(0, 8)}, 0, make([]byte, 8)), ib.FaultNone)
	wantFault(t, "the second time", tab.Invalidate(pd, 1, r.RKey()), ib.FaultUnknownKey)
	if got, want := tab.Explain(pd, 1, r.RKey(), r.Addr(), 8, ib.RemoteRead), "key "+r.RKey().String()+": it was invalidated"; got != want {
		t.Errorf("Explain says %q, want %q", got, want)
	}
	mustDeregister(t, tab, r)
	wantFault(t, "deregistered", tab.Invalidate(pd, 1, r.RKey()), ib.FaultUnknownKey)
	if pd.Regions() != 1 {
		t.Errorf("%d regions left, want 1", pd.Regions())
	}
}
