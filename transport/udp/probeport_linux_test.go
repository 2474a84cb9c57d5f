package udp

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/internal/testnet"
)

// IPv6 has one loopback address. In a network of its own a test has others.
func TestProbePortIPv6(t *testing.T) {
	if !testnet.Isolated(t) {
		return
	}
	var links []*Link
	for _, addr := range []string{"2001:db8::1", "2001:db8::2"} {
		testnet.IP(t, "addr add "+addr+"/128 dev lo nodad")
		links = append(links, open(t, netip.MustParseAddr(addr), Config{}))
	}
	probePort(t, links[0], links[1])
}

// An error must quote the packet, as far as it quotes anything of it, and be of
// one to the peer. What it says must be that the port is closed.
func TestQuotes(t *testing.T) {
	t.Parallel()
	p := portProbe{to: netip.MustParseAddrPort("192.0.2.1:4791"), packet: []byte("packet")}
	peer := &unix.SockaddrInet4{Addr: [4]byte{192, 0, 2, 1}, Port: 4791}
	for quote, want := range map[string]bool{"": true, "pack": true, "packet": true, "packets": false, "pocket": false} {
		if p.quotes(peer, []byte(quote)) != want {
			t.Errorf("%q: %v", quote, !want)
		}
	}
	for _, other := range []unix.Sockaddr{
		nil, &unix.SockaddrInet4{Addr: peer.Addr, Port: 4792}, &unix.SockaddrInet4{Addr: [4]byte{192, 0, 2, 2}, Port: 4791},
		&unix.SockaddrInet6{Port: 4791},
	} {
		if p.quotes(other, p.packet) {
			t.Errorf("an error of a packet to %v counts", other)
		}
	}
	if saysUnreachable(nil) || saysUnreachable([]byte{1, 2, 3}) || saysUnreachable(make([]byte, 64)) {
		t.Error("no error counts as one")
	}
}
