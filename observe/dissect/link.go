package dissect

import (
	"encoding/binary"
	"net/netip"
)

var be = binary.BigEndian

// EtherTypes.
const (
	typeIPv4   = 0x0800
	typeIPv6   = 0x86dd
	typeVLAN   = 0x8100
	typeQinQ   = 0x88a8
	typeQinQ2  = 0x9100
	typeRoCEv1 = 0x8915
)

// maxTags is how many VLAN tags are skipped at most.
const maxTags = 4

// network finds the IP packet in a frame, and the number of the innermost VLAN,
// or -1 without one. It is nil if there is none.
func network(link LinkType, b []byte) (ip []byte, vlan int) {
	switch link {
	case LinkEthernet:
		if len(b) < 14 {
			return nil, -1
		}
		return tagged(be.Uint16(b[12:]), b[14:])
	case LinkSLL:
		if len(b) < 16 {
			return nil, -1
		}
		return tagged(be.Uint16(b[14:]), b[16:])
	case LinkSLL2:
		if len(b) < 20 {
			return nil, -1
		}
		return tagged(be.Uint16(b), b[20:])
	case LinkNull, LinkLoop:
		if len(b) < 4 {
			return nil, -1
		}
		return b[4:], -1
	case LinkRaw, LinkIPv4, LinkIPv6, 12, 14: // 12 and 14: raw IP on some systems
		return b, -1
	}
	return nil, -1
}

// tagged skips VLAN tags.
func tagged(kind uint16, b []byte) (ip []byte, vlan int) {
	vlan = -1
	for range maxTags {
		switch kind {
		case typeIPv4, typeIPv6:
			return b, vlan
		case typeVLAN, typeQinQ, typeQinQ2:
			if len(b) < 4 {
				return nil, vlan
			}
			vlan = int(be.Uint16(b) & 0xfff)
			kind, b = be.Uint16(b[2:]), b[4:]
		default:
			return nil, vlan
		}
	}
	return nil, vlan
}

// IP is what a packet's IP header says.
type IP struct {
	Src, Dst  netip.Addr
	Class     uint8  // TOS, or traffic class: 4 × DSCP + ECN
	HopLimit  uint8  // TTL, or hop limit
	ID        uint16 // IPv4: Identification
	DF        bool   // IPv4: don't fragment
	FlowLabel uint32 // IPv6

	// Fragment is true for a fragment, and Options for a header with
	// options or extension headers. The ICRC does not know them.
	Fragment, Options bool

	header int // bytes of the headers
	total  int // bytes of the packet, as its header says
}

// ECN returns the congestion bits: 0 not capable, 1 and 2 capable, 3 congestion
// experienced (RFC 3168).
func (h *IP) ECN() uint8 { return h.Class & 3 }

const protoUDP = 17

// parse reads the IP headers of b and reports whether UDP follows.
func (h *IP) parse(b []byte) bool {
	*h = IP{}
	if len(b) < 20 {
		return false
	}
	switch b[0] >> 4 {
	case 4:
		return h.parse4(b)
	case 6:
		return len(b) >= 40 && h.parse6(b)
	}
	return false
}

func (h *IP) parse4(b []byte) bool {
	h.header = int(b[0]&15) * 4
	h.total = int(be.Uint16(b[2:]))
	if h.header < 20 || b[9] != protoUDP || len(b) < h.header {
		return false
	}
	h.Class, h.HopLimit, h.ID = b[1], b[8], be.Uint16(b[4:])
	flags := be.Uint16(b[6:])
	h.DF = flags&0x4000 != 0
	h.Fragment = flags&0x3fff != 0
	h.Options = h.header > 20
	h.Src, h.Dst = netip.AddrFrom4([4]byte(b[12:])), netip.AddrFrom4([4]byte(b[16:]))
	return flags&0x1fff == 0
}

// maxExtensions is how many extension headers are skipped at most.
const maxExtensions = 8

func (h *IP) parse6(b []byte) bool {
	first := be.Uint32(b)
	h.Class, h.FlowLabel = uint8(first>>20), first&0xfffff
	h.HopLimit = b[7]
	h.total = 40 + int(be.Uint16(b[4:]))
	h.Src, h.Dst = netip.AddrFrom16([16]byte(b[8:])), netip.AddrFrom16([16]byte(b[24:]))
	h.header = 40
	next := b[6]
	for range maxExtensions {
		rest := b[h.header:]
		if next == protoUDP {
			return true
		}
		if len(rest) < 8 {
			return false
		}
		h.Options = true
		switch next {
		case 0, 43, 60: // hop by hop, routing, destination options
			n := 8 + int(rest[1])*8
			if len(rest) < n {
				return false
			}
			next, h.header = rest[0], h.header+n
		case 44: // fragment
			h.Fragment = true
			if be.Uint16(rest[2:])&0xfff8 != 0 {
				return false
			}
			next, h.header = rest[0], h.header+8
		default:
			return false
		}
	}
	return false
}
