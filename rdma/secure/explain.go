package secure

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"unicode"
)

// Explain adds to what has ended a handshake what it means for those who run
// the two sides. errors.Is and errors.As find the cause. The text is short and
// can be printed, whatever the names in the certificate of a peer are.
func Explain(err error) error {
	if err == nil {
		return nil
	}
	if why := meaning(err); why != "" {
		return fmt.Errorf("%s: %w", why, printable{err})
	}
	return printable{err}
}

// printable is an error whose text a peer may have had a part in.
type printable struct{ error }

// maxText is how many bytes of such a text are shown.
const maxText = 400

func (p printable) Error() string {
	text := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, p.error.Error())
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + " ..."
	}
	return text
}

func (p printable) Unwrap() error { return p.error }

func meaning(err error) string {
	var (
		unknown *x509.UnknownAuthorityError
		asValue x509.UnknownAuthorityError
		invalid x509.CertificateInvalidError
		host    x509.HostnameError
		header  tls.RecordHeaderError
		op      *net.OpError
	)
	switch {
	case errors.Is(err, ErrOtherPSK), errors.Is(err, errGivenUp):
		return ""
	case errors.As(err, &host):
		return "the certificate of the server is for another name than the one that was dialled"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "the certificate of the peer has expired, or does not hold yet"
	case errors.As(err, &unknown), errors.As(err, &asValue):
		return "the certificate of the peer is not of an authority that this side trusts"
	case errors.As(err, &header):
		return "the peer does not speak TLS"
	case errors.As(err, &op) && op.Op == "remote error" && op.Err != nil:
		return refusals[op.Err.Error()]
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the peer has ended the handshake without a word, as one does that has no TLS, or that has waited too long for this side"
	case err != nil:
		return locals[err.Error()]
	}
	return ""
}

// refusals say what alerts of the peer mean (RFC 8446 6.2), by the text that
// crypto/tls has for them.
var refusals = map[string]string{
	"tls: bad certificate":                "the peer refuses the certificate, or the pre-shared secret, of this side: its own error says why",
	"tls: unknown certificate":            "the peer refuses the certificate of this side: its own error says why",
	"tls: unknown certificate authority":  "the peer does not trust the authority that has issued the certificate of this side",
	"tls: expired certificate":            "the peer takes the certificate of this side as expired, or as not holding yet",
	"tls: certificate required":           "the peer wants a certificate of this side, which has shown none",
	"tls: protocol version not supported": "the peer does not speak TLS 1.3",
	"tls: handshake failure":              "the peer has no certificate or cipher that this side takes",
	"tls: unrecognized name":              "the peer has no certificate for the name that was dialled",
	"tls: internal error":                 "the peer cannot go on: its own error says why",
}

// locals say what errors of this side mean that have no type.
var locals = map[string]string{
	"tls: client didn't provide a certificate": "the client has shown no certificate, and this side wants one",
}
