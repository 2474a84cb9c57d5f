package lease

import (
	"crypto/subtle"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"net/netip"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// Opcode is that of envelopes: one of those that IBTA 9.2.1 leaves to
// manufacturers.
const Opcode = 0xd2

// Token is what the owner knows a lease by. No other process can know it.
type Token [16]byte

// MarshalText writes the token in hexadecimal digits.
func (t Token) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, t[:]), nil }

// UnmarshalText reads what MarshalText has written.
func (t *Token) UnmarshalText(b []byte) error {
	if hex.DecodedLen(len(b)) != len(t) {
		return errToken
	}
	_, err := hex.Decode(t[:], b)
	return err
}

var errToken = errors.New("a token has 32 hexadecimal digits")

// HeaderLen is how many bytes an envelope has before what is in it: a BTH, the
// token, and an address with all that an IP header says:
//
//	0  BTH: opcode 0xd2, destination QPN
//	12 token
//	28 address (IPv4 mapped into IPv6), 44 UDP port
//	46 traffic class, 47 hop limit, 48 flow label
//	52 the packet, BTH to pad
const HeaderLen = rocev2.BTHLen + 40

// MaxInner is the longest packet, BTH to pad, that an envelope takes.
const MaxInner = rocev2.MaxPacketLen - HeaderLen - rocev2.ICRCLen

// Envelope is what the header of an envelope says.
type Envelope struct {
	To    rocev2.QPN // steers it to a slot
	Token Token

	// Of the packet inside: where it came from, or what it is for.
	Addr         netip.Addr // plain IPv4 or IPv6, without zone
	Port         uint16     // UDP source port; 0 where it is for Addr
	TrafficClass uint8
	HopLimit     uint8
	FlowLabel    uint32
}

// Put writes an envelope with a packet, BTH to pad, and returns its length,
// which is 0 if there is no room for it.
func (e *Envelope) Put(b, inner []byte) int {
	n := HeaderLen + len(inner)
	if len(b) < n+rocev2.ICRCLen || len(inner) < rocev2.BTHLen {
		return 0
	}
	clear(b[:rocev2.BTHLen])
	b[0] = Opcode
	b[2], b[3] = 0xff, 0xff // the default partition
	binary.BigEndian.PutUint32(b[4:], uint32(e.To&rocev2.QPNMask))
	copy(b[12:], e.Token[:])
	addr := e.Addr.As16()
	copy(b[28:], addr[:])
	binary.BigEndian.PutUint16(b[44:], e.Port)
	b[46], b[47] = e.TrafficClass, e.HopLimit
	binary.BigEndian.PutUint32(b[48:], e.FlowLabel)
	return HeaderLen + copy(b[HeaderLen:], inner)
}

// IsEnvelope reports whether a received packet, BTH to ICRC, claims to be an
// envelope.
func IsEnvelope(data []byte) bool { return data[0] == Opcode }

// Open reads an envelope, BTH to ICRC. What is inside, BTH to pad, is followed
// by the four bytes of the envelope's ICRC, which are not part of inner. It
// reports false for what is too short.
func (e *Envelope) Open(data []byte) (inner []byte, ok bool) {
	if len(data) < HeaderLen+rocev2.BTHLen+rocev2.ICRCLen || data[0] != Opcode {
		return nil, false
	}
	e.To = rocev2.QPN(binary.BigEndian.Uint32(data[4:])) & rocev2.QPNMask
	e.Token = Token(data[12:28])
	e.Addr = netip.AddrFrom16([16]byte(data[28:44])).Unmap()
	e.Port = binary.BigEndian.Uint16(data[44:])
	e.TrafficClass, e.HopLimit = data[46], data[47]
	e.FlowLabel = binary.BigEndian.Uint32(data[48:]) & 0xfffff
	return data[HeaderLen : len(data)-rocev2.ICRCLen], true
}

// unwrap makes p the packet that is inside of it, if it is an envelope from
// local with the token. The ICRC is weak where the kernel has cut a run into
// packets: the token makes up for it. Else p stays, and its opcode is one that
// is not taken.
func unwrap(p *transport.RxPacket, local netip.Addr, token *Token) bool {
	var e Envelope
	if p.ICRC != transport.ICRCVerified && p.ICRC != transport.ICRCWeak || p.Src != local {
		return false
	}
	inner, ok := e.Open(p.Data)
	if !ok || subtle.ConstantTimeCompare(e.Token[:], token[:]) == 0 || !e.Addr.IsValid() || e.Addr.Is4() != local.Is4() {
		return false
	}
	p.Data = p.Data[HeaderLen : HeaderLen+len(inner)+rocev2.ICRCLen]
	p.Src, p.SrcPort = e.Addr, e.Port
	p.TrafficClass, p.HopLimit, p.FlowLabel = e.TrafficClass, e.HopLimit, e.FlowLabel
	p.IPID, p.ICRC = 0, transport.ICRCAbsent // the owner has checked it
	return true
}
