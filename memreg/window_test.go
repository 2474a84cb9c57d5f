package memreg

import (
	"errors"
	"math"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
)

func mustWindow(t testing.TB, tab *Table, pd *PD, typ ib.MWType) *Window {
	t.Helper()
	w, err := tab.AllocWindow(pd, typ)
	if err != nil {
		t.Fatalf("AllocWindow: %v", err)
	}
	return w
}

// bindTo returns the bind of a window to a part of a region; the low byte of
// the key is the current one plus 1.
func bindTo(w *Window, r *Region, off, n uint64, access ib.Access) *ib.BindMW {
	return &ib.BindMW{Window: w.RKey(), NewKey: w.RKey()&^0xff | (w.RKey()+1)&0xff, Region: r.LKey(), Addr: r.Addr() + off, Length: n, Access: access}
}

// What a bind refuses changes nothing: C10-72 (domain), C10-73 (MWBind), C10-74
// (LocalWrite), C10-75 (range), o10-37.2.40 (0 bytes).
func TestBindRules(t *testing.T) {
	t.Parallel()
	tab := newTable(1)
	pd, other := tab.AllocPD(), tab.AllocPD()
	const base = 0x10000
	iova := func(a ib.Access) Options { return Options{Access: a, Base: BaseIOVA, IOVA: base} }
	mem := Local(make([]byte, 64))
	r := mustRegister(t, tab, pd, mem, iova(bindable))
	readonly := mustRegister(t, tab, pd, mem, iova(ib.MWBind))
	plain := mustRegister(t, tab, pd, mem, iova(ib.LocalWrite|ib.RemoteRead))
	foreign := mustRegister(t, tab, other, mem, iova(bindable))
	top := mustRegister(t, tab, pd, mem, Options{Access: bindable, Base: BaseIOVA, IOVA: math.MaxUint64 - 64})
	gone := mustRegister(t, tab, pd, mem, iova(bindable))
	mustDeregister(t, tab, gone)
	one, two := mustWindow(t, tab, pd, ib.MWType1), mustWindow(t, tab, pd, ib.MWType2)
	theirs := mustWindow(t, tab, other, ib.MWType2)
	for _, c := range []struct {
		why     string
		w       *Window
		r       *Region
		off, n  uint64
		access  ib.Access
		change  func(b *ib.BindMW)
		want    ib.Fault
		notType bool // the case is for one type only
	}{
		{"everything is right", two, r, 0, 64, ib.RemoteRead, nil, ib.FaultNone, false},
		{"the last byte", two, r, 63, 1, ib.RemoteWrite, nil, ib.FaultNone, false},
		{"the highest addresses", two, top, 0, 64, ib.RemoteWrite, nil, ib.FaultNone, false},
		{"no right", two, r, 0, 64, 0, nil, ib.FaultNone, false},
		{"a hint", two, r, 0, 64, ib.RelaxedOrdering, nil, ib.FaultNone, false},
		{"zero-based, type 2", two, r, 8, 8, ib.RemoteRead | ib.ZeroBased, nil, ib.FaultNone, true},
		{"zero-based, type 1", one, r, 8, 8, ib.RemoteRead | ib.ZeroBased, nil, ib.FaultNoAccess, true},
		{"C10-72: region of another domain", two, foreign, 0, 64, ib.RemoteRead, nil, ib.FaultWrongPD, false},
		{"C10-72: window of another domain", theirs, r, 0, 64, ib.RemoteRead, nil, ib.FaultWrongPD, true},
		{"C10-72: both of another domain", theirs, foreign, 0, 64, ib.RemoteRead, nil, ib.FaultWrongPD, true},
		{"C10-73: a region that no window may be on", two, plain, 0, 64, ib.RemoteRead, nil, ib.FaultNoAccess, false},
		{"C10-74: write without local write", two, readonly, 0, 64, ib.RemoteWrite, nil, ib.FaultNoAccess, false},
		{"C10-74: atomics without local write", two, readonly, 0, 64, ib.RemoteAtomic, nil, ib.FaultNoAccess, false},
		{"read of what is read-only", two, readonly, 0, 64, ib.RemoteRead, nil, ib.FaultNone, false},
		{"local write", two, r, 0, 64, ib.LocalWrite, nil, ib.FaultNoAccess, false},
		{"an unknown right", two, r, 0, 64, 1 << 31, nil, ib.FaultNoAccess, false},
		{"C10-75: one byte too long", two, r, 0, 65, ib.RemoteRead, nil, ib.FaultOutOfBounds, false},
		{"C10-75: behind", two, r, 64, 1, ib.RemoteRead, nil, ib.FaultOutOfBounds, false},
		{"C10-75: one byte before", two, r, math.MaxUint64, 8, ib.RemoteRead, nil, ib.FaultOutOfBounds, false},
		{"C10-75: the end wraps to inside", two, r, 8, math.MaxUint64 - 3, ib.RemoteRead, nil, ib.FaultOutOfBounds, false},
		{"C10-75: the end wraps at the top", two, top, 8, 64, ib.RemoteRead, nil, ib.FaultOutOfBounds, false},
		{"C10-75: the longest", two, r, 0, math.MaxUint64, ib.RemoteRead, nil, ib.FaultOutOfBounds, false},
		{"o10-37.2.40: 0 bytes, type 2", two, r, 0, 0, ib.RemoteRead, nil, ib.FaultOutOfBounds, true},
		{"no such window", two, r, 0, 64, 0, func(b *ib.BindMW) { b.Window ^= 1 << 20 }, ib.FaultUnknownKey, false},
		{"not its key now", two, r, 0, 64, 0, func(b *ib.BindMW) { b.Window ^= 1 }, ib.FaultUnknownKey, false},
		{"key 0", two, r, 0, 64, 0, func(b *ib.BindMW) { b.Window = 0 }, ib.FaultUnknownKey, false},
		{"the key of a region", two, r, 0, 64, 0, func(b *ib.BindMW) { b.Window = r.RKey() }, ib.FaultUnknownKey, false},
		{"a key of another index", two, r, 0, 64, 0, func(b *ib.BindMW) { b.NewKey ^= 1 << 8 }, ib.FaultUnknownKey, true},
		{"an rkey for the region", two, r, 0, 64, 0, func(b *ib.BindMW) { b.Region = r.RKey() }, ib.FaultUnknownKey, false},
		{"a region that is gone", two, gone, 0, 64, 0, nil, ib.FaultUnknownKey, false},
	} {
		windows := []*Window{c.w}
		if !c.notType {
			windows = append(windows, one)
		}
		for _, w := range windows {
			b := bindTo(w, c.r, c.off, c.n, c.access)
			if c.change != nil {
				c.change(b)
			}
			before, count := w.Grant(), c.r.Bound()
			wantFault(t, c.why+", "+w.Type().String(), tab.Bind(pd, 7, b), c.want)
			if c.want != ib.FaultNone {
				if w.Grant() != before || c.r.Bound() != count {
					t.Errorf("%s: a bind that was refused has changed something", c.why)
				}
				continue
			}
			g := w.Grant()
			if !g.Alive() || g.Len() != c.n || c.r.Bound() != 1 || g.Access() != c.access&grantRights ||
				w.RKey() != b.NewKey || w.typ == ib.MWType2 && g.QPN() != 7 || w.typ == ib.MWType1 && g.QPN() != 0 {
				t.Errorf("%s: bound to %d bytes with %v for %v", c.why, g.Len(), g.Access(), g.QPN())
			}
			if w.typ == ib.MWType2 {
				wantFault(t, "invalidate", tab.Invalidate(pd, 7, w.RKey()), ib.FaultNone)
			} else {
				key := w.RKey()
				wantFault(t, "bind to nothing", tab.Bind(pd, 9, &ib.BindMW{Window: key}), ib.FaultNone)
				if w.RKey() == key || w.RKey()>>8 != key>>8 {
					t.Errorf("%s: the device has chosen %v after %v", c.why, w.RKey(), key)
				}
			}
			if c.r.Bound() != 0 {
				t.Errorf("%s: the region still counts the window", c.why)
			}
		}
	}
}

// Type 1 is for every queue pair of the domain, type 2 for the one that has
// bound it (IBTA 10.6.7.2). Each key stands for one bind.
func TestWindowUse(t *testing.T) {
	t.Parallel()
	tab := newTable(1)
	pd, other := tab.AllocPD(), tab.AllocPD()
	r := mustRegister(t, tab, pd, Local(make([]byte, 64)), Options{Access: bindable})
	read := func(pd *PD, qpn rocev2.QPN, key ib.Key, off, n uint64) ib.Fault {
		v, f := tab.Resolve(pd, qpn, key, r.Addr()+off, n, ib.RemoteRead)
		v.Release()
		return f
	}
	one, two := mustWindow(t, tab, pd, ib.MWType1), mustWindow(t, tab, pd, ib.MWType2)
	for _, w := range []*Window{one, two} {
		wantFault(t, "not bound", read(pd, 7, w.RKey(), 8, 8), ib.FaultUnknownKey)
		first := w.RKey()
		wantFault(t, "bind", tab.Bind(pd, 7, bindTo(w, r, 8, 16, ib.RemoteRead)), ib.FaultNone)
		wantFault(t, "use", read(pd, 7, w.RKey(), 8, 16), ib.FaultNone)
		v, f := tab.ResolveAll(pd, 7, w.RKey(), ib.RemoteRead)
		wantFault(t, "all of it", f, ib.FaultNone)
		if v.Len() != 16 || v.Addr() != r.Addr()+8 {
			t.Errorf("all of it is %d bytes at %#x", v.Len(), v.Addr())
		}
		v.Release()
		wantFault(t, "the key before", read(pd, 7, first, 8, 8), ib.FaultUnknownKey)
		wantFault(t, "before its first byte", read(pd, 7, w.RKey(), 7, 2), ib.FaultOutOfBounds)
		wantFault(t, "behind its last byte", read(pd, 7, w.RKey(), 8, 17), ib.FaultOutOfBounds)
		wantFault(t, "address and length wrap to inside", read(pd, 7, w.RKey(), 16, math.MaxUint64-7), ib.FaultOutOfBounds)
		wantFault(t, "another domain", read(other, 7, w.RKey(), 8, 8), ib.FaultWrongPD)
		wantFault(t, "local use", tab.Gather(pd, []ib.SGE{{Addr: r.Addr() + 8, Length: 8, LKey: w.RKey()}}, 0, make([]byte, 8)), ib.FaultUnknownKey)
		for low := range ib.Key(256) {
			if key := w.RKey()&^0xff | low; key != w.RKey() {
				wantFault(t, "another low byte", read(pd, 7, key, 8, 8), ib.FaultUnknownKey)
			}
		}
	}
	wantFault(t, "type 1, another queue pair", read(pd, 8, one.RKey(), 8, 8), ib.FaultNone)
	wantFault(t, "type 2, another queue pair", read(pd, 8, two.RKey(), 8, 8), ib.FaultNoAccess)
	wantFault(t, "type 2, bound already", tab.Bind(pd, 7, bindTo(two, r, 0, 8, ib.RemoteRead)), ib.FaultState)
	wantFault(t, "type 2, by another queue pair", tab.Bind(pd, 8, bindTo(two, r, 0, 8, ib.RemoteRead)), ib.FaultState)

	wantFault(t, "o10-37.2.26: type 1", tab.Invalidate(pd, 7, one.RKey()), ib.FaultNotInvalidatable)
	wantFault(t, "another queue pair", tab.Invalidate(pd, 8, two.RKey()), ib.FaultNoAccess)
	wantFault(t, "another domain", tab.Invalidate(other, 7, two.RKey()), ib.FaultWrongPD)
	wantFault(t, "another low byte", tab.Invalidate(pd, 7, two.RKey()^1), ib.FaultUnknownKey)
	// Linux panics at the second one (rxe_invalidate_mw).
	for i, want := range []ib.Fault{ib.FaultNone, ib.FaultUnknownKey, ib.FaultUnknownKey} {
		wantFault(t, "invalidate", tab.Invalidate(pd, 7, two.RKey()), want)
		if r.Bound() != 1 {
			t.Errorf("after %d: %d windows on the region", i+1, r.Bound())
		}
	}
	wantFault(t, "invalidated", read(pd, 7, two.RKey(), 8, 8), ib.FaultUnknownKey)
	wantFault(t, "bound by another queue pair now", tab.Bind(pd, 8, bindTo(two, r, 0, 8, ib.RemoteRead)), ib.FaultNone)
	wantFault(t, "use", read(pd, 8, two.RKey(), 0, 8), ib.FaultNone)
	wantFault(t, "the one before", read(pd, 7, two.RKey(), 0, 8), ib.FaultNoAccess)
}

// The keys of a window: its index never changes, and no other key has it; type
// 1 takes all 256 low bytes in turn.
func TestWindowKeys(t *testing.T) {
	t.Parallel()
	tab := newTable(1)
	pd := tab.AllocPD()
	r := mustRegister(t, tab, pd, Local(make([]byte, 64)), Options{Access: bindable})
	w := mustWindow(t, tab, pd, ib.MWType1)
	seen := map[ib.Key]bool{}
	for range 256 {
		wantFault(t, "bind", tab.Bind(pd, 7, bindTo(w, r, 0, 8, 0)), ib.FaultNone)
		seen[w.RKey()] = true
	}
	if len(seen) != 256 {
		t.Errorf("%d different keys in 256 binds", len(seen))
	}
	// The source yields keys of the window's index, then another.
	index := w.RKey() >> 8
	draws := []uint32{uint32(index<<8 | 1), uint32(index<<8 | 0xff), 0x12345678}
	tab.random = func() uint32 { k := draws[0]; draws = draws[1:]; return k }
	if key, ok := tab.draw(0); !ok || key != 0x12345678 {
		t.Errorf("drew %v for a region", key)
	}
	draws = []uint32{uint32(index<<8 | 1), uint32(r.LKey()&^0xff | 3), uint32(r.RKey()&^0xff | 4), 0x12, 0x12345678}
	if key, ok := tab.drawIndex(0); !ok || key != 0x12345678 {
		t.Errorf("drew %v for a window", key)
	}
	tab.FreeWindow(w)
	draws = []uint32{uint32(index<<8 | 1), 0x12345678}
	if key, ok := tab.drawIndex(0); !ok || key != 0x12345678 {
		t.Errorf("drew %v, the index of a window that was freed just now", key)
	}
}

func TestWindowLifetime(t *testing.T) {
	t.Parallel()
	tab := newTable(1)
	pd := tab.AllocPD()
	r := mustRegister(t, tab, pd, Local(make([]byte, 64)), Options{Access: bindable})
	w := mustWindow(t, tab, pd, ib.MWType2)
	wantFault(t, "bind", tab.Bind(pd, 7, bindTo(w, r, 0, 8, ib.RemoteRead)), ib.FaultNone)
	if err := tab.Deregister(r); !errors.Is(err, ErrRegionInUse) || !r.Alive() {
		t.Errorf("deregister a region with a window: %v", err)
	}
	if err := tab.DeallocPD(pd); !errors.Is(err, ErrPDInUse) {
		t.Errorf("free a domain with a window: %v", err)
	}
	key := w.RKey()
	newTable(2).FreeWindow(w)
	tab.FreeWindow(nil)
	if w.RKey() != key || !w.Grant().Alive() {
		t.Error("what is not a window of the table was freed")
	}
	for range 2 { // the second time nothing happens
		tab.FreeWindow(w)
		if tab.windows.count != 0 || pd.windows != 0 || w.RKey() != 0 || r.Bound() != 0 {
			t.Errorf("%d windows, %d of the domain, key %v", tab.windows.count, pd.windows, w.RKey())
		}
	}
	wantFault(t, "bind what was freed", tab.Bind(pd, 7, &ib.BindMW{Window: key, NewKey: key, Region: r.LKey(), Addr: r.Addr(), Length: 8}), ib.FaultUnknownKey)
	wantFault(t, "invalidate what was freed", tab.Invalidate(pd, 7, key), ib.FaultUnknownKey)
	mustDeregister(t, tab, r)
	if err := tab.DeallocPD(pd); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		pd   *PD
		typ  ib.MWType
		want error
	}{{nil, 1, ErrPD}, {pd, 1, ErrPD}, {tab.AllocPD(), 0, ErrMWType}, {tab.AllocPD(), 3, ErrMWType}, {newTable(3).AllocPD(), 1, ErrPD}} {
		if w, err := tab.AllocWindow(c.pd, c.typ); w != nil || !errors.Is(err, c.want) {
			t.Errorf("type %d: %v, want %v", c.typ, err, c.want)
		}
	}
	tab.windows.count = ib.MaxMW
	if _, err := tab.AllocWindow(tab.AllocPD(), 1); !errors.Is(err, ErrExhausted) {
		t.Errorf("one window too many: %v", err)
	}
}
