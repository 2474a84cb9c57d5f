package engine

import (
	"net/netip"
	"testing"

	"github.com/gosoftroce/rocev2/transport"
)

// Packets for two sockets of one peer never leave as one run: their paths
// differ, also where the source port does not.
func TestPathsOfSlots(t *testing.T) {
	t.Parallel()
	var p peer
	src, to := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	a, b := p.path(src, transport.Path{Dst: to, Slot: 1}), p.path(src, transport.Path{Dst: to, Slot: 2})
	if a == b || p.path(src, transport.Path{Dst: to, Slot: 1}) != a {
		t.Error("two sockets have one path, or one has two")
	}
	if k := p.linuxPath(src, b); k.Slot != 2 || !k.KernelPeer {
		t.Errorf("%+v", k)
	}
}
