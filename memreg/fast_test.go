package memreg

import (
	"errors"
	"math"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
)

func mustFast(t testing.TB, tab *Table, pd *PD, max uint64) *FastRegion {
	t.Helper()
	f, err := tab.AllocFast(pd, max)
	if err != nil {
		t.Fatalf("AllocFast: %v", err)
	}
	return f
}

// regWith returns the registration of f under keys that end in low.
func regWith(f *FastRegion, low ib.Key, addr uint64, access ib.Access) *ib.RegMR {
	return &ib.RegMR{Region: f.RKey(), NewKey: f.RKey()&^0xff | low, Addr: addr, Access: access}
}

// A fast registration region is free, then valid, then free: IBTA 10.6.3.3.
func TestFastStates(t *testing.T) {
	t.Parallel()
	tab := newTable(1)
	pd, other := tab.AllocPD(), tab.AllocPD()
	f := mustFast(t, tab, pd, 64)
	mem := make([]byte, 64)
	wantFault(t, "nothing mapped", tab.RegisterFast(pd, regWith(f, 1, 0x1000, all)), ib.FaultState)
	if err := f.Map(Local(make([]byte, 65))); !errors.Is(err, ErrLength) {
		t.Errorf("map too much: %v", err)
	}
	if err := f.Map(Local(nil)); !errors.Is(err, ErrLength) {
		t.Errorf("map nothing: %v", err)
	}
	if err := f.Map(nil); !errors.Is(err, ErrMemory) {
		t.Errorf("map nil: %v", err)
	}
	if err := f.Map(Local(mem)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		why  string
		pd   *PD
		b    *ib.RegMR
		want ib.Fault
	}{
		{"another domain", other, regWith(f, 1, 0x1000, all), ib.FaultWrongPD},
		{"remote write without local write", pd, regWith(f, 1, 0x1000, ib.RemoteWrite), ib.FaultNoAccess},
		{"an unknown right", pd, regWith(f, 1, 0x1000, 1<<31), ib.FaultNoAccess},
		{"the addresses wrap", pd, regWith(f, 1, math.MaxUint64-62, all), ib.FaultOutOfBounds},
		{"not its key now", pd, &ib.RegMR{Region: f.RKey() ^ 1, NewKey: f.RKey()}, ib.FaultUnknownKey},
		{"its lkey", pd, &ib.RegMR{Region: f.LKey(), NewKey: f.LKey()}, ib.FaultUnknownKey},
		{"a key of another index", pd, &ib.RegMR{Region: f.RKey(), NewKey: f.RKey() ^ 256}, ib.FaultUnknownKey},
		{"the key of a window", pd, &ib.RegMR{Region: mustWindow(t, tab, pd, ib.MWType1).RKey()}, ib.FaultUnknownKey},
		{"no key", pd, &ib.RegMR{}, ib.FaultUnknownKey},
	} {
		wantFault(t, c.why, tab.RegisterFast(c.pd, c.b), c.want)
		if f.Valid() {
			t.Fatalf("%s: valid", c.why)
		}
	}
	wantFault(t, "the highest address", tab.RegisterFast(pd, regWith(f, 1, math.MaxUint64-64, all)), ib.FaultNone)
	wantFault(t, "invalidate", tab.Invalidate(pd, 9, f.RKey()), ib.FaultNone)
	old := f.RKey()
	wantFault(t, "register", tab.RegisterFast(pd, regWith(f, 2, 0x1000, all)), ib.FaultNone)
	if !f.Valid() || f.RKey()&0xff != 2 || f.LKey()&0xff != 2 || f.LKey() == f.RKey() {
		t.Errorf("keys %v and %v", f.LKey(), f.RKey())
	}
	wantFault(t, "register what is valid", tab.RegisterFast(pd, regWith(f, 3, 0x1000, all)), ib.FaultState)
	if err := f.Map(Local(mem)); !errors.Is(err, ErrFastInUse) {
		t.Errorf("map while valid: %v", err)
	}
	v, fault := tab.Resolve(pd, 7, f.RKey(), 0x1000, 64, ib.RemoteWrite)
	wantFault(t, "remote use", fault, ib.FaultNone)
	wantFault(t, "write", v.CopyIn(0, []byte{5}), ib.FaultNone)
	v.Release()
	if mem[0] != 5 {
		t.Error("it stands for other memory")
	}
	sg := []ib.SGE{{Addr: 0x1000, Length: 64, LKey: f.LKey()}}
	wantFault(t, "local use", tab.Gather(pd, sg, 0, make([]byte, 64)), ib.FaultNone)
	_, fault = tab.Resolve(pd, 7, f.LKey(), 0x1000, 64, ib.RemoteWrite)
	wantFault(t, "remote use of the lkey", fault, ib.FaultUnknownKey)
	_, fault = tab.Resolve(pd, 7, old, 0x1000, 64, ib.RemoteWrite)
	wantFault(t, "the key before", fault, ib.FaultUnknownKey)
	wantFault(t, "by another domain", tab.Invalidate(other, 7, f.RKey()), ib.FaultWrongPD)
	wantFault(t, "invalidate its lkey", tab.Invalidate(pd, 7, f.LKey()), ib.FaultUnknownKey)
	for _, want := range []ib.Fault{ib.FaultNone, ib.FaultUnknownKey} {
		wantFault(t, "invalidate", tab.Invalidate(pd, 7, f.RKey()), want)
	}
	if v.Acquire() {
		t.Error("a view outlives its region")
	}
	wantFault(t, "local use of what is free", tab.Gather(pd, sg, 0, make([]byte, 64)), ib.FaultUnknownKey)
	wantFault(t, "register again, zero-based", tab.RegisterFast(pd, regWith(f, 4, 0, ib.RemoteRead|ib.ZeroBased)), ib.FaultNone)
	if err := tab.DeallocPD(pd); !errors.Is(err, ErrPDInUse) {
		t.Errorf("free the domain: %v", err)
	}
	for range 2 {
		if err := tab.FreeFast(f); err != nil || f.Valid() || f.RKey() != 0 || tab.Regions() != 0 {
			t.Errorf("free: %v; %d regions are left", err, tab.Regions())
		}
	}
	if err := f.Map(Local(mem)); !errors.Is(err, ErrFastInUse) {
		t.Errorf("map to what was freed: %v", err)
	}
}

// A window on a fast registration region keeps it from being invalidated.
func TestFastWithWindow(t *testing.T) {
	t.Parallel()
	tab := newTable(1)
	pd := tab.AllocPD()
	f, w := mustFast(t, tab, pd, 64), mustWindow(t, tab, pd, ib.MWType2)
	must(t, f.Map(Local(make([]byte, 64))))
	wantFault(t, "register", tab.RegisterFast(pd, regWith(f, 1, 0x1000, bindable)), ib.FaultNone)
	wantFault(t, "bind", tab.Bind(pd, 7, &ib.BindMW{Window: w.RKey(), NewKey: w.RKey(), Region: f.LKey(), Addr: 0x1008, Length: 8, Access: ib.RemoteRead}), ib.FaultNone)
	wantFault(t, "invalidate", tab.Invalidate(pd, 7, f.RKey()), ib.FaultState)
	if err := tab.FreeFast(f); !errors.Is(err, ErrRegionInUse) || !f.Valid() {
		t.Errorf("free: %v", err)
	}
	v, fault := tab.Resolve(pd, 7, w.RKey(), 0x1008, 8, ib.RemoteRead)
	wantFault(t, "use", fault, ib.FaultNone)
	v.Release()
	wantFault(t, "invalidate the window", tab.Invalidate(pd, 7, w.RKey()), ib.FaultNone)
	wantFault(t, "then the region", tab.Invalidate(pd, 7, f.RKey()), ib.FaultNone)
	must(t, tab.FreeFast(f))
}

func TestAllocFastErrors(t *testing.T) {
	t.Parallel()
	tab := newTable(1)
	pd := tab.AllocPD()
	for why, c := range map[string]struct {
		pd     *PD
		max    uint64
		change func()
		want   error
	}{
		"no domain":        {nil, 64, nil, ErrPD},
		"no bytes":         {pd, 0, nil, ErrLength},
		"too many regions": {pd, 64, func() { tab.regions.Store(ib.MaxMR) }, ErrExhausted},
		"too many of them": {pd, 64, func() { tab.windows.fast = ib.MaxMW }, ErrExhausted},
	} {
		if c.change != nil {
			c.change()
		}
		if f, err := tab.AllocFast(c.pd, c.max); f != nil || !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", why, err, c.want)
		}
		tab.regions.Store(0)
		tab.windows.fast = 0
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
