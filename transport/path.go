package transport

import (
	"cmp"
	"net/netip"

	"github.com/gosoftroce/rocev2/rocev2"
)

// Path says how packets reach a peer. Make one with NewPath and keep it:
// packets to the same *Path can leave as one run. Its fields must not change
// after that. A Path may be used by several links of one local address and
// port.
type Path struct {
	Dst          netip.Addr // peer; a zone is ignored, the link's own counts
	DstPort      uint16     // 0 = the port of the link (4791)
	SrcPort      uint16     // 0 = the port of the link; others need Capabilities.SourcePorts, see OpenSourcePort
	TrafficClass uint8      // DSCP and ECN
	HopLimit     uint8      // 0 = the system's default
	FlowLabel    uint32     // IPv6, 20 bits; 0 = the system's choice
	KernelPeer   bool       // FLUSH is sealed as Linux rxe expects it

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

// Flow returns the addressing that covers packets from the local address and
// port to the peer, for the ICRC. Links call it; a call with another local
// than before is not safe beside others.
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
