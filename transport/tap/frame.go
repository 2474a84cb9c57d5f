package tap

import (
	"encoding/binary"
	"net/netip"

	"github.com/gosoftroce/rocev2/rocev2"
)

// header is what the IP and UDP headers of a packet are made from.
type header struct {
	src, dst netip.AddrPort
	id       uint16 // IPv4 Identification
	class    uint8  // TOS or traffic class
	hops     uint8  // 0 = defaultHops
	label    uint32 // IPv6 flow label
	seal     bool   // the packet has no ICRC yet
}

const (
	defaultHops = 64
	protoUDP    = 17
	udpLen      = 8
)

// appendFrame appends the IP packet with data as its UDP payload.
func appendFrame(b []byte, h *header, data []byte) []byte {
	be := binary.BigEndian
	hops := h.hops
	if hops == 0 {
		hops = defaultHops
	}
	udp := udpLen + len(data)
	var sum uint32
	if h.src.Addr().Is4() {
		start := len(b)
		b = append(b, 0x45, h.class)
		b = be.AppendUint16(b, uint16(20+udp))
		b = be.AppendUint16(b, h.id)
		b = append(b, 0x40, 0, hops, protoUDP, 0, 0) // don't fragment
		b = append(b, h.src.Addr().AsSlice()...)
		b = append(b, h.dst.Addr().AsSlice()...)
		be.PutUint16(b[start+10:], ^fold(add(0, b[start:])))
		sum = add(0, b[start+12:])
	} else {
		start := len(b)
		b = be.AppendUint32(b, 6<<28|uint32(h.class)<<20|h.label&0xfffff)
		b = be.AppendUint16(b, uint16(udp))
		b = append(b, protoUDP, hops)
		b = append(b, h.src.Addr().AsSlice()...)
		b = append(b, h.dst.Addr().AsSlice()...)
		sum = add(0, b[start+8:])
	}
	start := len(b)
	b = be.AppendUint16(b, h.src.Port())
	b = be.AppendUint16(b, h.dst.Port())
	b = be.AppendUint16(b, uint16(udp))
	b = append(b, 0, 0)
	b = append(b, data...)
	if h.seal && len(data) >= rocev2.BTHLen+rocev2.ICRCLen {
		flow := rocev2.NewFlow(h.src.Addr(), h.dst.Addr(), h.src.Port(), h.dst.Port())
		flow.Seal(h.id, b[start+udpLen:len(b)-rocev2.ICRCLen])
	}
	check := ^fold(add(sum+protoUDP+uint32(udp), b[start:]))
	if check == 0 {
		check = 0xffff // 0 means none (RFC 768)
	}
	be.PutUint16(b[start+6:], check)
	return b
}

// add adds b to an Internet checksum (RFC 1071).
func add(sum uint32, b []byte) uint32 {
	for ; len(b) > 1; b = b[2:] {
		sum += uint32(b[0])<<8 | uint32(b[1])
	}
	if len(b) == 1 {
		sum += uint32(b[0]) << 8
	}
	return sum
}

func fold(sum uint32) uint16 {
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return uint16(sum)
}
