package interop

import (
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/gosoftroce/rocev2/rdma/cm"
)

// Peers says which address a peer may name as its GID. A run sends its traffic
// to that address, so a peer that may name any can aim the traffic at a third
// host. The zero value allows only the address at the other end of the control
// connection, and from a loopback address any other one: both are of this host,
// whose programs may have any. Hosts that keep control and RDMA on different
// networks need another one.
type Peers struct {
	any    bool
	prefix netip.Prefix
}

// AnyPeer allows every address.
var AnyPeer = Peers{any: true}

// PeerAt allows the addresses of p besides the one of the control connection.
func PeerAt(p netip.Prefix) Peers { return Peers{prefix: p} }

// ParsePeers reads "any", an address, or a network as in "192.0.2.0/24"; ""
// is the zero value.
func ParsePeers(s string) (Peers, error) {
	switch {
	case s == "":
		return Peers{}, nil
	case strings.EqualFold(s, "any"):
		return AnyPeer, nil
	case strings.Contains(s, "/"):
		if p, err := netip.ParsePrefix(s); err == nil {
			return PeerAt(p), nil
		}
	default:
		if a, err := netip.ParseAddr(s); err == nil {
			a = a.Unmap().WithZone("")
			return PeerAt(netip.PrefixFrom(a, a.BitLen())), nil
		}
	}
	return Peers{}, fmt.Errorf("%q is neither an address, nor a network such as 192.0.2.0/24, nor \"any\"", s)
}

// GIDError says that a peer named a GID that it may not name.
type GIDError struct {
	Named   netip.Addr // the GID
	Control netip.Addr // the peer's address on the control connection
}

func (e *GIDError) Error() string {
	return fmt.Sprintf("the peer wants its RDMA traffic at %v, but its control connection is at %v: if that host has both addresses, allow it with --peer-gid %v (or any); of rocev2d with any_peer in [targets]",
		e.Named, e.Control, e.Named)
}

// Check returns nil if a peer may name gid, else an error. control is its
// address on the control connection.
func (p Peers) Check(gid GID, control net.Addr) error {
	named := gid.Addr().WithZone("")
	from := hostOf(control)
	if p.any || named == from || named.IsLoopback() && from.IsLoopback() || p.prefix.IsValid() && p.prefix.Contains(named) {
		return nil
	}
	return &GIDError{Named: named, Control: from}
}

// hostOf returns the address without port and zone, or an invalid one.
func hostOf(a net.Addr) netip.Addr {
	switch t := a.(type) {
	case *net.TCPAddr:
		return t.AddrPort().Addr().Unmap().WithZone("")
	case *cm.Addr:
		return t.Addr().Unmap().WithZone("")
	}
	return netip.Addr{}
}
