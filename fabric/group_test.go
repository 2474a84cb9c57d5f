package fabric

import (
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/transport"
)

// What is sent to a group comes to every port that has joined it, the sender's
// own included, and to no other.
func TestGroups(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ group, other, addrs string }{
		"IPv4": {"239.1.2.3", "239.1.2.4", "10.0.0."},
		"IPv6": {"ff0e::1:2", "ff0e::1:3", "fd00::"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				sw := NewSwitch(Config{Port: PortConfig{Delay: time.Millisecond}})
				defer sw.Close()
				var ports []*Port
				for _, n := range []string{"1", "2", "3"} {
					p, err := sw.Attach(netip.MustParseAddr(c.addrs + n))
					if err != nil {
						t.Fatal(err)
					}
					ports = append(ports, p)
				}
				group, other := netip.MustParseAddr(c.group), netip.MustParseAddr(c.other)
				counts := func(want ...int) {
					t.Helper()
					send(t, ports[0], transport.Path{Dst: group, HopLimit: 9}, 0, 3, 100)
					time.Sleep(2 * time.Millisecond)
					for i, p := range ports {
						got := drain(t, p, start)
						if len(got) != want[i] {
							t.Errorf("port %d has %d packets, want %d", i, len(got), want[i])
						}
						for _, a := range got {
							if a.Dst != group || a.Src != ports[0].Addr() || a.ICRC != transport.ICRCVerified || a.HopLimit != 9 {
								t.Errorf("port %d: %+v", i, a.RxPacket)
							}
						}
					}
				}
				counts(0, 0, 0)
				if st := sw.Stats(); st.UnknownAddr != 3 || st.Forwarded != 0 {
					t.Errorf("%+v", st)
				}
				for _, p := range ports[:2] {
					if err := transport.JoinGroup(p, group); err != nil {
						t.Fatal(err)
					}
				}
				if err := transport.JoinGroup(ports[2], other); err != nil {
					t.Fatal(err)
				}
				counts(3, 3, 0)
				// What is queued when a port leaves is lost;
				// the others have theirs.
				send(t, ports[0], transport.Path{Dst: group}, 0, 1, 100)
				time.Sleep(2 * time.Millisecond)
				if err := ports[0].LeaveGroup(group); err != nil {
					t.Fatal(err)
				}
				if n := len(drain(t, ports[0], start)); n != 0 {
					t.Errorf("%d packets after leaving", n)
				}
				if n := len(drain(t, ports[1], start)); n != 1 {
					t.Errorf("the port that stays has %d packets", n)
				}
				counts(0, 3, 0)
				ports[1].Close()
				if len(sw.groups) != 1 {
					t.Errorf("the switch still has %v", sw.groups)
				}
			})
		})
	}
}

// TestGroupErrors: what is not a group, or not joined, is refused by name.
func TestGroupErrors(t *testing.T) {
	t.Parallel()
	a, b := Pair(addrA, addrB)
	defer b.Close()
	group := netip.MustParseAddr("239.1.2.3")
	for _, bad := range []string{"10.0.0.2", "ff0e::1", "255.255.255.255", "::"} {
		if err := transport.JoinGroup(a, netip.MustParseAddr(bad)); !errors.Is(err, transport.ErrNotGroup) {
			t.Errorf("join %s: %v", bad, err)
		}
	}
	if err := transport.JoinGroup(a, netip.Addr{}); !errors.Is(err, transport.ErrNotGroup) {
		t.Errorf("join no address: %v", err)
	}
	if err := transport.LeaveGroup(a, group); !errors.Is(err, transport.ErrGroupNotJoined) {
		t.Errorf("leave: %v", err)
	}
	if err := transport.JoinGroup(a, netip.MustParseAddr("::ffff:239.1.2.3")); err != nil {
		t.Error(err)
	}
	if err := transport.JoinGroup(a, group); !errors.Is(err, transport.ErrGroupJoined) {
		t.Errorf("join again: %v", err)
	}
	a.Close()
	if err := transport.JoinGroup(a, group); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("join after close: %v", err)
	}
}
