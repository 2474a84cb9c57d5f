package udp

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/gosoftroce/rocev2/internal/testnet"
)

// TestZoneByIndex: the zone of an address may be the index of its interface
// (RFC 4007 11.2), which is how Windows shows it.
func TestZoneByIndex(t *testing.T) {
	t.Parallel()
	if !testnet.Isolated(t) {
		return
	}
	testnet.Veth(t, "near1", "far1", "3000")
	testnet.IP(t, "address add fe80::9/64 dev near1 nodad")
	ifi, err := net.InterfaceByName("near1")
	if err != nil {
		t.Fatal(err)
	}
	zoned := fmt.Sprintf("fe80::9%%%d", ifi.Index)
	l := open(t, netip.MustParseAddr(zoned), Config{})
	if c := l.Capabilities(); l.Addr().Zone() != "near1" || c.LinkMTU != 3000 {
		t.Errorf("%s is %v, link MTU %d", zoned, l.Addr(), c.LinkMTU)
	}
	if a, err := Resolve(zoned); err != nil || a != l.Addr() {
		t.Errorf("resolved: %v, %v", a, err)
	}
}
