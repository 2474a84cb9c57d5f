package udp

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/gosoftroce/rocev2/internal/ifaddrs"
)

// maxListed bounds the addresses in an error text.
const maxListed = 16

// local is an address of this machine.
type local struct {
	addr  netip.Addr // with zone if link-local IPv6
	iface net.Interface
	bits  int
}

func locals() []local {
	var all []local
	ifaces, err := ifaddrs.All()
	if err != nil {
		return nil
	}
	for _, ifi := range ifaces {
		for _, a := range ifi.Addrs {
			all = append(all, local{addr: a.Addr, iface: ifi.Interface, bits: a.Bits})
		}
	}
	return all
}

// find returns the entry of the interface that has addr. All of 127.0.0.0/8 is
// of the loopback interface, although that names one address. An address
// without a zone matches in any.
func find(addr netip.Addr) (found local, ok bool) {
	for _, l := range locals() {
		switch {
		case l.addr == addr || l.addr.WithZone("") == addr:
			return l, true
		case addr.IsLoopback() && l.iface.Flags&net.FlagLoopback != 0 && l.bits > found.bits:
			found, ok = l, true
		}
	}
	return found, ok
}

// InterfaceOf returns the network interface that has addr, and false if none
// has it.
func InterfaceOf(addr netip.Addr) (net.Interface, bool) {
	l, ok := find(addr)
	return l.iface, ok
}

func localAddrs() string {
	var s []string
	for _, l := range locals() {
		s = append(s, fmt.Sprintf("%v (%s)", l.addr, l.iface.Name))
	}
	return list(s)
}

func list(s []string) string {
	switch {
	case len(s) == 0:
		return "none"
	case len(s) > maxListed:
		return strings.Join(s[:maxListed], ", ") + fmt.Sprintf(" and %d more", len(s)-maxListed)
	}
	return strings.Join(s, ", ")
}

// Resolve turns a local address or the name of an interface into an address to
// open. Of an interface's addresses it prefers IPv4, then global IPv6, then
// link-local IPv6. It does not check that an address is local; Open does.
func Resolve(s string) (netip.Addr, error) {
	if a, err := netip.ParseAddr(s); err == nil {
		return checkAddr(a, 0)
	}
	var best netip.Addr
	var names []string
	rank := 0
	for _, l := range locals() {
		if !slices.Contains(names, l.iface.Name) {
			names = append(names, l.iface.Name)
		}
		if l.iface.Name != s {
			continue
		}
		if r := rankOf(l.addr); r > rank {
			best, rank = l.addr, r
		}
	}
	if rank > 0 {
		return best, nil
	}
	if ifi, err := net.InterfaceByName(s); err == nil {
		return best, fmt.Errorf("udp: interface %s has no address; choose an address of this machine: %s", ifi.Name, localAddrs())
	}
	return best, fmt.Errorf("udp: %q is neither an address nor an interface with one; interfaces are %s; addresses are %s", s, list(names), localAddrs())
}

func rankOf(a netip.Addr) int {
	switch {
	case a.Is4():
		return 3
	case !a.IsLinkLocalUnicast():
		return 2
	}
	return 1
}

// scopeOf returns the index of the interface that the zone of an address names;
// 0 without a zone.
func scopeOf(at netip.AddrPort) (uint32, error) {
	z := at.Addr().Zone()
	if z == "" {
		return 0, nil
	}
	ifi, err := net.InterfaceByName(z)
	if err != nil {
		return 0, &OpenError{Addr: at, Op: "find interface " + z, Err: err, Hint: "local addresses are " + localAddrs()}
	}
	return uint32(ifi.Index), nil
}

// nameZone has the zone of an address be the name of the interface, where it is
// its index, as Windows shows it (RFC 4007 11.2).
func nameZone(addr netip.Addr) netip.Addr {
	if _, err := net.InterfaceByName(addr.Zone()); err == nil {
		return addr
	}
	if index, err := strconv.Atoi(addr.Zone()); err == nil {
		if ifi, err := net.InterfaceByIndex(index); err == nil {
			return addr.WithZone(ifi.Name)
		}
	}
	return addr
}
