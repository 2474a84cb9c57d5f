package devices

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// Of several addresses the error is the one that tells most: that nothing
// listens, or else the first. An address that this host cannot reach at all,
// such as ::1 without IPv6, keeps no dial from waiting for a server.
func TestDial(t *testing.T) {
	t.Parallel()
	one, two := netip.MustParseAddrPort("127.0.0.1:1"), netip.MustParseAddrPort("[::1]:1")
	both := []netip.AddrPort{one, two}
	refused, no, never := fmt.Errorf("refused: %w", syscall.ECONNREFUSED), errors.New("no such address"), errors.New("no")
	for _, c := range []struct {
		name   string
		errs   map[netip.AddrPort]error
		remote netip.AddrPort
		err    error
	}{
		{"the first", map[netip.AddrPort]error{two: no}, one, nil},
		{"the second", map[netip.AddrPort]error{one: refused}, two, nil},
		{"refused, no IPv6", map[netip.AddrPort]error{one: refused, two: no}, one, refused},
		{"no IPv4, refused", map[netip.AddrPort]error{one: no, two: refused}, two, refused},
		{"neither", map[netip.AddrPort]error{one: no, two: never}, one, no},
	} {
		_, remote, err := Dial(t.Context(), false, both, func(a netip.AddrPort) (int, error) { return 0, c.errs[a] })
		if remote != c.remote || err != c.err {
			t.Errorf("%s: %v, %v", c.name, remote, err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		_, remote, err := Dial(t.Context(), true, both, func(a netip.AddrPort) (int, error) {
			switch {
			case a == two:
				return 0, no
			case time.Since(begin) < 3*time.Second:
				return 0, refused
			}
			return 0, nil
		})
		if remote != one || err != nil || time.Since(begin) < 3*time.Second {
			t.Errorf("%v, %v after %v", remote, err, time.Since(begin))
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	var asked []netip.AddrPort
	_, remote, err := Dial(ctx, true, both, func(a netip.AddrPort) (int, error) {
		asked = append(asked, a)
		cancel()
		return 0, refused
	})
	if remote != one || !errors.Is(err, context.Canceled) || !slices.Equal(asked, both[:1]) {
		t.Errorf("%v, %v; asked %v", remote, err, asked)
	}
}
