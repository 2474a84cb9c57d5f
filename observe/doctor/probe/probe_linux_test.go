package probe

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/internal/testnet"
)

// patience bounds the wait for what surely comes; brief, for what never does.
const (
	patience = 30 * time.Second
	brief    = 50 * time.Millisecond
)

func probeOf(t *testing.T, to string) *Prober {
	t.Helper()
	p, err := Open(netip.Addr{}, netip.MustParseAddrPort(to))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func ask(t *testing.T, p *Prober, hops, size int, timeout time.Duration) Answer {
	t.Helper()
	a, err := p.Probe(t.Context(), hops, size, timeout)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestRefusedAndSilent(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"127.0.0.1:0", "[::1]:0"} {
		c, err := net.ListenPacket("udp", at)
		if err != nil {
			t.Logf("%s: %v", at, err) // IPv6 may be off
			continue
		}
		to := c.LocalAddr().String()
		p := probeOf(t, to)
		if a := ask(t, p, 0, 200, brief); a.Kind != Silent {
			t.Errorf("%s, where somebody listens: %+v", to, a)
		}
		var b [300]byte
		if n, _, err := c.ReadFrom(b[:]); err != nil || n != 200-ipHeader(netip.MustParseAddrPort(to).Addr())-8 {
			t.Errorf("%s got %d bytes, %v", to, n, err)
		} else if seq, ok := seqOf(b[:n]); !ok || seq != 1 {
			t.Errorf("%s got sequence number %d, %v", to, seq, ok)
		}
		c.Close()
		for range 3 {
			a := Answer{Kind: Silent}
			for tries := 0; a.Kind == Silent && tries < 10; tries++ { // a busy kernel may leave out an ICMP message
				a = ask(t, p, 0, 200, patience/10)
			}
			if peer := netip.MustParseAddrPort(to).Addr(); a.Kind != Refused || !a.Reached(peer) || a.Local {
				t.Errorf("%s, where nobody listens: %+v", to, a)
			}
		}
	}
}

func TestProbeEndsWithItsContext(t *testing.T) {
	t.Parallel()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if _, err := probeOf(t, c.LocalAddr().String()).Probe(ctx, 0, 100, patience); !errors.Is(err, why) {
		t.Errorf("error is %v", err)
	}
}

// TestRouter asks a router on the way: what it forwards, and what it says of
// the rest.
func TestRouter(t *testing.T) {
	t.Parallel()
	if !testnet.Isolated(t) {
		return
	}
	testnet.Veth(t, "left0", "right0", "1500")
	testnet.IP(t, "address add 10.50.0.1/24 dev left0")
	testnet.IP(t, "route add 10.50.0.0/16 via 10.50.0.2")
	testnet.IP(t, "address add fd50::1/64 dev left0 nodad")
	testnet.IP(t, "route add fd50::/16 via fd50::2")
	testnet.Elsewhere(t, "right0", "left0", func() {
		testnet.IP(t, "address add 10.50.0.2/24 dev right0")
		testnet.IP(t, "address add fd50::2/64 dev right0 nodad")
		for f, v := range map[string]string{"ipv4/ip_forward": "1", "ipv6/conf/all/forwarding": "1"} {
			if err := os.WriteFile("/proc/sys/net/"+f, []byte(v), 0); err != nil {
				t.Errorf("%s: %v", f, err)
			}
		}
		testnet.Veth(t, "narrow", "far", "1300")
		testnet.IP(t, "address add 10.50.1.1/24 dev narrow")
		testnet.IP(t, "neighbor add 10.50.1.9 lladdr 02:00:00:00:00:09 dev narrow")
		testnet.IP(t, "address add fd50:1::1/64 dev narrow nodad")
		testnet.IP(t, "neighbor add fd50:1::9 lladdr 02:00:00:00:00:09 dev narrow")
		testnet.IP(t, "route add prohibit 10.50.2.0/24")
		testnet.IP(t, "route add unreachable 10.50.3.0/24")
		done := make(chan struct{})
		go func() { // in the first namespace
			defer close(done)
			for _, c := range []struct {
				to         string
				hops, size int
				want       Answer
			}{
				{"10.50.1.9:4791", 1, 100, Answer{Kind: TimeUp, From: netip.MustParseAddr("10.50.0.2")}},
				{"10.50.1.9:4791", 1, 1500, Answer{Kind: TimeUp, From: netip.MustParseAddr("10.50.0.2")}},
				{"10.50.1.9:4791", 0, 1301, Answer{Kind: TooBig, From: netip.MustParseAddr("10.50.0.2"), MTU: 1300}},
				{"10.50.1.9:4791", 0, 1300, Answer{Kind: Silent}},
				{"10.50.1.9:4791", 0, 1501, Answer{Kind: TooBig, Local: true, MTU: 1500}},
				{"10.50.2.9:4791", 0, 100, Answer{Kind: Prohibited, From: netip.MustParseAddr("10.50.0.2")}},
				{"10.50.3.9:4791", 0, 100, Answer{Kind: Unreachable, From: netip.MustParseAddr("10.50.0.2")}},
				{"10.50.0.2:4791", 0, 1500, Answer{Kind: Refused, From: netip.MustParseAddr("10.50.0.2")}},
				{"11.0.0.1:4791", 0, 100, Answer{Kind: Unreachable, Local: true}},
				{"[fd50:1::9]:4791", 1, 100, Answer{Kind: TimeUp, From: netip.MustParseAddr("fd50::2")}},
				{"[fd50:1::9]:4791", 0, 1400, Answer{Kind: TooBig, From: netip.MustParseAddr("fd50::2"), MTU: 1300}},
				{"[fd50::2]:4791", 0, 1500, Answer{Kind: Refused, From: netip.MustParseAddr("fd50::2")}},
			} {
				p, err := Open(netip.Addr{}, netip.MustParseAddrPort(c.to))
				if err != nil {
					t.Error(err)
					continue
				}
				// Linux says so a few times a second only.
				a, err := p.Probe(t.Context(), c.hops, c.size, brief)
				for i := 0; a.Kind == Silent && c.want.Kind != Silent && err == nil && i < 600; i++ {
					a, err = p.Probe(t.Context(), c.hops, c.size, brief)
				}
				if a.RTT = 0; err != nil || a != c.want {
					t.Errorf("%s with %d hops and %d bytes: %+v, %v; want %+v", c.to, c.hops, c.size, a, err, c.want)
				}
				p.Close()
			}
		}()
		<-done
	})
}

// TestEcho uses ICMP, which the namespace's owner allows.
func TestEcho(t *testing.T) {
	t.Parallel()
	if !testnet.Isolated(t) {
		return
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ping_group_range", []byte("0 2147483647"), 0); err != nil {
		t.Skipf("this user may not allow ICMP sockets in a network namespace of its own (run as root): %v", err)
	}
	for _, peer := range []string{"127.0.0.1", "::1"} {
		to := netip.MustParseAddr(peer)
		p, err := OpenEcho(netip.Addr{}, to)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		for _, size := range []int{100, 4000, 9000} {
			if a := ask(t, p, 0, size, patience); a.Kind != Echoed || !a.Reached(to) {
				t.Errorf("%v with %d bytes: %+v", peer, size, a)
			}
		}
		if a := ask(t, p, 0, 66000, patience); to.Is4() && (a.Kind != TooBig || !a.Local) {
			t.Errorf("%v with 66000 bytes: %+v", peer, a)
		}
	}
}

// TestFarEndIsNarrower has the MTUs of a cable's two ends differ: the kernel
// says ENOBUFS of what the far one drops.
func TestFarEndIsNarrower(t *testing.T) {
	t.Parallel()
	if !testnet.Isolated(t) {
		return
	}
	testnet.Veth(t, "wide0", "narrow0", "9000")
	testnet.IP(t, "address add 10.51.0.1/24 dev wide0")
	testnet.IP(t, "address add fd51::1/64 dev wide0 nodad")
	testnet.IP(t, "link set narrow0 mtu 1500")
	testnet.IP(t, "neighbor add 10.51.0.9 lladdr 02:00:00:00:00:09 dev wide0")
	testnet.IP(t, "neighbor add fd51::9 lladdr 02:00:00:00:00:09 dev wide0")
	for _, to := range []string{"10.51.0.9:4791", "[fd51::9]:4791"} {
		p := probeOf(t, to)
		for size, want := range map[int]Answer{1500: {}, 4200: {Kind: TooBig, Local: true}, 9000: {Kind: TooBig, Local: true}} {
			if a := ask(t, p, 0, size, brief); a != want {
				t.Errorf("%s with %d bytes: %+v, want %+v", to, size, a, want)
			}
		}
	}
}

// TestNoBufferSpace: the device drops what is longer than its other end takes.
// If it drops the shortest probe too, its queue is full, and the probe is lost.
func TestNoBufferSpace(t *testing.T) {
	t.Parallel()
	p := probeOf(t, "127.0.0.1:9")
	for _, c := range []struct {
		size, fits int
		want       Answer
	}{
		{1500, 1000, Answer{Kind: TooBig, Local: true}},
		{MinSize(netip.MustParseAddr("127.0.0.1")), 0, Answer{Kind: Silent, Local: true}},
	} {
		p.sendto = func(_ int, b []byte, _ int, _ unix.Sockaddr) error {
			if len(b) > c.fits {
				return unix.ENOBUFS
			}
			return nil
		}
		if a := ask(t, p, 0, c.size, patience); a != c.want {
			t.Errorf("%d bytes: %+v, want %+v", c.size, a, c.want)
		}
	}
}

// TestQueueIsFullForAMoment: a probe that the device takes the second time is
// sent.
func TestQueueIsFullForAMoment(t *testing.T) {
	t.Parallel()
	p := probeOf(t, "127.0.0.1:9")
	calls := 0
	p.sendto = func(fd int, b []byte, flags int, to unix.Sockaddr) error {
		if calls++; calls == 1 {
			return unix.ENOBUFS
		}
		return nil
	}
	if a := ask(t, p, 0, 1500, brief); a.Kind != Silent || a.Local || calls != 2 {
		t.Errorf("%+v after %d calls", a, calls)
	}
}
