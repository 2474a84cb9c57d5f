package cm

import (
	"net/netip"

	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// PortSpace is a space of port numbers. Each has its own 65535 of them, which
// are independent of those of TCP and UDP sockets. The numbers are those of
// rdma_port_space. String names it.
type PortSpace = mad.PortSpace

// Port spaces.
const (
	TCP   PortSpace = mad.PortSpaceTCP   // connections: RC, and UC
	UDP   PortSpace = mad.PortSpaceUDP   // datagrams: UD, found by Resolve
	IB    PortSpace = mad.PortSpaceIB    // any
	IPoIB PortSpace = mad.PortSpaceIPoIB // datagrams, as UDP
)

func validSpace(s PortSpace) bool { return s == TCP || s == UDP || s == IB || s == IPoIB }

// datagrams reports whether a port space is for queue pairs of type UD only.
func datagrams(s PortSpace) bool { return s == UDP || s == IPoIB }

// Addr is the address of one end of a connection: an IP address, and a port of
// a port space. It implements net.Addr.
type Addr struct {
	netip.AddrPort
	Space PortSpace
}

// Network returns "rdma" for the port space TCP, "rdma-udp", "rdma-ib" and
// "rdma-ipoib" for the others.
func (a *Addr) Network() string {
	switch a.Space {
	case UDP:
		return "rdma-udp"
	case IB:
		return "rdma-ib"
	case IPoIB:
		return "rdma-ipoib"
	}
	return "rdma"
}

// String returns address and port, such as "192.0.2.1:7471".
func (a *Addr) String() string { return a.AddrPort.String() }
