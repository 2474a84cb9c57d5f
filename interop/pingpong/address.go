package pingpong

import (
	"encoding/hex"
	"fmt"
	"net/netip"

	"github.com/gosoftroce/rocev2/interop"
	"github.com/gosoftroce/rocev2/verbs"
)

// Address is what the two sides tell each other.
type Address struct {
	LID uint16 // 0 on Ethernet
	QPN verbs.QPN
	PSN verbs.PSN // the first that this side sends
	GID interop.GID
}

// String writes the address as the original prints it: an IPv4 address in its
// mapped form.
func (a Address) String() string {
	return fmt.Sprintf("LID 0x%04x, QPN 0x%06x, PSN 0x%06x, GID %v", a.LID, uint32(a.QPN), uint32(a.PSN), netip.AddrFrom16(a.GID))
}

// addressLen is the size of an address message:
// LLLL:QQQQQQ:PPPPPP: and 32 digits of GID, all hexadecimal, then a NUL.
const addressLen = 4 + 1 + 6 + 1 + 6 + 1 + 32 + 1

const addressForm = "llll:qqqqqq:pppppp: and 32 digits of GID, all hexadecimal, and a NUL"

func (a Address) append(b []byte) []byte {
	b = fmt.Appendf(b, "%04x:%06x:%06x:", a.LID, uint32(a.QPN), uint32(a.PSN))
	b = hex.AppendEncode(b, a.GID[:])
	return append(b, 0)
}

func parseAddress(b []byte) (Address, error) {
	var a Address
	bad := &interop.ProtocolError{Step: "address", Got: b, Want: addressForm}
	if len(b) != addressLen || b[4] != ':' || b[11] != ':' || b[18] != ':' || b[addressLen-1] != 0 {
		return a, bad
	}
	lid, ok1 := parseHex(b[:4])
	qpn, ok2 := parseHex(b[5:11])
	psn, ok3 := parseHex(b[12:18])
	if _, err := hex.Decode(a.GID[:], b[19:51]); err != nil || !ok1 || !ok2 || !ok3 {
		return Address{}, bad
	}
	a.LID, a.QPN, a.PSN = uint16(lid), verbs.QPN(qpn), verbs.PSN(psn)
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
