//go:build linux && !portable

package udp

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/internal/testnet"
	"github.com/gosoftroce/rocev2/transport"
)

// TestLinkMTU: the MTU to a peer is that of the way that packets take, which
// the address alone does not tell, and it is read again.
func TestLinkMTU(t *testing.T) {
	t.Parallel()
	if !testnet.Isolated(t) {
		return
	}
	testnet.Veth(t, "wide0", "wide1", "9000")
	testnet.Veth(t, "narrow0", "narrow1", "1500")
	for _, args := range []string{
		"address add 198.18.0.1/24 dev wide0", "address add fd18::1/64 dev wide0 nodad",
		"address add 198.18.1.1/24 dev narrow0", "address add fd18:1::1/64 dev narrow0 nodad",
		"address add 198.18.9.1/32 dev lo", "address add 198.18.9.2/32 dev lo", "address add fd18:9::1/128 dev lo nodad",
		"route add 198.18.2.0/24 via 198.18.0.2 mtu 4200",
	} {
		testnet.IP(t, args)
	}
	for _, c := range []struct {
		local string
		link  int
		ways  map[string]int
	}{
		{"198.18.0.1", 9000, map[string]int{"198.18.0.2": 9000, "198.18.1.2": 1500, "198.18.2.2": 4200, "198.18.1.1": 9000, "203.0.113.1": 9000}},
		{"fd18::1", 9000, map[string]int{"fd18::2": 9000, "fd18:1::2": 1500}},
		// Not lo's 64 KiB, since it is others that find this host by
		// it.
		{"198.18.9.1", 1500, map[string]int{"198.18.0.2": 1500, "198.18.1.2": 1500, "198.18.9.2": 1500}},
		{"fd18:9::1", 1500, map[string]int{"fd18::2": 1500}},
		{"127.0.0.3", 65536, map[string]int{"127.0.0.4": 65536}},
		{"::1", 65536, map[string]int{"::1": 65536}},
	} {
		l := open(t, mustAddr(c.local), Config{})
		if got := l.Capabilities().LinkMTU; got != c.link {
			t.Errorf("link of %s: MTU %d, want %d", c.local, got, c.link)
		}
		for peer, want := range c.ways {
			if got := transport.ReadLinkMTU(l, mustAddr(peer)); got != want {
				t.Errorf("from %s to %s: MTU %d, want %d", c.local, peer, got, want)
			}
		}
		l.Close()
	}

	l := open(t, mustAddr("198.18.0.1"), Config{})
	path := transport.NewPath(l.Addr(), transport.Path{Dst: mustAddr("198.18.0.2")})
	tx := transport.NewTxBatch(1 << 18)
	for i := range 3 {
		put(t, tx, path, packet(i, 4096))
	}
	if err := l.Send(tx); err != nil {
		t.Fatal(err)
	}
	testnet.IP(t, "link set wide0 mtu 1500")
	var failed *transport.SendError
	if err := l.Send(tx); !errors.As(err, &failed) || failed.Failed != 3 || !errors.Is(err, transport.ErrTooLong) || !errors.Is(err, unix.EMSGSIZE) {
		t.Errorf("longer than the MTU: %v", err)
	}
	if got := transport.ReadLinkMTU(l, netip.Addr{}); got != 1500 || l.Capabilities().LinkMTU != 1500 {
		t.Errorf("the MTU is read as %d, Capabilities have %+v", got, l.Capabilities())
	}
}

// Whatever the answer of the kernel is, it is read without a fault.
func TestParseRoute(t *testing.T) {
	t.Parallel()
	if _, ok := parseRoute(nil); ok {
		t.Error("nothing was taken for a route")
	}
	whole := routeRequest(mustAddr("192.0.2.1"), mustAddr("192.0.2.2"), 3) // has attributes too
	binary.NativeEndian.PutUint16(whole[4:], unix.RTM_NEWROUTE)
	if _, ok := parseRoute(whole); !ok {
		t.Fatal("a route was not taken for one")
	}
	for i := range whole {
		parseRoute(whole[:i])
		b := append([]byte(nil), whole...)
		for _, v := range []byte{0, 1, 0x7f, 0xff} {
			b[i] = v
			parseRoute(b)
		}
	}
}

// TestLearnedMTUDoesNotCount: the kernel has a path MTU from ICMP (RFC 1191,
// RFC 8201), which any host can send, in place of the route's own, with a time
// at which it expires.
func TestLearnedMTUDoesNotCount(t *testing.T) {
	t.Parallel()
	attr := func(typ uint16, data []byte) []byte {
		b := binary.NativeEndian.AppendUint16(nil, uint16(unix.SizeofRtAttr+len(data)))
		return append(binary.NativeEndian.AppendUint16(b, typ), data...)
	}
	word := func(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }
	for _, c := range []struct {
		expires uint32
		want    int
	}{{0, 1400}, {60000, 0}} {
		b := make([]byte, unix.SizeofNlMsghdr+unix.SizeofRtMsg)
		binary.NativeEndian.PutUint16(b[4:], unix.RTM_NEWROUTE)
		b = append(b, attr(unix.RTA_OIF, word(7))...)
		b = append(b, attr(unix.RTA_METRICS, attr(unix.RTAX_MTU, word(1400)))...)
		b = append(b, attr(unix.RTA_CACHEINFO, append(make([]byte, 8), word(c.expires)...))...)
		binary.NativeEndian.PutUint32(b, uint32(len(b)))
		if r, ok := parseRoute(b); !ok || r.mtu != c.want || r.iface != 7 || r.local {
			t.Errorf("an MTU of 1400 that ends after %d: %+v, %v", c.expires, r, ok)
		}
	}
}
