package adapter

import (
	"cmp"
	"encoding/binary"

	"github.com/gosoftroce/rocev2/fabric/network"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// A switch may cut the payload off a packet and send the header on
// (network.Trimmed). If it was a response to a READ, the host that gets it asks
// for it again. If it was a request, its header goes back to the sender, in the
// class that it came in, and the sender sends the request again.

// returned is the mark of a header that has come back to its sender.
const returned network.Flags = 1 << 7

// IsReturned reports whether a packet is a header that goes back to its sender,
// because a switch has cut its payload off.
func IsReturned(p *network.Packet) bool { return p.Flags&returned != 0 }

// mostReturns bounds the headers of a host that are to go back, where their
// class is paused. The loss of others shows later, by what comes after them.
const mostReturns = 4096

// header is one that goes back.
type header struct {
	to, srcPort uint16
	dscp        uint8
	opcode      uint8
	qpn         rocev2.QPN // of the sender
	psn         rocev2.PSN
}

// trimmed takes a header without its payload.
func (h *Host) trimmed(now clock.Time, k *record, p *network.Packet) {
	bth := k.data[:rocev2.BTHLen]
	qpn := rocev2.QPN(binary.BigEndian.Uint32(bth[4:]) & 0xffffff)
	psn := rocev2.PSN(binary.BigEndian.Uint32(bth[8:]) & 0xffffff)
	info, known := rocev2.Opcode(bth[0]).Info()
	switch q := h.e.Lookup(qpn); {
	case q == nil || !known:
	case p.Flags&returned != 0 || info.Role == rocev2.RoleResponse:
		h.e.Lost(now, qpn, psn, p.Flags&returned == 0)
	case len(h.returns) < mostReturns:
		h.returns = append(h.returns, header{to: p.Src, srcPort: p.SrcPort, dscp: p.DSCP, opcode: bth[0], qpn: q.Core().Attr().DestQPN, psn: psn})
	}
}

// pullReturn writes the first header that is to go back, and reports whether
// there is one that may be sent.
func (h *Host) pullReturn(paused uint8, p *network.Packet) bool {
	if len(h.returns) == 0 {
		return false
	}
	r := h.returns[0]
	if paused>>h.a.net.ClassOf(r.dscp)&1 != 0 {
		return false
	}
	h.returns = h.returns[:copy(h.returns, h.returns[1:])]
	handle, k := h.part.take()
	*k = record{n: rocev2.BTHLen, trafficClass: r.dscp << 2}
	k.data[0] = r.opcode
	binary.BigEndian.PutUint32(k.data[4:], uint32(r.qpn))
	binary.BigEndian.PutUint32(k.data[8:], uint32(r.psn))
	p.Handle, p.Dst, p.SrcPort = handle, r.to, cmp.Or(r.srcPort, rocev2.UDPPort)
	p.DSCP, p.Flags = r.dscp, network.Trimmed|returned
	p.Size = uint16(network.WireSize(ipHeaders + rocev2.BTHLen + rocev2.ICRCLen))
	return true
}
