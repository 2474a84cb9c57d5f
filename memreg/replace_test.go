package memreg

import (
	"errors"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
)

// A region that replaces another has its keys. What stood for them before is
// gone, and so is the count of its domain.
func TestReplaceKeepsKeys(t *testing.T) {
	t.Parallel()
	tab := newTable(1)
	pd, other := tab.AllocPD(), tab.AllocPD()
	a, b := []byte("aaaaaaaa"), []byte("bbbbbbbb")
	old := mustRegister(t, tab, pd, Local(a), Options{Access: ib.LocalWrite | ib.RemoteWrite, Base: BaseIOVA, IOVA: 4096})
	next, err := tab.Replace(old, other, Local(b), Options{Access: ib.RemoteRead, Base: BaseIOVA, IOVA: 8192})
	if err != nil {
		t.Fatal(err)
	}
	if next.LKey() != old.LKey() || next.RKey() != old.RKey() || old.Alive() || !next.Alive() {
		t.Errorf("keys %v and %v, before %v and %v", next.LKey(), next.RKey(), old.LKey(), old.RKey())
	}
	if tab.Regions() != 1 || pd.Regions() != 0 || other.Regions() != 1 {
		t.Errorf("%d regions: %d and %d", tab.Regions(), pd.Regions(), other.Regions())
	}
	for _, c := range []struct {
		name string
		pd   *PD
		addr uint64
		need ib.Access
		want ib.Fault
	}{
		{"as it is now", other, 8192, ib.RemoteRead, ib.FaultNone},
		{"its domain before", pd, 8192, ib.RemoteRead, ib.FaultWrongPD},
		{"its place before", other, 4096, ib.RemoteRead, ib.FaultOutOfBounds},
		{"its rights before", other, 8192, ib.RemoteWrite, ib.FaultNoAccess},
	} {
		v, fault := tab.Resolve(c.pd, 0, next.RKey(), c.addr, 8, c.need)
		if fault != c.want {
			t.Errorf("%s: %v, want %v", c.name, fault, c.want)
		}
		if fault == ib.FaultNone {
			v.Release()
		}
	}
	if _, err := tab.Replace(old, pd, Local(a), Options{Base: BaseIOVA}); !errors.Is(err, ErrRegion) {
		t.Errorf("one that is gone: %v, want ErrRegion", err)
	}
	if _, err := tab.Replace(next, other, Local(nil), Options{}); !errors.Is(err, ErrLength) || !next.Alive() {
		t.Errorf("no memory: %v; the region lives: %v", err, next.Alive())
	}
	mustDeregister(t, tab, next)
	if v, fault := tab.Resolve(other, 0, next.RKey(), 8192, 8, ib.RemoteRead); fault != ib.FaultUnknownKey {
		v.Release()
		t.Errorf("deregistered: %v", fault)
	}
}
