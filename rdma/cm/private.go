package cm

import (
	"bytes"
	"strings"

	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// Sizes of the private data of programs, in bytes. Messages do not say how much
// of it was sent: the other side gets the whole field, zeros after the data.
const (
	MaxDialPrivate   = mad.REQPrivateLen - mad.IPHeaderLen // 56, of a REQ
	MaxAcceptPrivate = mad.REPPrivateLen                   // 196, of a REP
	MaxRejectPrivate = mad.REJPrivateLen                   // 148, of a REJ

	MaxResolvePrivate = mad.SIDRREQPrivateLen - mad.IPHeaderLen // 180, of a SIDR_REQ
	MaxAnswerPrivate  = mad.SIDRREPPrivateLen                   // 136, of a SIDR_REP
)

// private is the private data of a message, kept without the zeros at its end:
// there may be ten thousand connections.
type private struct {
	text string
	size uint8 // of the whole field
}

func privateOf(b []byte) private {
	return private{text: string(bytes.TrimRight(b, "\x00")), size: uint8(len(b))}
}

// bytes returns the whole field.
func (p private) bytes() []byte {
	if p.size == 0 {
		return nil
	}
	return []byte(p.text + strings.Repeat("\x00", int(p.size)-len(p.text)))
}
