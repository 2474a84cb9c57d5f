package pingpong

import (
	"encoding/hex"
	"fmt"
	"net/netip"

	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/verbs"
)

// Address is what the two sides tell each other about a queue pair, or, with
// XRC, about two.
type Address struct {
	LID uint16    // 0 on Ethernet
	QPN verbs.QPN // with XRC of the target, which receives
	PSN verbs.PSN // the first that this side sends
	GID interop.GID

	// Only XRC has these, so elsewhere they are 0.
	Initiator verbs.QPN // the queue pair that sends
	SRQN      uint32    // of the shared receive queue
}

// String writes the address as the original prints it: an IPv4 address in its
// mapped form.
func (a Address) String() string {
	gid := netip.AddrFrom16(a.GID)
	if a.Initiator != 0 {
		return fmt.Sprintf("LID %04x, QPN RECV %06x SEND %06x, PSN %06x, SRQN %06x, GID %v",
			a.LID, uint32(a.QPN), uint32(a.Initiator), uint32(a.PSN), a.SRQN, gid)
	}
	return fmt.Sprintf("LID 0x%04x, QPN 0x%06x, PSN 0x%06x, GID %v", a.LID, uint32(a.QPN), uint32(a.PSN), gid)
}

// unused reports whether the message stands for a queue pair that the peer does
// not have.
func (a Address) unused() bool { return a.QPN == 0 }

// form is the form of an address message: numbers in hexadecimal, 4 digits for
// the LID and 6 for each other, with a colon after each, then 32 digits of GID
// and a NUL.
type form uint8

const (
	plainForm    form = iota // LLLL:QQQQQQ:PPPPPP:
	extendedForm             // LLLL:RRRRRR:SSSSSS:PPPPPP:NNNNNN: of receiver, sender, PSN and SRQ
)

const (
	lidDigits    = 4
	numberDigits = 6
	gidDigits    = 32
)

// numbers returns the 24-bit numbers of an address in the order of the form.
func (f form) numbers(a *Address) []*uint32 {
	if f == extendedForm {
		return []*uint32{(*uint32)(&a.QPN), (*uint32)(&a.Initiator), (*uint32)(&a.PSN), &a.SRQN}
	}
	return []*uint32{(*uint32)(&a.QPN), (*uint32)(&a.PSN)}
}

// size returns the bytes of a message: 52, or 66 in the extended form.
func (f form) size() int {
	return lidDigits + 1 + len(f.numbers(&Address{}))*(numberDigits+1) + gidDigits + 1
}

func (f form) String() string {
	if f == extendedForm {
		return "llll:rrrrrr:ssssss:pppppp:nnnnnn: and 32 digits of GID, all hexadecimal, and a NUL"
	}
	return "llll:qqqqqq:pppppp: and 32 digits of GID, all hexadecimal, and a NUL"
}

func (f form) append(b []byte, a Address) []byte {
	b = fmt.Appendf(b, "%04x:", a.LID)
	for _, n := range f.numbers(&a) {
		b = fmt.Appendf(b, "%06x:", *n)
	}
	b = hex.AppendEncode(b, a.GID[:])
	return append(b, 0)
}

func (f form) parse(b []byte) (Address, error) {
	var a Address
	bad := &interop.ProtocolError{Step: addressStep, Got: b, Want: f.String()}
	if len(b) != f.size() || b[len(b)-1] != 0 || b[lidDigits] != ':' {
		return a, bad
	}
	lid, ok := parseHex(b[:lidDigits])
	if !ok {
		return a, bad
	}
	a.LID = uint16(lid)
	at := lidDigits + 1
	for _, n := range f.numbers(&a) {
		if *n, ok = parseHex(b[at : at+numberDigits]); !ok || b[at+numberDigits] != ':' {
			return Address{}, bad
		}
		at += numberDigits + 1
	}
	if _, err := hex.Decode(a.GID[:], b[at:at+gidDigits]); err != nil {
		return Address{}, bad
	}
	return a, nil
}

// parseHex reads at most 8 hexadecimal digits.
func parseHex(b []byte) (uint32, bool) {
	var v uint32
	for _, c := range b {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		v = v<<4 | uint32(c)
	}
	return v, true
}
