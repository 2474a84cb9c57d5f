package devices

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func addrs(list ...string) (as []netip.Addr) {
	for _, s := range list {
		as = append(as, netip.MustParseAddr(s))
	}
	return as
}

// places are what a program may listen on.
func TestPlace(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "192.0.2.1")
	m.table.host.addrs = func() []netip.Addr { return addrs("127.0.0.1", "192.0.2.1", "::1", "2001:db8::1") }
	all, v4, v6 := netip.Addr.IsValid, netip.Addr.Is4, netip.Addr.Is6
	for _, tt := range []struct {
		address string
		fits    Fits
		want    []netip.Addr
		any     string
	}{
		{":7471", all, m.table.host.addrs(), "::"},
		{"[::]:7471", all, m.table.host.addrs(), "::"},
		{"0.0.0.0:7471", all, addrs("127.0.0.1", "192.0.2.1"), "0.0.0.0"},
		{":7471", v4, addrs("127.0.0.1", "192.0.2.1"), "0.0.0.0"},
		{"[::]:7471", v6, addrs("::1", "2001:db8::1"), "::"},
		{"127.0.0.1:7471", all, addrs("127.0.0.1"), ""},
		{"[::ffff:127.0.0.1]:7471", v4, addrs("127.0.0.1"), ""},
		{"localhost:7471", v4, addrs("127.0.0.1"), ""},
	} {
		p, err := m.table.place(t.Context(), tt.fits, tt.address)
		if err != nil || p.Port != 7471 || !slices.Equal(p.Addrs, tt.want) {
			t.Errorf("%s: %+v, %v", tt.address, p, err)
		}
		if (tt.any != "") != p.Any.IsValid() || tt.any != "" && p.Any.String() != tt.any {
			t.Errorf("%s stands for %v", tt.address, p.Any)
		}
	}
	for address, want := range map[string]string{
		"127.0.0.1": "missing port in address: write HOST:PORT", "127.0.0.1:nosuch": "nosuch", "no.such.host.invalid:1": "neither an address nor an interface",
		"[2001:db8::1]:1": "no address that fits", "127.0.0.1:65536": "65536",
	} {
		if _, err := m.table.place(t.Context(), v4, address); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestRemotes(t *testing.T) {
	t.Parallel()
	for address, want := range map[string][]netip.Addr{
		":7471": addrs("127.0.0.1", "::1"), "[::]:7471": addrs("127.0.0.1", "::1"), "0.0.0.0:7471": addrs("127.0.0.1", "::1"),
		"192.0.2.1:7471": addrs("192.0.2.1"),
	} {
		all, err := Remotes(t.Context(), netip.Addr.IsValid, address)
		var got []netip.Addr
		for _, ap := range all {
			got = append(got, ap.Addr())
		}
		if err != nil || !slices.Equal(got, want) || all[0].Port() != 7471 {
			t.Errorf("%s: %v, %v", address, all, err)
		}
	}
	if all, err := Remotes(t.Context(), netip.Addr.Is4, "localhost:7471"); err != nil || !all[0].Addr().IsLoopback() {
		t.Errorf("localhost: %v, %v", all, err)
	}
	for _, address := range []string{"192.0.2.1", "[2001:db8::1]:7471", "no.such.host.invalid:1"} {
		if all, err := Remotes(t.Context(), netip.Addr.Is4, address); err == nil {
			t.Errorf("%s: %v", address, all)
		}
	}
}

// Addresses that another process has are left out, unless it has all.
func TestOpenAll(t *testing.T) {
	t.Parallel()
	list := addrs("127.0.0.1", "192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4", "192.0.2.5")
	m := newMachine(t, "192.0.2.1", "127.0.0.1", "192.0.2.2")
	refs, err := m.table.openAll(&Place{Addrs: list})
	if err != nil {
		t.Fatal(err)
	}
	var got []netip.Addr
	for _, r := range refs {
		got = append(got, r.Device().Addr())
		defer r.Release()
	}
	if want := addrs("192.0.2.1", "192.0.2.3", "192.0.2.4", "192.0.2.5"); !slices.Equal(got, want) {
		t.Errorf("devices on %v", got)
	}
	for _, a := range list {
		m.taken[a] = true
	}
	m = newMachine(t, "192.0.2.1", "127.0.0.1", "192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4", "192.0.2.5")
	_, err = m.table.openAll(&Place{Addrs: list})
	if !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), "none of 6 addresses can be had: ") || !strings.Contains(err.Error(), "and 2 more") {
		t.Errorf("all are taken: %v", err)
	}
	_, err = m.table.openAll(&Place{Addrs: list[:1]})
	if !errors.Is(err, syscall.EADDRINUSE) || strings.Contains(err.Error(), "none of") {
		t.Errorf("the one is taken: %v", err)
	}
}

// What is advised for all of them is said once.
func TestMissingAdvisesOnce(t *testing.T) {
	t.Parallel()
	m := missing{errors.New("a: taken; stop it; or not"), errors.New("b: taken; stop it; or not"), errors.New("c: gone; look"), errors.New("d: odd")}
	if got, want := m.Error(), "none of 4 addresses can be had: a: taken; b: taken; stop it; or not; c: gone; look; d: odd"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// Of the addresses of a name the one where a server is missing decides: it may
// come, whatever is wrong with the others.
func TestDialWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v4, v6 := netip.MustParseAddrPort("127.0.0.1:7471"), netip.MustParseAddrPort("[::1]:7471")
		start := time.Now()
		dial := func(at netip.AddrPort) (string, error) {
			switch {
			case at == v6:
				return "", syscall.EADDRINUSE // another client of the host has it
			case time.Since(start) < time.Minute:
				return "", syscall.ECONNREFUSED
			}
			return "connection", nil
		}
		both := []netip.AddrPort{v4, v6}
		if _, at, err := Dial(t.Context(), false, both, dial); err != syscall.ECONNREFUSED || at != v4 {
			t.Errorf("without waiting: %v, %v", at, err)
		}
		if c, at, err := Dial(t.Context(), true, both, dial); c != "connection" || at != v4 || err != nil {
			t.Errorf("%q to %v, %v", c, at, err)
		}
		if _, at, err := Dial(t.Context(), true, both[1:], dial); err != syscall.EADDRINUSE || at != v6 {
			t.Errorf("nothing to wait for: %v, %v", at, err)
		}
	})
}

// Await calls again what is not there, and nothing else.
func TestAwait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		other := errors.New("other")
		err := Await(t.Context(), nil, func() error {
			if calls++; calls < 10 {
				return syscall.ECONNREFUSED
			}
			return other
		})
		if calls != 10 || err != other {
			t.Errorf("%d calls, %v", calls, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		start := time.Now()
		err = Await(ctx, nil, func() error { return syscall.ECONNREFUSED })
		if took := time.Since(start); took != 10*time.Second || !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("after %v: %v", took, err)
		}
	})
}
