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

// Interface is an interface with its addresses.
type Interface struct {
	net.Interface
	Addrs []Addr
}

// All returns all interfaces.
func All() ([]Interface, error) {
	list, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	all := make([]Interface, len(list))
	for i := range list {
		all[i].Interface = list[i]
	}
	fill(all)
	return all, nil
}

// Of returns the addresses of an interface; none of one that has gone.
func Of(ifi *net.Interface) (list []Addr) {
	addrs, err := ifi.Addrs()
	if err != nil {
		return nil
	}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			list = append(list, addrOf(ifi, p.Addr(), p.Bits()))
		}
	}
	return list
}

// addrOf is an address of an interface, as the system has it.
func addrOf(ifi *net.Interface, addr netip.Addr, bits int) Addr {
	addr = addr.Unmap()
	if addr.Is6() && addr.IsLinkLocalUnicast() {
		addr = addr.WithZone(ifi.Name)
	}
	return Addr{addr, bits}
}
