package mad

import (
	"fmt"
	"time"
)

// CommID is a communication ID: what one side calls a connection. In SIDR it is
// the request ID.
type CommID uint32

// GUID is the globally unique identifier of a channel adapter.
type GUID uint64

// String returns the GUID in the field's notation, for example
// "505a:00ff:fe12:0004".
func (g GUID) String() string {
	return fmt.Sprintf("%04x:%04x:%04x:%04x", uint16(g>>48), uint16(g>>32), uint16(g>>16), uint16(g))
}

// ServiceID says which service of a host a REQ or SIDR_REQ is for.
type ServiceID uint64

// PortSpace is a set of 65,536 ports of RDMA-CM. A port of TCP or UDP sockets
// has nothing to do with it.
type PortSpace uint16

// The port spaces of RDMA-CM on RoCE.
const (
	PortSpaceTCP   PortSpace = 0x0106 // reliable connections
	PortSpaceUDP   PortSpace = 0x0111 // datagrams, by SIDR
	PortSpaceIB    PortSpace = 0x013f // any service
	PortSpaceIPoIB PortSpace = 0x0002 // datagrams, by SIDR
)

// String returns "TCP", "UDP", "IB" or "IPoIB".
func (s PortSpace) String() string {
	switch s {
	case PortSpaceTCP:
		return "TCP"
	case PortSpaceUDP:
		return "UDP"
	case PortSpaceIB:
		return "IB"
	case PortSpaceIPoIB:
		return "IPoIB"
	}
	return fmt.Sprintf("port space 0x%04x", uint16(s))
}

// Service returns the service ID of a port (IBTA A11.2).
func (s PortSpace) Service(port uint16) ServiceID {
	return ServiceID(s)<<16 | ServiceID(port)
}

// Port returns the port space and the port of a service ID, and false if it is
// of none of those above.
func (s ServiceID) Port() (PortSpace, uint16, bool) {
	space := PortSpace(s >> 16)
	switch space {
	case PortSpaceTCP, PortSpaceUDP, PortSpaceIB, PortSpaceIPoIB:
		return space, uint16(s), s>>32 == 0
	}
	return 0, 0, false
}

// String returns port space and port, for example "TCP port 7174", or the
// number.
func (s ServiceID) String() string {
	if space, port, ok := s.Port(); ok {
		return fmt.Sprintf("%v port %d", space, port)
	}
	return fmt.Sprintf("0x%016x", uint64(s))
}

// Transport is the transport service type of a REQ: two bits.
type Transport uint8

// The transport service types (IBTA 12.7.5). With Extended the REQ says more.
const (
	TransportRC       Transport = 0
	TransportUC       Transport = 1
	TransportRD       Transport = 2
	TransportExtended Transport = 3
)

// ExtendedXRC is the extended transport type of XRC.
const ExtendedXRC = 1

// String returns the name, for example "RC".
func (t Transport) String() string {
	return [...]string{"RC", "UC", "RD", "extended"}[t&3]
}

// ECE is what a side says of itself by enhanced connection establishment: the
// options mean something to those who know the vendor. Zero says nothing.
type ECE struct {
	VendorID uint32 // 24 bits
	Options  uint32 // the attribute modifier of the MAD
}

// Timeout returns the time that a CM response timeout or service timeout means,
// of which five bits are used: 4.096 µs · 2^t (IBTA 12.7.10). It is never 0.
func Timeout(t uint8) time.Duration { return 4096 * time.Nanosecond << (t & 31) }

// Stage says which message an MRA or a REJ is about: two bits.
type Stage uint8

// The stages. In a MRA the third is a LAP, in a REJ it is none of the two.
const (
	StageREQ   Stage = 0
	StageREP   Stage = 1
	StageOther Stage = 2
)

// String returns "REQ", "REP" or "other".
func (s Stage) String() string {
	switch s {
	case StageREQ:
		return "REQ"
	case StageREP:
		return "REP"
	}
	return "other"
}
