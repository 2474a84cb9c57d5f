//go:build linux && !portable

package udp

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/internal/testnet"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
	"golang.org/x/sys/unix"
)

func TestReusePort(t *testing.T) {
	t.Parallel()
	addr := loopback()
	open(t, addr, Config{ReusePort: true})
	open(t, addr, Config{ReusePort: true})
	if l, err := Open(addr, Config{}); err == nil {
		l.Close()
		t.Error("opened a shared port without ReusePort")
	}
}

func TestPortTaken(t *testing.T) {
	t.Parallel()
	families(t, func(t *testing.T, v6 bool) {
		addr, c := loopback(), Config{}
		if v6 {
			addr, c.Port = netip.IPv6Loopback(), port()
		}
		open(t, addr, c)
		_, err := Open(addr, c)
		var oe *OpenError
		if !errors.As(err, &oe) || !errors.Is(err, unix.EADDRINUSE) {
			t.Fatalf("error %v", err)
		}
		for _, s := range []string{addr.String(), "is taken by this process itself (pid ", "open another local address"} {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("error does not say %q: %v", s, err)
			}
		}
	})
}

func TestHolderUnknown(t *testing.T) {
	t.Parallel()
	got := holder(netip.AddrPortFrom(loopback(), 1))
	if !strings.Contains(got, "rdma_rxe") || !strings.Contains(got, "network namespace") {
		t.Errorf("hint %q", got)
	}
}

func TestNotLocal(t *testing.T) {
	t.Parallel()
	_, err := Open(netip.MustParseAddr("203.0.113.7"), Config{})
	if !errors.Is(err, unix.EADDRNOTAVAIL) || !strings.Contains(err.Error(), "not an address of this machine; local are ") ||
		!strings.Contains(err.Error(), "127.0.0.1 (lo)") {
		t.Errorf("error %v", err)
	}
	for _, s := range []string{"0.0.0.0", "::", "224.0.0.1", "ff02::1"} {
		if l, err := Open(netip.MustParseAddr(s), Config{}); !errors.Is(err, errUnspecified) {
			t.Errorf("%s: %v", s, err)
			if err == nil {
				l.Close()
			}
		}
	}
	if _, err := Open(netip.MustParseAddr("fe80::1234%nosuch0"), Config{}); err == nil || !strings.Contains(err.Error(), "nosuch0") {
		t.Errorf("unknown zone: %v", err)
	}
}

func TestResolve(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{"127.0.0.9": "127.0.0.9", "::1": "::1", "::ffff:10.0.0.1": "10.0.0.1", "lo": "127.0.0.1"} {
		if got, err := Resolve(in); err != nil || got.String() != want {
			t.Errorf("%s: %v, %v; want %s", in, got, err, want)
		}
	}
	_, err := Resolve("nosuch0")
	if err == nil || !strings.Contains(err.Error(), `"nosuch0"`) || !strings.Contains(err.Error(), "interfaces are") || !strings.Contains(err.Error(), "lo") {
		t.Errorf("error %v", err)
	}
}

func TestCapabilities(t *testing.T) {
	t.Parallel()
	for _, addr := range []netip.Addr{loopback(), netip.IPv6Loopback()} {
		l := open(t, addr, Config{Port: port(), RecvBuffer: 1 << 18, SendBuffer: 1 << 17})
		c := l.Capabilities()
		if c.MTU != rocev2.MTU4096 || c.LinkMTU < 4176 || c.FullICRC != addr.Is6() || !c.ECN || !c.SourcePorts {
			t.Errorf("%v: %+v", addr, c)
		}
		if c.RecvBuffer <= 0 || c.RecvBuffer > 1<<18 || c.SendBuffer <= 0 || c.SendBuffer > 1<<17 {
			t.Errorf("%v: buffers %d and %d", addr, c.RecvBuffer, c.SendBuffer)
		}
	}
}

// A link-local address needs its zone (RFC 4007), which packets do not show.
func TestLinkLocal(t *testing.T) {
	t.Parallel()
	if !testnet.Isolated(t) {
		return
	}
	testnet.Veth(t, "near0", "far0", "1500")
	testnet.IP(t, "address add fe80::7/64 dev near0 nodad")
	zoned := netip.MustParseAddr("fe80::7%near0")
	a, b := open(t, zoned, Config{Port: port()}), open(t, zoned, Config{Port: port()})
	if a.Addr() != zoned {
		t.Errorf("address %v", a.Addr())
	}
	tx := transport.NewTxBatch(1 << 16)
	path := transport.Path{Dst: zoned.WithZone(""), DstPort: b.Capabilities().Port}
	put(t, tx, transport.NewPath(zoned, path), packet(0, 1024))
	put(t, tx, transport.NewPath(zoned, path), packet(1, 1024))
	path.SrcPort = openPort(t, a, 61502)
	put(t, tx, transport.NewPath(zoned, path), packet(2, 1024))
	if err := a.Send(tx); err != nil {
		t.Fatal(err)
	}
	for _, p := range receive(t, b, 3) {
		if p.ICRC != transport.ICRCVerified || p.Src != zoned.WithZone("") || p.Dst != zoned.WithZone("") {
			t.Errorf("from %v to %v, ICRC %v", p.Src, p.Dst, p.ICRC)
		}
	}
	if l, err := Open(zoned.WithZone(""), Config{Port: port()}); err == nil {
		defer l.Close()
		if l.Addr().Zone() == "" {
			t.Error("opened without a zone")
		}
	} else if !errors.Is(err, errNoZone) {
		t.Error(err)
	}
}
