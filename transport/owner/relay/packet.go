package relay

import (
	"encoding/binary"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// PacketLen is the length of each packet with a management datagram, BTH to
// pad, without ICRC.
const PacketLen = rocev2.BTHLen + rocev2.DETHLen + mad.Len

var be = binary.BigEndian

// MAD returns the management datagram in a packet, BTH to pad or to ICRC. It
// reports false for what a queue pair 1 would not take from another one (IBTA
// 13.5.1).
func MAD(b []byte) ([]byte, bool) {
	if len(b) != PacketLen && len(b) != PacketLen+rocev2.ICRCLen {
		return nil, false
	}
	ok := rocev2.Opcode(b[0]) == rocev2.UDSendOnly && b[1]&0x3f == 0 && // pad and version
		b[2]&0x7f == 0x7f && b[3] == 0xff &&
		be.Uint32(b[4:])&0xffffff == uint32(rocev2.GSIQPN) &&
		be.Uint32(b[12:]) == mad.QKey && be.Uint32(b[16:])&0xffffff == uint32(rocev2.GSIQPN)
	return b[rocev2.BTHLen+rocev2.DETHLen : PacketLen : PacketLen], ok
}

// putHeaders writes what is before the management datagram.
func putHeaders(b []byte, psn rocev2.PSN) {
	p := rocev2.Packet{
		BTH:  rocev2.BTH{Opcode: rocev2.UDSendOnly, PKey: rocev2.DefaultPKey, DestQPN: rocev2.GSIQPN, PSN: psn & rocev2.PSNMask},
		DETH: rocev2.DETH{QKey: mad.QKey, SrcQPN: rocev2.GSIQPN},
	}
	p.AppendHeaders(b[:0])
}

// message is what routes a MAD of connection management.
type message struct {
	attribute     mad.Attribute
	local, remote mad.CommID // the sender's and the receiver's; of SIDR the request ID
}

// read reads the IDs. All messages but REQ, SIDR_REQ and SIDR_REP begin with
// both.
func read(h *mad.Header, b []byte) message {
	body := b[mad.HeaderLen:]
	m := message{attribute: h.Attribute, local: mad.CommID(be.Uint32(body)), remote: mad.CommID(be.Uint32(body[4:]))}
	switch h.Attribute {
	case mad.AttrREQ, mad.AttrSIDRREQ:
		m.remote = 0
	case mad.AttrSIDRREP:
		m.local, m.remote = 0, m.local
	}
	return m
}

// slotOf returns the slot that an ID is of.
func slotOf(id mad.CommID) int { return int(id & (Slots - 1)) }
