package hca

import (
	"net/netip"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

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
