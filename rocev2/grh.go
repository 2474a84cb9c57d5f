package rocev2

import (
	"errors"
	"net/netip"
)

// GRHLen is the size in bytes of the global route header (IBTA 8.3). The
// receive buffer of an unreliable datagram begins with as much room.
const GRHLen = 40

// ErrGRH is for 40 bytes that hold neither an IPv4 nor an IPv6 header.
var ErrGRH = errors.New("rocev2: no IP header in the GRH area")

// GRH is what the receiver of an unreliable datagram learns of its IP header:
// 40 bytes in front of the payload. InfiniBand has a global route header there
// (IBTA 8.3), which has the form of an IPv6 header. An IPv4 header takes the
// last 20 bytes (IBTA A17.4.5.1). The first 20 are zero, as Linux has them.
type GRH struct {
	Src, Dst     netip.Addr // both IPv4 or both IPv6
	TrafficClass uint8      // TOS, for IPv4
	HopLimit     uint8      // TTL, for IPv4
	NextHeader   uint8      // protocol, for IPv4: 17, UDP
	Length       uint16     // of what follows the IP header, in bytes: UDP header to ICRC
	FlowLabel    uint32     // 20 bits (RFC 6437); IPv6 only
	ID           uint16     // Identification; IPv4 only
}

// AppendTo appends the 40 bytes to b. For IPv4 it sets DF and computes the
// checksum (RFC 791). Without two addresses of one kind they are zero.
func (h *GRH) AppendTo(b []byte) []byte {
	var w [GRHLen]byte
	src, dst := h.Src.Unmap(), h.Dst.Unmap()
	switch {
	case src.Is4() && dst.Is4():
		ip := w[GRHLen-ipv4Len:]
		ip[0], ip[1] = 0x45, h.TrafficClass
		be.PutUint16(ip[2:], ipv4Len+h.Length)
		be.PutUint16(ip[4:], h.ID)
		ip[6], ip[8], ip[9] = flagDF, h.HopLimit, h.NextHeader
		s, d := src.As4(), dst.As4()
		copy(ip[12:], s[:])
		copy(ip[16:], d[:])
		be.PutUint16(ip[10:], ^onesSum(ip))
	case src.Is6() && dst.Is6():
		be.PutUint32(w[:], 6<<28|uint32(h.TrafficClass)<<20|h.FlowLabel&0xfffff)
		be.PutUint16(w[4:], h.Length)
		w[6], w[7] = h.NextHeader, h.HopLimit
		s, d := src.As16(), dst.As16()
		copy(w[8:], s[:])
		copy(w[24:], d[:])
	}
	return append(b, w[:]...)
}

// Parse decodes the 40 bytes at the start of b. As in Linux, they hold an IPv4
// header if that has a correct checksum, an IPv6 header or a GRH otherwise. The
// error is ErrShort or ErrGRH.
func (h *GRH) Parse(b []byte) error {
	if len(b) < GRHLen {
		return ErrShort
	}
	ip := b[GRHLen-ipv4Len : GRHLen]
	switch {
	case ip[0] == 0x45 && onesSum(ip) == 0xffff && be.Uint16(ip[2:]) >= ipv4Len:
		*h = GRH{
			Src: netip.AddrFrom4([4]byte(ip[12:])), Dst: netip.AddrFrom4([4]byte(ip[16:])),
			TrafficClass: ip[1], HopLimit: ip[8], NextHeader: ip[9],
			Length: be.Uint16(ip[2:]) - ipv4Len, ID: be.Uint16(ip[4:]),
		}
	case b[0]>>4 == 6:
		*h = GRH{
			Src: netip.AddrFrom16([16]byte(b[8:])), Dst: netip.AddrFrom16([16]byte(b[24:])),
			TrafficClass: uint8(be.Uint16(b) >> 4), HopLimit: b[7], NextHeader: b[6],
			Length: be.Uint16(b[4:]), FlowLabel: be.Uint32(b) & 0xfffff,
		}
	default:
		return ErrGRH
	}
	return nil
}

// onesSum returns the ones' complement sum of the 16-bit words of b (RFC 1071).
func onesSum(b []byte) uint16 {
	sum := uint32(0)
	for ; len(b) >= 2; b = b[2:] {
		sum += uint32(be.Uint16(b))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum)
}
