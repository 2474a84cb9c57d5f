package hca

import (
	"fmt"
	"net/netip"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// linkMTU returns how many bytes an IP packet to peer may have, an invalid peer
// being any. The system is asked each time.
func (d *Device) linkMTU(peer netip.Addr) int {
	return transport.ReadLinkMTU(d.shards[0].link, peer)
}

// Capabilities returns what the link offers, its MTU as it is now.
func (d *Device) Capabilities() transport.Capabilities {
	d.linkMTU(netip.Addr{}) // has the link read it again
	return d.shards[0].link.Capabilities()
}

// PathMTU returns the largest path MTU that the way to peer carries as far as
// it is known here: the interface of the device and the one that packets leave
// by.
func (d *Device) PathMTU(peer netip.Addr) rocev2.MTU { return rocev2.LargestMTU(d.linkMTU(peer)) }

func (d *Device) checkPathMTU(m rocev2.MTU, peer netip.Addr) error {
	link := d.linkMTU(peer)
	most := rocev2.LargestMTU(link)
	switch {
	case m <= most:
		return nil
	case peer.IsValid() && link < d.linkMTU(netip.Addr{}):
		return fmt.Errorf("path MTU %d is more than the way from %v to %v carries: the MTU of %d there leaves room for %d; both sides need the same path MTU",
			m.Bytes(), d.own.Addr, peer, link, most.Bytes())
	}
	return fmt.Errorf("path MTU %d is more than the link of %v carries: its MTU of %d leaves room for %d",
		m.Bytes(), d.own.Addr, link, most.Bytes())
}
