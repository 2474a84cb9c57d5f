// Package ifaddrs tells the addresses of network interfaces as package netip
// has them.
package ifaddrs

import (
	"net"
	"net/netip"
)

// Addr is an address of an interface.
type Addr struct {
	netip.Addr     // with the interface as its zone if it is link-local of IPv6
	Bits       int // of its prefix
}

// Of returns the addresses of an interface; none of one that has gone.
func Of(ifi *net.Interface) (list []Addr) {
	addrs, err := ifi.Addrs()
	if err != nil {
		return nil
	}
	for _, a := range addrs {
		p, err := netip.ParsePrefix(a.String())
		if err != nil {
			continue
		}
		addr := p.Addr().Unmap()
		if addr.Is6() && addr.IsLinkLocalUnicast() {
			addr = addr.WithZone(ifi.Name)
		}
		list = append(list, Addr{addr, p.Bits()})
	}
	return list
}
