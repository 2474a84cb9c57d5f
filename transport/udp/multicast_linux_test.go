package udp

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

func join(t testing.TB, group netip.Addr, links ...*Link) {
	t.Helper()
	for _, l := range links {
		if err := transport.JoinGroup(l, group); err != nil {
			t.Fatal(err)
		}
	}
}

// send sends packets 0..n-1 with 1024 bytes each as one batch.
func send(t testing.TB, l *Link, p transport.Path, n int) {
	t.Helper()
	path := transport.NewPath(l.Addr(), p)
	tx := transport.NewTxBatch(1 << 18)
	for i := range n {
		put(t, tx, path, packet(i, 1024))
	}
	if err := l.Send(tx); err != nil {
		t.Fatal(err)
	}
}

// nothing checks that nothing has come to l. What was sent to others of this
// host before has been delivered when Send returns.
func nothing(t testing.TB, l *Link) {
	t.Helper()
	b := transport.NewRxBatch(8)
	for range 2 { // groups and the link's own socket take turns
		if n, err := l.Recv(b); n != 0 || err != nil {
			t.Errorf("%v has %d packets: %v", l.Addr(), n, err)
		}
	}
}

// testGroup: members has two links and outside one that is in another group.
// All are of one interface.
func testGroup(t *testing.T, group, other netip.Addr, members []*Link, outside *Link) {
	t.Helper()
	join(t, group, members...)
	join(t, other, outside)
	for _, c := range []struct {
		path transport.Path
		hops uint8
	}{
		{transport.Path{Dst: group}, 64},
		{transport.Path{Dst: group, HopLimit: 7, TrafficClass: 0x6a}, 7},
		{transport.Path{Dst: group, HopLimit: 1, SrcPort: 61600 + port()%1000}, 1},
	} {
		from := members[0]
		if !from.Capabilities().SourcePorts {
			c.path.SrcPort = 0
		}
		c.path.DstPort = members[0].Capabilities().Port
		send(t, from, c.path, 5)
		sport := c.path.SrcPort
		if sport == 0 {
			sport = c.path.DstPort
		}
		for _, l := range members { // the sender is one of them
			for i, p := range receive(t, l, 5) {
				if !bytes.HasPrefix(p.Data, packet(i, 1024)) || p.ICRC != transport.ICRCVerified {
					t.Errorf("%v: packet %d: ICRC %v", l.Addr(), i, p.ICRC)
				}
				if p.Dst != group || p.Src != from.Addr().WithZone("") || p.SrcPort != sport || p.HopLimit != c.hops || p.TrafficClass != c.path.TrafficClass {
					t.Errorf("%v: packet %d: from %v:%d to %v, hop limit %d, class %#x", l.Addr(), i, p.Src, p.SrcPort, p.Dst, p.HopLimit, p.TrafficClass)
				}
			}
		}
		nothing(t, outside)
	}
	// A link that is not a member can send, and hears nothing.
	send(t, outside, transport.Path{Dst: group, DstPort: members[0].Capabilities().Port}, 1)
	for _, l := range members {
		receive(t, l, 1)
	}
	nothing(t, outside)
	if err := members[0].LeaveGroup(group); err != nil {
		t.Fatal(err)
	}
	send(t, members[0], transport.Path{Dst: group, DstPort: members[0].Capabilities().Port}, 2)
	receive(t, members[1], 2)
	nothing(t, members[0])
	join(t, group, members[0]) // again
	send(t, members[1], transport.Path{Dst: group, DstPort: members[0].Capabilities().Port}, 2)
	receive(t, members[0], 2)
}

// TestMulticast: IPv4 on lo, as any user can.
func TestMulticast(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]Config{"offload": {}, "plain": {DisableGSO: true, DisableGRO: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.Port = port() // not to hear other tests
			links := []*Link{open(t, loopback(), c), open(t, loopback(), c), open(t, loopback(), c)}
			testGroup(t, mustAddr("239.255.47.91"), mustAddr("239.255.47.92"), links[:2], links[2])
		})
	}
}

// plainMember is a socket of a program that knows nothing of RoCE, in a group
// on lo.
func plainMember(t *testing.T, at netip.AddrPort) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	here := &unix.IPMreqn{Multiaddr: at.Addr().As4(), Ifindex: int32(lo.Index)}
	for _, err := range []error{
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		unix.Bind(fd, &unix.SockaddrInet4{Addr: at.Addr().As4(), Port: int(at.Port())}),
		unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP, here),
		unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_IF, here),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return fd
}

// TestMulticastForeign: another program in the group has the datagrams with
// their ICRC right, and what it sends with an Identification of its own is
// checked in 16 bits.
func TestMulticastForeign(t *testing.T) {
	t.Parallel()
	at := netip.AddrPortFrom(mustAddr("239.255.47.93"), port())
	l := open(t, loopback(), Config{Port: at.Port()})
	join(t, at.Addr(), l)
	fd := plainMember(t, at)
	send(t, l, transport.Path{Dst: at.Addr()}, 3)
	receive(t, l, 3)
	flow := rocev2.NewFlow(l.Addr(), at.Addr(), at.Port(), at.Port())
	b := make([]byte, 2048)
	for i := range 3 {
		n, from, err := unix.Recvfrom(fd, b, 0)
		if err != nil {
			t.Fatal(err)
		}
		// Without receive offload the kernel splits a run; segment i
		// of it has Identification i.
		id := 0
		if l.Capabilities().SegmentOffload {
			id = i
		}
		if !flow.Verify(uint16(id), b[:n]) || from.(*unix.SockaddrInet4).Addr != l.Addr().As4() {
			t.Errorf("datagram %d from %v: ICRC wrong", i, from)
		}
	}
	src := netip.AddrPortFrom(loopback(), at.Port())
	flow = rocev2.NewFlow(src.Addr(), at.Addr(), src.Port(), at.Port())
	say := foreign(t, src, at, true, [3]int{unix.IPPROTO_IP, unix.IP_MULTICAST_TTL, 5})
	say(flow.Seal(0x1234, packet(1, 256)))
	if p := receive(t, l, 1)[0]; p.ICRC != transport.ICRCWeak || p.IPID != 0x1234 || p.Dst != at.Addr() || p.HopLimit != 5 {
		t.Errorf("ICRC %v, Identification %#x, to %v, hop limit %d", p.ICRC, p.IPID, p.Dst, p.HopLimit)
	}
	bad := flow.Seal(0x1234, packet(2, 256))
	bad[20] ^= 0x10
	say(bad)
	if p := receive(t, l, 1)[0]; p.ICRC != transport.ICRCBad {
		t.Errorf("damaged: ICRC %v", p.ICRC)
	}
}

// TestGroupErrors: what cannot be joined or left is refused by name.
func TestGroupErrors(t *testing.T) {
	t.Parallel()
	l := open(t, loopback(), Config{})
	group := mustAddr("239.255.47.94")
	for _, bad := range []string{"127.0.0.1", "255.255.255.255", "ff0e::1", "::"} {
		if err := l.JoinGroup(mustAddr(bad)); !errors.Is(err, transport.ErrNotGroup) {
			t.Errorf("join %s: %v", bad, err)
		}
		if err := l.LeaveGroup(mustAddr(bad)); !errors.Is(err, transport.ErrNotGroup) {
			t.Errorf("leave %s: %v", bad, err)
		}
	}
	if err := l.LeaveGroup(group); !errors.Is(err, transport.ErrGroupNotJoined) {
		t.Errorf("leave: %v", err)
	}
	join(t, mustAddr("::ffff:239.255.47.94"), l)
	if err := l.JoinGroup(group); !errors.Is(err, transport.ErrGroupJoined) {
		t.Errorf("join again: %v", err)
	}
	six := open(t, netip.IPv6Loopback(), Config{Port: port()})
	if err := six.JoinGroup(mustAddr("ff0e::1")); !errors.Is(err, errLoopback6) || !strings.Contains(err.Error(), "local are ") {
		t.Errorf("IPv6 on lo: %v", err)
	}
	l.Close()
	if err := l.JoinGroup(group); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("join after Close: %v", err)
	}
	if err := l.LeaveGroup(group); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("leave after Close: %v", err)
	}
}

// TestManyGroups: a link joins MaxGroups, each of which works, and not one
// more.
func TestManyGroups(t *testing.T) {
	t.Parallel()
	c := Config{Port: port()}
	l, from := open(t, loopback(), c), open(t, loopback(), c)
	group := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{239, 254, byte(i >> 8), byte(i)}) }
	for i := range MaxGroups {
		if err := l.JoinGroup(group(i)); errors.Is(err, unix.EMFILE) {
			t.Skipf("this process may not have so many open files (raise it with ulimit -n): %v", err)
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if err := l.JoinGroup(group(MaxGroups)); !errors.Is(err, transport.ErrManyGroups) || !strings.Contains(err.Error(), "1024") {
		t.Errorf("one more: %v", err)
	}
	const sent = 200 // more than one Recv takes
	for i := range sent {
		send(t, from, transport.Path{Dst: group(i * 5)}, 1)
	}
	seen := map[netip.Addr]int{}
	for _, p := range receive(t, l, sent) {
		if p.ICRC != transport.ICRCVerified {
			t.Errorf("to %v: ICRC %v", p.Dst, p.ICRC)
		}
		seen[p.Dst]++
	}
	if len(seen) != sent {
		t.Errorf("packets for %d groups, want %d", len(seen), sent)
	}
	if err := l.LeaveGroup(group(7)); err != nil {
		t.Fatal(err)
	}
	join(t, group(MaxGroups), l)
}

// TestGroupWakes: a Wait that blocks already hears a group that is joined
// later, and Close ends it.
func TestGroupWakes(t *testing.T) {
	t.Parallel()
	c := Config{Port: port()}
	l, from := open(t, loopback(), c), open(t, loopback(), c)
	group := mustAddr("239.255.47.96")
	got, ended := make(chan transport.RxPacket), make(chan error)
	go func() {
		b := transport.NewRxBatch(4)
		for {
			if err := l.Wait(); err != nil {
				ended <- err
				return
			}
			if n, _ := l.Recv(b); n > 0 {
				got <- b.Packets()[0]
			}
		}
	}()
	join(t, group, l)
	for range 3 {
		send(t, from, transport.Path{Dst: group}, 1)
		if p := <-got; p.Dst != group {
			t.Errorf("to %v", p.Dst)
		}
	}
	l.Close()
	if err := <-ended; !errors.Is(err, transport.ErrClosed) {
		t.Error(err)
	}
}

// TestGroupStorm: groups come and go, and links close, while packets come.
func TestGroupStorm(t *testing.T) {
	t.Parallel()
	c := Config{Port: port()}
	from := open(t, loopback(), c)
	groups := []netip.Addr{mustAddr("239.255.48.1"), mustAddr("239.255.48.2"), mustAddr("239.255.48.3")}
	for range 5 {
		l := open(t, loopback(), c)
		var wg sync.WaitGroup
		stop := make(chan struct{})
		wg.Go(func() {
			b := transport.NewRxBatch(4)
			for l.Wait() == nil {
				if _, err := l.Recv(b); err != nil && !errors.Is(err, transport.ErrClosed) {
					t.Error(err)
				}
				for _, p := range b.Packets() {
					if p.ICRC != transport.ICRCVerified {
						t.Errorf("to %v: ICRC %v", p.Dst, p.ICRC)
					}
				}
			}
		})
		for i := range 2 {
			wg.Go(func() {
				for k := i; ; k++ {
					select {
					case <-stop:
						return
					default:
					}
					err := l.JoinGroup(groups[k%3])
					if err == nil {
						err = l.LeaveGroup(groups[k%3])
					}
					if err != nil && !errors.Is(err, transport.ErrGroupJoined) && !errors.Is(err, transport.ErrGroupNotJoined) && !errors.Is(err, transport.ErrClosed) {
						t.Error(err)
						return
					}
					l.Stats()
				}
			})
		}
		for k := range 100 {
			send(t, from, transport.Path{Dst: groups[k%3]}, 1)
			send(t, from, transport.Path{Dst: l.Addr()}, 1)
		}
		l.Close()
		close(stop)
		wg.Wait()
	}
}

// A link that has joined a group allocates nothing for its packets.
func TestGroupNoAllocations(t *testing.T) {
	c := Config{Port: port()}
	l := open(t, loopback(), c)
	group := mustAddr("239.255.47.97")
	join(t, group, l)
	path := transport.NewPath(l.Addr(), transport.Path{Dst: group})
	tx, rx := transport.NewTxBatch(1<<18), transport.NewRxBatch(8)
	put(t, tx, path, packet(1, 1024))
	round := func() {
		if err := l.Send(tx); err != nil {
			t.Fatal(err)
		}
		for got := 0; got < 1; {
			if err := l.Wait(); err != nil {
				t.Fatal(err)
			}
			n, err := l.Recv(rx)
			if err != nil {
				t.Fatal(err)
			}
			got += n
		}
	}
	round()
	if n := testing.AllocsPerRun(100, round); n != 0 {
		t.Errorf("%v allocations for a packet", n)
	}
}
