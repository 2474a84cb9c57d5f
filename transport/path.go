package transport

import (
	"cmp"
	"net/netip"

	"github.com/gosoftroce/rocev2/rocev2"
)

// Path says how packets reach a peer. Make one with NewPath and keep it:
// packets to the same *Path can leave as one run. Do not change its fields
// after that. Several links of one local address and port may use the same
// Path.
type Path struct {
	Dst          netip.Addr // peer; a zone is ignored, the link's own counts
	DstPort      uint16     // 0 = the port of the link (4791)
	SrcPort      uint16     // 0 = the port of the link; others need Capabilities.SourcePorts, see OpenSourcePort
	TrafficClass uint8      // DSCP (RFC 2474) and ECN (RFC 3168)
	HopLimit     uint8      // 0 = the system's default
	FlowLabel    uint32     // IPv6, 20 bits (RFC 6437); 0 = the system's choice
	KernelPeer   bool       // FLUSH is sealed as Linux rxe expects it
	SPI          uint32     // of the security association that seals packets, see package transport/psp; 0: they go in clear
	Slot         uint16     // of the peer's sockets; paths to different ones are different, so that no run has packets for two

	local netip.AddrPort // what flow was made for
	flow  rocev2.Flow
}

// NewPath returns a copy of p that is prepared for sending from src, on a link
// with the RoCEv2 port. An IPv4-mapped Dst becomes plain IPv4.
func NewPath(src netip.Addr, p Path) *Path {
	p.Dst = p.Dst.Unmap().WithZone("")
	p.bind(netip.AddrPortFrom(src, rocev2.UDPPort))
	return &p
}

// Flow returns the addressing of packets from the local address and port to the
// peer, which the ICRC covers (IBTA A17.3.3). Links call it. A call with
// another local address than before is not safe beside other calls.
func (p *Path) Flow(local netip.AddrPort) *rocev2.Flow {
	if p.local != local {
		p.bind(local)
	}
	return &p.flow
}

func (p *Path) bind(local netip.AddrPort) {
	p.local = local
	p.flow = rocev2.NewFlow(local.Addr(), p.Dst, cmp.Or(p.SrcPort, local.Port()), p.Port(local.Port()))
}

// Port returns the peer's UDP port, given the link's own.
func (p *Path) Port(link uint16) uint16 { return cmp.Or(p.DstPort, link) }
