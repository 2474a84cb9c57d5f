package devices

import (
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"

	"github.com/gosoftroce/rocev2/internal/ifaddrs"
	"github.com/gosoftroce/rocev2/verbs"
)

// system is the machine that this process runs on.
var system = host{
	open:   func(addr netip.Addr) (*verbs.Device, error) { return verbs.OpenAddr(addr, verbs.Config{Sealing: true}) },
	source: routeSource,
	own:    ownAddress,
	addrs:  hostAddrs,
	random: rand.Uint32,
}

// hostAddrs returns the addresses that a device can be on, IPv4 first.
func hostAddrs() (addrs []netip.Addr) {
	ifaces, err := ifaddrs.All()
	if err != nil {
		return nil
	}
	for _, ifi := range ifaces {
		if ifi.Flags&net.FlagUp == 0 {
			continue
		}
		for _, a := range ifi.Addrs {
			addrs = append(addrs, a.Addr)
		}
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	return slices.Compact(addrs)
}

// routeSource asks the routes, by a socket that sends nothing.
func routeSource(remote netip.Addr) (netip.Addr, error) {
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(remote, verbs.UDPPort)))
	if err != nil {
		return netip.Addr{}, err
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(), nil
}

// ownAddress reports whether addr is of this machine.
func ownAddress(addr netip.Addr) bool {
	if addr.IsLoopback() {
		return true
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok {
			if own, ok := netip.AddrFromSlice(n.IP); ok && own.Unmap() == addr.WithZone("") {
				return true
			}
		}
	}
	return false
}
