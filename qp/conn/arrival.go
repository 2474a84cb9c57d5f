package conn

import (
	"net/netip"

	"github.com/gosoftroce/rocev2/rocev2"
)

// Arrival is a packet as it came.
type Arrival struct {
	Packet       *rocev2.Packet
	Src, Dst     netip.Addr // of the IP header
	TrafficClass uint8      // of which the low two bits are ECN (RFC 3168)
	HopLimit     uint8
	FlowLabel    uint32 // 0 if the link does not know it
	IPID         uint16 // IPv4 Identification; 0 if the link does not know it
}

// Marked reports whether the network has marked the packet with Congestion
// Experienced (RFC 3168).
func (a *Arrival) Marked() bool { return a.TrafficClass&ecnMask == ecnMarked }

const (
	ecnMask   = 3
	ecnMarked = 3
)
