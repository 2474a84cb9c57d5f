package attack

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/gosoftroce/rocev2/internal/testnet"
)

// TestSecuredEverywhere runs the attacks on secured connections and devices
// over sockets of devices with four of them, which segment and coalesce as the
// system can, over IPv6 and over IPv4, where packets are forged on a raw
// socket.
func TestSecuredEverywhere(t *testing.T) {
	if testing.Short() {
		t.Skip("attacks on sockets: run without -short")
	}
	if !testnet.Isolated(t) {
		return
	}
	const hosts = 16
	for _, c := range []struct {
		name, prefix string
		shards       int
		raw          bool
	}{{"IPv6", "fd00:77::", 4, false}, {"IPv4", "198.18.77.", 4, true}, {"one socket over IPv6", "fd00:78::", 1, false}} {
		t.Run(c.name, func(t *testing.T) {
			skipWithoutRaw(t, c.raw)
			var addrs []netip.Addr
			for i := range hosts {
				addr := netip.MustParseAddr(fmt.Sprint(c.prefix, i+1))
				testnet.IP(t, fmt.Sprintf("addr add %v/%d dev lo%s", addr, addr.BitLen(), map[bool]string{true: " nodad"}[addr.Is6()]))
				addrs = append(addrs, addr)
			}
			for _, a := range slices.Concat(Secured(), Guarded()) {
				t.Run(a.Name, func(t *testing.T) {
					scale := Scale{Packets: 1000, Rounds: 1, Bytes: 1 << 20}
					if c.raw { // a flood would fill the victim's socket
						scale.Rounds = 0
					}
					r, err := a.Run(t.Context(), Options{Scale: scale, Network: Sharded(c.shards, addrs...), Raw: c.raw})
					report(t, r, err)
				})
			}
		})
	}
}
