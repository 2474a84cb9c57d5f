package dissect

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/psp"
)

// Sealed is what a packet that is sealed shows (package rocev2/psp): its header
// and its length, and with a key what is in it.
type Sealed struct {
	Present bool // the packet is sealed
	psp.Header
	Length int // from the header to the integrity check value, in bytes

	// Opened is true if the rest of the Packet is what is in it. Verified
	// is true if a key says that this is what was sent: the versions that
	// only authenticate can be read without one.
	Opened, Verified bool

	// Closed says why it is not opened: ErrNoKey, ErrWrongKey, or ErrCut.
	// It is nil for one that is malformed.
	Closed error

	key  uint32 // the serial number of the key that has opened it
	head []byte // headers of IP and UDP, if it is opened

	// ICRC says whether the ICRC in it is right. Receivers do not look at
	// it: an address that was translated on the way makes it wrong.
	ICRC Verdict
}

// QPN returns the queue pair that the packet is for.
func (s *Sealed) QPN() rocev2.QPN { return rocev2.QPN(s.SPI) & rocev2.QPNMask }

// Generation returns which key of the queue pair it is, from 0; it comes round
// after 128.
func (s *Sealed) Generation() uint8 { return uint8(s.SPI>>24) & 127 }

// errInside is for what no receiver takes although it was sealed.
var errInside = errors.New("what was sealed is no RoCEv2 packet over UDP")

// isSealed reports whether the payload of a UDP datagram begins as a sealed
// packet does: no RoCEv2 packet has a BTH of version 1.
func isSealed(b []byte) bool { return len(b) > 1 && b[0] == psp.UDP && b[1] == 1 }

// sealedSize returns the size of the pieces of a datagram that begins with a
// sealed packet, or 0 if it is the only one: the UDP header in a packet of this
// software can be read, and has its length.
func sealedSize(b []byte, length int) int {
	const udp, clear = 8, 2 // clear is in words
	if !isSealed(b) || len(b) < psp.HeaderLen+udp || b[2]&63 < clear {
		return 0
	}
	size := psp.HeaderLen + int(be.Uint16(b[psp.HeaderLen+4:])) + psp.ICVLen
	if size < psp.HeaderLen+udp+psp.ICVLen || size >= length {
		return 0
	}
	return size
}

// sealed fills in a packet that is sealed: its datagram begins with the headers
// of head, and b is what was captured of it.
func (d *decoder) sealed(p *Packet, head, b []byte, length int) {
	s := &p.Sealed
	s.Present, s.Length = true, length
	whole := b
	if len(b) < length {
		whole = d.fill(b, length)
	}
	h, n, err := psp.Parse(whole)
	if err == nil && len(b) < psp.HeaderLen {
		err = ErrCut
	}
	if err != nil {
		d.malformed(p, b, length, err)
		p.HasBTH = false
		return
	}
	s.Header = h
	if len(b) < length {
		d.close(p, b, length, ErrCut)
		return
	}
	at := len(d.opened)
	plain, key, err := d.keys.open(d.opened, b, &h, p.IP.Dst)
	switch {
	case err == nil:
		s.Verified, s.key = true, key
	case errors.Is(err, ErrBadICV):
		d.malformed(p, b, length, err)
		p.HasBTH = false
		return
	case h.Version.Encrypts():
		d.close(p, b, length, err)
		return
	default:
		plain = append(d.opened, b[n:len(b)-psp.ICVLen]...)
	}
	d.opened = plain
	d.inside(p, head, plain[at:])
}

// close fills in a packet that cannot be opened.
func (d *decoder) close(p *Packet, b []byte, length int, why error) {
	d.malformed(p, b, length, why)
	p.HasBTH, p.Sealed.Closed = false, why
}

// inside fills in what is in a sealed packet: a UDP header and the rest.
func (d *decoder) inside(p *Packet, head, plain []byte) {
	const udp = 8
	s := &p.Sealed
	s.Opened = true
	if s.Next != psp.UDP || len(plain) < udp+rocev2.BTHLen+rocev2.ICRCLen {
		d.malformed(p, plain[min(udp, len(plain)):], max(0, len(plain)-udp), errInside)
		return
	}
	// The ICRC is that of the UDP header inside, and of an Identification
	// of 0.
	at := len(d.opened)
	d.opened = append(append(d.opened, head[:len(head)-udp]...), plain[:udp]...)
	s.head = d.opened[at:]
	id := p.IP.ID
	d.packet(p, s.head, plain[udp:], len(plain)-udp, 0)
	p.IP.ID = id
	s.ICRC = p.ICRC
	if p.ICRC == ICRCBad {
		p.ICRC = ICRCGood // what a receiver makes of it
	}
}

// AppendPlain appends an IP packet with what is in an opened packet, as it
// would have been sent in clear: its ICRC fits. Of other packets it appends
// nothing.
func (p *Packet) AppendPlain(b []byte) []byte {
	head := p.Sealed.head
	if len(head) == 0 || p.IP.Options {
		return b
	}
	const udp = 8
	begin := len(b)
	b = append(append(b, head...), p.raw...)
	ip, rest := b[begin:begin+len(head)-udp], b[begin+len(head)-udp:]
	be.PutUint16(rest[6:], 0)
	var addresses []byte
	if ip[0]>>4 == 4 {
		be.PutUint16(ip[2:], uint16(len(ip)+len(rest)))
		be.PutUint16(ip[4:], 0)
		be.PutUint16(ip[10:], 0)
		be.PutUint16(ip[10:], ^checksum(0, ip))
		addresses = ip[12:20]
	} else {
		be.PutUint16(ip[4:], uint16(len(rest)))
		addresses = ip[8:40]
	}
	sum := checksum(checksum(protoUDP, be.AppendUint16(nil, uint16(len(rest)))), addresses)
	if sum = ^checksum(sum, rest); sum == 0 {
		sum = 0xffff // 0 means none (RFC 768)
	}
	be.PutUint16(rest[6:], sum)
	return b
}

// checksum adds b to an Internet checksum (RFC 1071).
func checksum(sum uint16, b []byte) uint16 {
	n := uint32(sum)
	for ; len(b) > 1; b = b[2:] {
		n += uint32(be.Uint16(b))
	}
	if len(b) == 1 {
		n += uint32(b[0]) << 8
	}
	for n > 0xffff {
		n = n&0xffff + n>>16
	}
	return uint16(n)
}

// closed reports whether the packet is sealed, and stays so.
func (p *Packet) closed() bool { return p.Sealed.Closed != nil }

// Malformed reports whether no receiver takes the packet, as Err says. A sealed
// packet that is not opened has an Err, and is none of them.
func (p *Packet) Malformed() bool { return p.Err != nil && !p.closed() }

// brief writes what a sealed packet shows without a key.
func (s *Sealed) brief(b *strings.Builder) {
	fmt.Fprintf(b, "%-22s qp %v generation %d iv %d len %d", "SEALED "+strings.TrimPrefix(s.Version.String(), "AES-"), s.QPN(), s.Generation(), s.IV, s.Length)
}

// note says in short what is to be said of a sealed packet.
func (s *Sealed) note() string {
	switch {
	case s.Closed != nil && errors.Is(s.Closed, ErrCut):
		return ""
	case s.Closed != nil && errors.Is(s.Closed, ErrNoKey):
		return "no key"
	case s.Closed != nil:
		return "no key fits"
	case s.Opened && !s.Verified:
		return "opened, not verified: no key"
	case s.Opened && s.ICRC == ICRCBad:
		return "opened; its ICRC is wrong, which receivers do not look at"
	case s.Opened:
		return "opened"
	}
	return ""
}

// detail writes all that a sealed packet shows without a key.
func (s *Sealed) detail(row rowFunc) {
	if !s.Present {
		return
	}
	row("PSP", "%v, SPI 0x%08x: qp %v, generation %d, IV %d, %d B after the header in clear%s", s.Version, s.SPI, s.QPN(), s.Generation(), s.IV, s.CryptOffset,
		set(bitName{s.Sample, "sample"}, bitName{s.Drop, "drop"}, bitName{s.Virtual, fmt.Sprintf("cookie %#x", s.Cookie)}))
	state := "opened"
	switch {
	case s.Closed != nil:
		state = s.Closed.Error()
	case !s.Opened:
		state = "not opened"
	case !s.Verified:
		state = "it is not encrypted, and without a key not verified"
	}
	row("sealed", "%d B, %s", s.Length, state)
}

// sealed adds what a sealed packet shows without a key.
func (f *fields) sealed(s *Sealed) {
	if !s.Present {
		return
	}
	f.flag("rocev2.sealed", true)
	f.flag("rocev2.opened", s.Opened)
	f.flag("rocev2.verified", s.Verified)
	f.add("rocev2.psp.version", s.Version.String())
	f.number("rocev2.psp.spi", uint64(s.SPI))
	f.number("rocev2.psp.qpn", uint64(s.QPN()))
	f.number("rocev2.psp.generation", uint64(s.Generation()))
	f.add("rocev2.psp.iv", Hex(s.IV))
	f.number("rocev2.psp.length", uint64(s.Length))
	if s.Closed != nil {
		f.add("rocev2.psp.closed", s.Closed.Error())
	}
	if s.Opened && s.ICRC != ICRCUnknown {
		f.add("rocev2.psp.icrc", s.ICRC.String())
	}
}
