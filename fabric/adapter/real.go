package adapter

import (
	"net/netip"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// keepSealed stores the packet of the batch as it is on the wire, with its
// ICRC.
func (a *part) keepSealed(h *Host, k *record) {
	a.tx.SealAll(netip.AddrPortFrom(addrOf(h.number), rocev2.UDPPort), false)
	data, _ := a.tx.Sealed(0)
	a.records.keep(k, data)
}

// check checks the ICRC of a packet (IBTA 7.8.1).
func (h *Host) check(p *transport.RxPacket) {
	flow := rocev2.NewFlow(p.Src, p.Dst, p.SrcPort, rocev2.UDPPort)
	p.ICRC = transport.ICRCBad
	if flow.Verify(0, p.Data) {
		p.ICRC = transport.ICRCVerified
	}
}
