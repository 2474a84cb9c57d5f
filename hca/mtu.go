package hca

import (
	"fmt"
	"net/netip"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// linkMTU returns how many bytes an IP packet to peer may have, an invalid peer
// being any. The system is asked each time.
func (o ownAddr) linkMTU(peer netip.Addr) int {
	return transport.ReadLinkMTU(o.link, peer)
}

// Capabilities returns what the link offers, its MTU as it is now.
func (d *Device) Capabilities() transport.Capabilities {
	d.own.linkMTU(netip.Addr{}) // has the link read it again
	return d.own.link.Capabilities()
}

// PathMTU returns the largest path MTU that the way to peer carries as far as
// it is known here: the interface of the device and the one that packets leave
// by.
func (d *Device) PathMTU(peer netip.Addr) rocev2.MTU {
	return rocev2.LargestMTU(d.own.linkMTU(peer))
}

// checkPathMTU checks a path MTU towards a peer.
func (o ownAddr) checkPathMTU(m rocev2.MTU, peer netip.Addr) error {
	link := o.linkMTU(peer)
	most := rocev2.LargestMTU(link)
	switch {
	case m <= most:
		return nil
	case peer.IsValid() && link < o.linkMTU(netip.Addr{}):
		return fmt.Errorf("path MTU %d is more than the way from %v to %v carries: the MTU of %d there leaves room for %d; both sides need the same path MTU",
			m.Bytes(), o.Addr, peer, link, most.Bytes())
	}
	return fmt.Errorf("path MTU %d is more than the link of %v carries: its MTU of %d leaves room for %d",
		m.Bytes(), o.Addr, link, most.Bytes())
}
