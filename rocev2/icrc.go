package rocev2

import "net/netip"

// Flow is the IP and UDP addressing of packets, as far as the ICRC covers it
// (IBTA A17.3.3). It is a small value, to be prepared once for a peer; its
// methods may be called from any number of goroutines, and none of them
// allocates memory.
//
// IPv4 packets are taken to have no options and to be sent with DF, IPv6
// packets to have no extension headers.
type Flow struct {
	base uint32 // register at the end of the UDP header, with lengths and Identification 0
	kind flowKind
}

type flowKind uint8

const (
	flowInvalid flowKind = iota
	flowIPv4
	flowIPv6
)

const (
	protoUDP    = 17
	flagDF      = 0x40 // in the first byte of flags and fragment offset
	lrhStandIn  = 8    // bytes of 0xff in front, for the local route header that the ICRC once covered
	flushHeader = BTHLen + FETHLen + RETHLen
)

// NewFlow returns the flow from src to dst. IPv4 addresses may come in IPv6
// form. If the addresses are not both IPv4 or both IPv6, the flow is not valid,
// as the zero Flow is: nothing verifies.
func NewFlow(src, dst netip.Addr, srcPort, dstPort uint16) Flow {
	src, dst = src.Unmap(), dst.Unmap()
	var f Flow
	var h [lrhStandIn + ipv6Len + udpLen]byte
	b := append(h[:0], 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)
	switch {
	case src.Is4() && dst.Is4():
		f.kind = flowIPv4
		// IPv4 (RFC 791): version; TOS, masked; total length,
		// Identification; DF; TTL, masked; protocol; checksum, masked.
		b = append(b, 0x45, 0xff, 0, 0, 0, 0, flagDF, 0, 0xff, protoUDP, 0xff, 0xff)
		s, d := src.As4(), dst.As4()
		b = append(append(b, s[:]...), d[:]...)
	case src.Is6() && dst.Is6():
		f.kind = flowIPv6
		// IPv6 (RFC 8200): version; traffic class and flow label,
		// masked; payload length; next header; hop limit, masked.
		b = append(b, 0x6f, 0xff, 0xff, 0xff, 0, 0, protoUDP, 0xff)
		s, d := src.As16(), dst.As16()
		b = append(append(b, s[:]...), d[:]...)
	default:
		return f
	}
	b = be.AppendUint16(b, srcPort)
	b = be.AppendUint16(b, dstPort)
	b = append(b, 0, 0, 0xff, 0xff) // length; checksum, masked
	f.base = updateShort(^uint32(0), b)
	return f
}

// Valid reports whether f was made from two addresses of one kind.
func (f *Flow) Valid() bool { return f.kind != flowInvalid }

// start returns the register in front of a packet of n bytes, BTH to pad, whose
// byte 4 is given.
func (f *Flow) start(ipID uint16, n int, bth4 byte) uint32 {
	length := uint16(udpLen + n + ICRCLen)
	r := f.base ^ field(&udpLengthTables, length) ^ maskTable[bth4]
	if f.kind == flowIPv4 {
		r ^= field(&ipv4LengthTables, length+ipv4Len)
		if ipID != 0 {
			r ^= field(&ipv4IDTables, ipID)
		}
		return r
	}
	return r ^ field(&ipv6LengthTables, length)
}

// ICRC returns the invariant CRC of a packet. b is the packet from BTH to pad,
// at least a BTH, without the ICRC; ipID is the IPv4 Identification of the
// datagram, which IPv6 does not have.
func (f *Flow) ICRC(ipID uint16, b []byte) uint32 {
	return ^update(f.start(ipID, len(b), b[4]), b)
}

// ICRCOf is ICRC for a packet in two parts, of which the first has a BTH at
// least. It is not for a FLUSH to Linux.
func (f *Flow) ICRCOf(ipID uint16, head, rest []byte) uint32 {
	return ^update(update(f.start(ipID, len(head)+len(rest), head[4]), head), rest)
}

// kernelFlushICRC is the ICRC that Linux (rxe, at least up to 6.12) computes
// for a FLUSH: it takes the payload to begin at the BTH, so everything from
// there counts once more after the headers, and without mask.
func (f *Flow) kernelFlushICRC(ipID uint16, b []byte) uint32 {
	return ^update(update(f.start(ipID, len(b), b[4]), b[:flushHeader]), b)
}

// isFlush reports whether b, without ICRC, is a FLUSH of the kind that Linux
// sends.
func isFlush(b []byte) bool { return Opcode(b[0]) == RCFlush && len(b) >= flushHeader }

// Seal appends the ICRC of b (IBTA 7.8.1, A17.3.3) to b, which is a packet from
// BTH to pad. It checks neither b nor ipID.
func (f *Flow) Seal(ipID uint16, b []byte) []byte {
	return le.AppendUint32(b, f.ICRC(ipID, b))
}

// SealKernelFlush is Seal for a packet to Linux: the ICRC of an RC FLUSH is the
// one that Linux expects, which is not the standard's. Other packets are sealed
// as Seal does.
func (f *Flow) SealKernelFlush(ipID uint16, b []byte) []byte {
	if isFlush(b) {
		return le.AppendUint32(b, f.kernelFlushICRC(ipID, b))
	}
	return f.Seal(ipID, b)
}

// split takes the ICRC off a packet. It reports false if there is no packet or
// nothing to compute with.
func (f *Flow) split(b []byte) (body []byte, icrc uint32, ok bool) {
	n := len(b) - ICRCLen
	if n < BTHLen || f.kind == flowInvalid {
		return nil, 0, false
	}
	return b[:n], le.Uint32(b[n:]), true
}

// Verify reports whether the ICRC at the end of b, which is a packet from BTH
// to ICRC, is right, all 32 bits of it. An RC FLUSH may have the ICRC of the
// standard or the one of Linux.
func (f *Flow) Verify(ipID uint16, b []byte) bool {
	b, icrc, ok := f.split(b)
	if !ok {
		return false
	}
	return f.ICRC(ipID, b) == icrc || isFlush(b) && f.kernelFlushICRC(ipID, b) == icrc
}

// Recover is Verify for a receiver that cannot see the IPv4 Identification,
// such as a UDP socket. It finds the Identification with which the ICRC is
// right, if there is one. This leaves 16 of the 32 bits as a check: one in
// 65536 damaged packets passes, always with another Identification than it was
// sent with. Where the caller expects a certain Identification and finds it,
// all 32 bits are checked.
//
// For IPv6 it is Verify, and the Identification is 0.
//
// It takes about as long as Verify. b is a packet from BTH to ICRC; one whose
// length is no multiple of 4, or more than MaxPacketLen, is not right.
func (f *Flow) Recover(b []byte) (ipID uint16, ok bool) {
	b, icrc, ok := f.split(b)
	if !ok || len(b)&3 != 0 || len(b) > MaxPacketLen-ICRCLen {
		return 0, false
	}
	diff := f.ICRC(0, b) ^ icrc
	if diff == 0 {
		return 0, true
	}
	if isFlush(b) {
		return f.recoverFlush(b, diff, icrc)
	}
	if f.kind == flowIPv6 {
		return 0, false
	}
	return recoverID(diff, idToBTH+len(b))
}

// idToBTH is how many bytes lie between the start of the Identification and the
// BTH.
const idToBTH = ipv4Len - 4 + udpLen

// recoverFlush is the rest of Recover for a FLUSH, whose ICRC is not the
// standard's for Identification 0.
func (f *Flow) recoverFlush(b []byte, diff, icrc uint32) (ipID uint16, ok bool) {
	kernelDiff := f.kernelFlushICRC(0, b) ^ icrc
	if kernelDiff == 0 {
		return 0, true
	}
	if f.kind == flowIPv6 {
		return 0, false
	}
	if ipID, ok = recoverID(diff, idToBTH+len(b)); ok {
		return ipID, true
	}
	return recoverID(kernelDiff, idToBTH+flushHeader+len(b))
}

// recoverID must reach over the longest packet, and the Linux FLUSH of that
// length.
const _ = uint(maxRecede - idToBTH - flushHeader - MaxPacketLen)

// VerifyDatagram reports whether the ICRC of a whole IP datagram is right: b
// begins with the IP header, as raw sockets and captures have it, and may be
// longer than the datagram. Nothing is assumed about what the ICRC covers, DF
// included. It is false for what is not UDP directly after an IP header without
// options, whatever the ports, and for fragments.
func VerifyDatagram(b []byte) bool {
	var h [lrhStandIn + ipv6Len + udpLen + BTHLen]byte
	n := ipv4Len
	switch {
	case len(b) < ipv4Len+udpLen:
		return false
	case b[0] == 0x45 && b[9] == protoUDP && be.Uint16(b[6:])&0x3fff == 0:
	case b[0]>>4 == 6 && b[6] == protoUDP && len(b) >= ipv6Len+udpLen:
		n = ipv6Len
	default:
		return false
	}
	length := int(be.Uint16(b[n+4:])) - udpLen
	packet := b[n+udpLen:]
	if length < BTHLen+ICRCLen || length > len(packet) {
		return false
	}
	packet = packet[:length-ICRCLen]
	icrc := le.Uint32(b[n+udpLen+len(packet):])
	masked := h[lrhStandIn : lrhStandIn+n+udpLen+BTHLen]
	copy(masked, b)
	for i := range lrhStandIn {
		h[i] = 0xff
	}
	if n == ipv4Len {
		masked[1], masked[8], masked[10], masked[11] = 0xff, 0xff, 0xff, 0xff
	} else {
		masked[0], masked[1], masked[2], masked[3], masked[7] = 0x6f, 0xff, 0xff, 0xff, 0xff
	}
	masked[n+6], masked[n+7], masked[n+udpLen+4] = 0xff, 0xff, 0xff
	r := updateShort(^uint32(0), h[:lrhStandIn+len(masked)])
	if ^update(r, packet[BTHLen:]) == icrc {
		return true
	}
	return isFlush(packet) && ^update(update(r, packet[BTHLen:flushHeader]), packet) == icrc
}
