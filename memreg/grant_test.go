package memreg

import (
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
)

const bindable = ib.LocalWrite | ib.MWBind

func mustGrant(t testing.TB, tab *Table, r *Region, o GrantOptions) *Grant {
	t.Helper()
	g, err := tab.Grant(r, o)
	if err != nil {
		t.Fatalf("Grant: %v", err)
	}
	return g
}

// What the region must allow for a window (IBTA 10.6.7.2).
func TestGrantAsksTheRegion(t *testing.T) {
	t.Parallel()
	tab := newTable(1)
	pd := tab.AllocPD()
	const maxU = math.MaxUint64
	for _, c := range []struct {
		why    string
		region ib.Access
		o      GrantOptions
		want   error
	}{
		{"reading needs bind access only", ib.MWBind, GrantOptions{Length: 64, Access: ib.RemoteRead}, nil},
		{"C10-73: no bind access", ib.LocalWrite | ib.RemoteRead, GrantOptions{Length: 64, Access: ib.RemoteRead}, ErrAccess},
		{"C10-74: write without local write", ib.MWBind | ib.RemoteRead, GrantOptions{Length: 64, Access: ib.RemoteWrite}, ErrAccess},
		{"C10-74: atomic without local write", ib.MWBind, GrantOptions{Length: 64, Access: ib.RemoteAtomic}, ErrAccess},
		{"write that the rkey does not grant", bindable, GrantOptions{Length: 64, Access: ib.RemoteWrite | ib.RemoteAtomic}, nil},
		{"no right at all", bindable, GrantOptions{Length: 64}, nil},
		{"a hint", bindable, GrantOptions{Length: 64, Access: ib.RemoteRead | ib.RelaxedOrdering}, nil},
		{"flush", bindable | ib.FlushGlobal, GrantOptions{Length: 64, Access: ib.FlushGlobal}, nil},
		{"flush of memory that cannot", bindable | ib.FlushGlobal, GrantOptions{Length: 64, Access: ib.FlushPersistent}, ErrAccess},
		{"local write", bindable, GrantOptions{Length: 64, Access: ib.LocalWrite}, ErrAccess},
		{"bind access", bindable, GrantOptions{Length: 64, Access: ib.MWBind}, ErrAccess},
		{"unknown right", bindable, GrantOptions{Length: 64, Access: 1 << 31}, ErrAccess},
		{"o10-37.2.40: nothing", bindable, GrantOptions{Offset: 8}, ErrLength},
		{"the last byte", bindable, GrantOptions{Offset: 63, Length: 1}, nil},
		{"C10-75: one byte beyond", bindable, GrantOptions{Offset: 63, Length: 2}, ib.ErrRange},
		{"C10-75: behind", bindable, GrantOptions{Offset: 64, Length: 1}, ib.ErrRange},
		{"C10-75: end wraps to inside", bindable, GrantOptions{Offset: 8, Length: maxU}, ib.ErrRange},
		{"C10-75: longest", bindable, GrantOptions{Offset: maxU, Length: maxU}, ib.ErrRange},
		{"the highest queue pair", bindable, GrantOptions{Length: 64, QPN: 0xffffff}, nil},
		{"QPN of 25 bits", bindable, GrantOptions{Length: 64, QPN: 1 << 24}, ErrQPN},
	} {
		r := mustRegister(t, tab, pd, Local(make([]byte, 64)), Options{Access: c.region, Base: BaseZero})
		g, err := tab.Grant(r, c.o)
		if !errors.Is(err, c.want) || (g == nil) == (c.want == nil) {
			t.Errorf("%s: %v, want %v", c.why, err, c.want)
		}
		if g != nil {
			if g.Region() != r || g.Len() != c.o.Length || g.QPN() != c.o.QPN || g.Access() != c.o.Access&grantRights {
				t.Errorf("%s: a grant of %d bytes for %v to %v", c.why, g.Len(), g.Access(), g.QPN())
			}
			tab.Revoke(g)
		}
		mustDeregister(t, tab, r)
	}
	if tab.grants != 0 || tab.Regions() != 0 {
		t.Errorf("%d grants on %d regions are left", tab.grants, tab.Regions())
	}
}

func TestGrantAsksForARegionOfTheTable(t *testing.T) {
	t.Parallel()
	tab := newTable(1)
	r := mustRegister(t, tab, tab.AllocPD(), Local(make([]byte, 64)), Options{Access: bindable})
	o := GrantOptions{Length: 64}
	if _, err := tab.Grant(nil, o); !errors.Is(err, ErrRegion) {
		t.Errorf("no region: %v", err)
	}
	if _, err := newTable(2).Grant(r, o); !errors.Is(err, ErrRegion) {
		t.Errorf("another table's region: %v", err)
	}
	mustDeregister(t, tab, r)
	if _, err := tab.Grant(r, o); !errors.Is(err, ErrRegion) {
		t.Errorf("a deregistered region: %v", err)
	}
}

func TestNoMoreGrants(t *testing.T) {
	t.Parallel()
	keys := []uint32{1, 2}
	tab := NewTable(func() uint32 {
		k := keys[0]
		if len(keys) > 1 {
			keys = keys[1:]
		}
		return k
	})
	r := mustRegister(t, tab, tab.AllocPD(), Local(make([]byte, 64)), Options{Access: bindable})
	if _, err := tab.Grant(r, GrantOptions{Length: 1}); !errors.Is(err, ErrExhausted) {
		t.Errorf("random source that repeats itself: %v", err)
	}
	keys[0] = 3
	tab.grants = MaxGrants
	if _, err := tab.Grant(r, GrantOptions{Length: 1}); !errors.Is(err, ErrExhausted) {
		t.Errorf("with %d grants: %v", MaxGrants, err)
	}
	tab.grants = 0
	if r.Bound() != 0 || tab.keys.used != 2 {
		t.Error("a refused grant left something behind")
	}
	if err := tab.Deregister(r); err != nil {
		t.Errorf("after refused grants: %v", err)
	}
}

// A window is checked like a region, for its own part and rights (IBTA
// 9.7.4.1.5), and for the queue pair that it is bound to (IBTA 10.6.7.2).
func TestResolveOfGrants(t *testing.T) {
	t.Parallel()
	tab := newTable(1)
	pd, pd2 := tab.AllocPD(), tab.AllocPD()
	const base = 0x10000
	r := mustRegister(t, tab, pd, Local(make([]byte, 4096)), Options{Access: bindable | ib.RemoteRead, Base: BaseIOVA, IOVA: base})
	unbound := mustGrant(t, tab, r, GrantOptions{Offset: 1000, Length: 100, Access: ib.RemoteWrite})
	bound := mustGrant(t, tab, r, GrantOptions{Offset: 1000, Length: 100, Access: ib.RemoteWrite, QPN: 7})
	zero := mustGrant(t, tab, r, GrantOptions{Offset: 1000, Length: 100, Access: ib.RemoteWrite | ib.ZeroBased, QPN: 7})
	const at = base + 1000
	for _, c := range []struct {
		why          string
		pd           *PD
		qpn          rocev2.QPN
		g            *Grant
		addr, length uint64
		need         ib.Access
		want         ib.Fault
		explain      string
	}{
		{"whole", pd, 1, unbound, at, 100, ib.RemoteWrite, ib.FaultNone, "valid"},
		{"nothing at the end", pd, 1, unbound, at + 100, 0, ib.RemoteWrite, ib.FaultNone, "valid"},
		{"one byte below, in the region", pd, 1, unbound, at - 1, 2, ib.RemoteWrite, ib.FaultOutOfBounds, "not inside the grant's 100 bytes at 0x103e8"},
		{"one byte beyond, in the region", pd, 1, unbound, at + 1, 100, ib.RemoteWrite, ib.FaultOutOfBounds, "not inside the grant's"},
		{"longest", pd, 1, unbound, at, math.MaxUint64, ib.RemoteWrite, ib.FaultOutOfBounds, "not inside the grant's"},
		{"right of the region only", pd, 1, unbound, at, 1, ib.RemoteRead, ib.FaultNoAccess, "RemoteRead is not granted, the grant has RemoteWrite"},
		{"other domain", pd2, 1, unbound, at, 1, ib.RemoteWrite, ib.FaultWrongPD, "wrong protection domain"},
		{"local", pd, 1, unbound, at, 1, 0, ib.FaultNone, "is an rkey"},
		{"its queue pair", pd, 7, bound, at, 100, ib.RemoteWrite, ib.FaultNone, "valid"},
		{"another queue pair", pd, 8, bound, at, 100, ib.RemoteWrite, ib.FaultNoAccess, "bound to queue pair 0x7, the access is by 0x8"},
		{"queue pair 0", pd, 0, bound, at, 100, ib.RemoteWrite, ib.FaultNoAccess, "bound to queue pair 0x7"},
		{"its queue pair in another domain", pd2, 7, bound, at, 100, ib.RemoteWrite, ib.FaultWrongPD, "wrong protection domain"},
		{"another queue pair before bounds", pd, 8, bound, 0, 1, ib.RemoteWrite, ib.FaultNoAccess, "bound"},
		{"zero-based", pd, 7, zero, 99, 1, ib.RemoteWrite, ib.FaultNone, "valid"},
		{"zero-based, by the region's address", pd, 7, zero, at, 1, ib.RemoteWrite, ib.FaultOutOfBounds, "100 bytes at 0x0"},
		{"zero-based, below 0", pd, 7, zero, math.MaxUint64, 2, ib.RemoteWrite, ib.FaultOutOfBounds, "not inside"},
	} {
		v, f := tab.Resolve(c.pd, c.qpn, c.g.Key(), c.addr, c.length, c.need)
		wantFault(t, c.why, f, c.want)
		if s := tab.Explain(c.pd, c.qpn, c.g.Key(), c.addr, c.length, c.need); !strings.Contains(s, c.explain) {
			t.Errorf("%s: Explain says %q, want %q in it", c.why, s, c.explain)
		}
		if f != ib.FaultNone {
			continue
		}
		if v.Addr() != c.addr || v.Len() != c.length || v.Region() != r {
			t.Errorf("%s: view of %d bytes at %#x", c.why, v.Len(), v.Addr())
		}
		wantFault(t, c.why, v.CopyIn(0, make([]byte, c.length)), ib.FaultNone)
		v.Release()
	}
	_, f := tab.ResolveLocal(pd, ib.SGE{Addr: at, Length: 1, LKey: unbound.Key()}, 0)
	wantFault(t, "rkey of a grant as lkey", f, ib.FaultUnknownKey)
}

// A view of a grant reaches the bytes of its part and no other.
func TestGrantReachesItsPart(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"local", "foreign"} {
		tab := newTable(1)
		pd := tab.AllocPD()
		var m Memory = Local(make([]byte, 64))
		if kind == "foreign" {
			m = newForeign(64)
		}
		r := mustRegister(t, tab, pd, m, Options{Access: bindable, Base: BaseIOVA, IOVA: 4096})
		g := mustGrant(t, tab, r, GrantOptions{Offset: 16, Length: 16, Access: ib.RemoteWrite | ib.RemoteAtomic | ib.ZeroBased})
		v, f := tab.Resolve(pd, 1, g.Key(), 8, 8, ib.RemoteWrite)
		wantFault(t, kind+": resolve", f, ib.FaultNone)
		wantFault(t, kind+": copy", v.CopyIn(0, []byte("12345678")), ib.FaultNone)
		if b := v.Bytes(); kind == "local" && (string(b) != "12345678" || cap(b) != 8) {
			t.Errorf("the view's bytes are %q", b)
		}
		v.Release()
		got := make([]byte, 64)
		wantFault(t, kind+": read", r.CopyOut(got, 0), ib.FaultNone)
		if want := strings.Repeat("\x00", 24) + "12345678" + strings.Repeat("\x00", 32); string(got) != want {
			t.Errorf("%s: the region is %q", kind, got)
		}
	}
}

// The address that counts for an atomic is the peer's (IBTA 9.4.5.1).
func TestAtomicsOfZeroBasedGrants(t *testing.T) {
	t.Parallel()
	tab := newTable(1)
	pd := tab.AllocPD()
	r := mustRegister(t, tab, pd, Local(make([]byte, 64)), Options{Access: bindable, Base: BaseIOVA, IOVA: 4})
	g := mustGrant(t, tab, r, GrantOptions{Offset: 8, Length: 16, Access: ib.RemoteAtomic | ib.ZeroBased})
	v, f := tab.Resolve(pd, 1, g.Key(), 0, 16, ib.RemoteAtomic)
	wantFault(t, "resolve", f, ib.FaultNone)
	defer v.Release()
	_, f = v.FetchAdd64(8, 5)
	wantFault(t, "a multiple of 8 for the peer, not in the region", f, ib.FaultNone)
	_, f = v.FetchAdd64(4, 5)
	wantFault(t, "a multiple of 8 in the region, not for the peer", f, ib.FaultMisaligned)
	if _, f := r.Load64(16); f != ib.FaultMisaligned {
		t.Errorf("the word has address 20 in the region: %v", f)
	}
	if got, f := v.Load64(8); got != 5 || f != ib.FaultNone {
		t.Errorf("the word is %d, %v", got, f)
	}
}

// A region with windows cannot be deregistered (IBTA 10.6.7.2.6).
func TestDeregisterWithGrants(t *testing.T) {
	t.Parallel()
	tab := newTable(1)
	pd := tab.AllocPD()
	r := mustRegister(t, tab, pd, Local(make([]byte, 64)), Options{Access: bindable | ib.RemoteRead})
	a := mustGrant(t, tab, r, GrantOptions{Length: 8, Access: ib.RemoteRead})
	b := mustGrant(t, tab, r, GrantOptions{Length: 8, Access: ib.RemoteRead, Invalidatable: true})
	usable := func(why string) {
		t.Helper()
		v, f := tab.Resolve(pd, 1, r.RKey(), r.Addr(), 8, ib.RemoteRead)
		wantFault(t, why, f, ib.FaultNone)
		v.Release()
	}
	if err := tab.Deregister(r); !errors.Is(err, ErrRegionInUse) || !strings.Contains(err.Error(), "2") {
		t.Errorf("with two grants: %v", err)
	}
	usable("the region stays as it is")
	tab.Revoke(a)
	wantFault(t, "invalidate the other", tab.Invalidate(pd, 1, b.Key()), ib.FaultNone)
	if err := tab.Deregister(r); !errors.Is(err, ErrRegionInUse) {
		t.Errorf("with a grant that was invalidated: %v", err)
	}
	tab.Revoke(b)
	usable("without grants")
	mustDeregister(t, tab, r)
	if r.Alive() || tab.Regions() != 0 {
		t.Error("the region is still there")
	}
}

func TestRevoke(t *testing.T) {
	t.Parallel()
	tab := newTable(1)
	pd := tab.AllocPD()
	r := mustRegister(t, tab, pd, Local(make([]byte, 64)), Options{Access: bindable | ib.RemoteRead})
	g := mustGrant(t, tab, r, GrantOptions{Length: 8, Access: ib.RemoteRead})
	other := mustGrant(t, tab, r, GrantOptions{Length: 8, Access: ib.RemoteRead})
	newTable(2).Revoke(g)
	tab.Revoke(nil)
	tab.Revoke(&r.remote)
	tab.Revoke(&r.local)
	if !g.Alive() || !r.Alive() || r.Invalidated() || tab.grants != 2 {
		t.Error("what is not a grant of the table was revoked")
	}
	v, f := tab.Resolve(pd, 1, g.Key(), g.Addr(), 8, ib.RemoteRead)
	wantFault(t, "resolve", f, ib.FaultNone)
	v.Release()
	for range 2 { // the second time nothing happens
		tab.Revoke(g)
		if g.Alive() || !other.Alive() || tab.grants != 1 || r.Bound() != 1 {
			t.Errorf("%d grants are left", tab.grants)
		}
	}
	_, f = tab.Resolve(pd, 1, g.Key(), g.Addr(), 8, ib.RemoteRead)
	wantFault(t, "revoked", f, ib.FaultUnknownKey)
	_, f = g.view(pd, 1, g.Addr(), 8, ib.RemoteRead)
	wantFault(t, "looked up before, used after", f, ib.FaultUnknownKey)
	_, f = g.view(pd, 1, g.Addr(), 9, ib.RemoteRead)
	wantFault(t, "the same, out of bounds", f, ib.FaultUnknownKey)
	wantFault(t, "invalidate", tab.Invalidate(pd, 1, g.Key()), ib.FaultUnknownKey)
	if v.Acquire() {
		t.Error("a view of a revoked grant was pinned again")
	}
	if s := tab.Explain(pd, 1, g.Key(), g.Addr(), 8, ib.RemoteRead); !strings.Contains(s, "revoked") {
		t.Errorf("Explain says %q", s)
	}
	if !tab.keys.quarantined(g.Key()) {
		t.Error("the key is not in quarantine")
	}
}

// Revoke waits for the views of its grant and for no others.
func TestRevokeWaitsForItsViews(t *testing.T) {
	t.Parallel()
	tab := newTable(1)
	pd := tab.AllocPD()
	r := mustRegister(t, tab, pd, Local(make([]byte, 64)), Options{Access: bindable | ib.RemoteRead})
	g := mustGrant(t, tab, r, GrantOptions{Length: 8, Access: ib.RemoteRead})
	busy, f := tab.Resolve(pd, 1, r.RKey(), r.Addr(), 8, ib.RemoteRead)
	wantFault(t, "resolve by the rkey", f, ib.FaultNone)
	v, f := tab.Resolve(pd, 1, g.Key(), g.Addr(), 8, ib.RemoteRead)
	wantFault(t, "resolve by the grant", f, ib.FaultNone)
	done := make(chan struct{})
	go func() {
		tab.Revoke(g)
		close(done)
	}()
	for g.Alive() {
		runtime.Gosched()
	}
	_, f = tab.Resolve(pd, 1, g.Key(), g.Addr(), 8, ib.RemoteRead)
	wantFault(t, "a grant that waits for its views", f, ib.FaultUnknownKey)
	select {
	case <-done:
		t.Fatal("Revoke returned while a view was pinned")
	default:
	}
	v.Release()
	<-done
	busy.Release()
}

// A window of type 2 can be invalidated, by its own queue pair; one of type 1
// cannot (IBTA o10-37.2.26).
func TestInvalidateGrants(t *testing.T) {
	t.Parallel()
	tab := newTable(1)
	pd, other := tab.AllocPD(), tab.AllocPD()
	r := mustRegister(t, tab, pd, Local(make([]byte, 64)), Options{Access: bindable | ib.RemoteRead})
	type1 := mustGrant(t, tab, r, GrantOptions{Length: 8, Access: ib.RemoteRead})
	type2 := mustGrant(t, tab, r, GrantOptions{Length: 8, Access: ib.RemoteRead, QPN: 7, Invalidatable: true})
	wantFault(t, "o10-37.2.26: a window of type 1", tab.Invalidate(pd, 7, type1.Key()), ib.FaultNotInvalidatable)
	wantFault(t, "another domain", tab.Invalidate(other, 7, type2.Key()), ib.FaultWrongPD)
	wantFault(t, "another queue pair", tab.Invalidate(pd, 8, type2.Key()), ib.FaultNoAccess)
	if !type2.Alive() {
		t.Error("a refused invalidation ended the grant")
	}
	wantFault(t, "its queue pair", tab.Invalidate(pd, 7, type2.Key()), ib.FaultNone)
	wantFault(t, "the second time", tab.Invalidate(pd, 7, type2.Key()), ib.FaultUnknownKey)
	_, f := tab.Resolve(pd, 7, type2.Key(), type2.Addr(), 8, ib.RemoteRead)
	wantFault(t, "resolve", f, ib.FaultUnknownKey)
	if type2.Alive() || !type1.Alive() || !r.Alive() || r.Invalidated() {
		t.Error("more or less than the grant ended")
	}
	if s := tab.Explain(pd, 7, type2.Key(), type2.Addr(), 8, ib.RemoteRead); !strings.Contains(s, "invalidated") {
		t.Errorf("Explain says %q", s)
	}
	tab.Revoke(type2)
	if tab.grants != 1 || !tab.keys.quarantined(type2.Key()) {
		t.Error("an invalidated grant was not revoked")
	}
}

// Windows that come and go use up keys, and none comes back soon.
func TestRevokedKeysAreNotReusedSoon(t *testing.T) {
	t.Parallel()
	next := uint32(10)
	odd := true
	tab := NewTable(func() uint32 { // every other number is the first grant's key
		if odd = !odd; odd {
			return 1
		}
		next++
		return next
	})
	r := mustRegister(t, tab, tab.AllocPD(), Local(make([]byte, 64)), Options{Access: bindable})
	tab.Deregister(r)
	r = mustRegister(t, tab, tab.AllocPD(), Local(make([]byte, 64)), Options{Access: bindable})
	killed := 0
	for ; killed < 10*quarantineKeys; killed++ {
		g := mustGrant(t, tab, r, GrantOptions{Length: 1})
		tab.Revoke(g)
		if g.Key() == 1 && killed > 1 {
			break
		}
	}
	if killed < quarantineKeys-2 || killed > quarantineKeys {
		t.Errorf("a key came back after %d others, want %d", killed, quarantineKeys)
	}
	if len(*tab.keys.buckets.Load()) > quarantineKeys {
		t.Errorf("%d buckets for one region", len(*tab.keys.buckets.Load()))
	}
}
