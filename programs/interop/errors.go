package interop

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/gosoftroce/rocev2/verbs"
)

// ErrPeerClosed is wrapped by the errors of a control connection that the peer
// closes too early. errors.Is(err, net.ErrClosed) holds for it.
var ErrPeerClosed error = peerClosedError{}

type peerClosedError struct{}

func (peerClosedError) Error() string { return "the peer closed the control connection" }
func (peerClosedError) Unwrap() error { return net.ErrClosed }

// ErrDisconnected is wrapped by errors that say that the peer ended the
// connection. errors.Is(err, net.ErrClosed) holds for it.
var ErrDisconnected error = disconnectedError{}

type disconnectedError struct{}

func (disconnectedError) Error() string { return "the peer disconnected" }
func (disconnectedError) Unwrap() error { return net.ErrClosed }

// ErrNoProgress is wrapped by errors that say for how long nothing completed.
var ErrNoProgress = errors.New("no progress")

// ProtocolError says that the peer did not keep to the protocol of the control
// connection, or that the connection failed under it.
type ProtocolError struct {
	Step string // what was being exchanged
	Got  []byte // what came, at most some hundred bytes of it
	Want string // what was expected
	Err  error  // the connection's error, or nil
}

func (e *ProtocolError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "control connection: %s: expected %s", e.Step, e.Want)
	switch {
	case len(e.Got) > 0:
		fmt.Fprintf(&b, ", the peer sent %d bytes %s", len(e.Got), quote(e.Got))
		if who := speaker(e.Got); who != "" {
			fmt.Fprintf(&b, " (%s)", who)
		}
	case e.Err != nil:
		b.WriteString(", nothing came")
	}
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	return b.String()
}

func (e *ProtocolError) Unwrap() error { return e.Err }

// quote shows at most 120 bytes of what a stranger sent.
func quote(b []byte) string {
	const most = 120
	if len(b) > most {
		return strconv.QuoteToASCII(string(b[:most])) + "…"
	}
	return strconv.QuoteToASCII(string(b))
}

// speaker guesses from the first bytes which program sent them.
func speaker(b []byte) string {
	switch {
	case len(b) >= 5 && b[4] == ':' && isHex(b[:4]), string(b) == "0000":
		return "so begin ibv_rc_pingpong and its like: the two sides run different programs, or different services (-t)"
	case len(b) >= 4 && isDigit(b[0]) && b[1] == '.' && isDigit(b[2]) && isDigit(b[3]):
		return "so begins perftest: the two sides run different programs, or versions"
	}
	for _, start := range []string{"GET ", "HEAD ", "POST ", "PUT ", "OPTIONS ", "CONNECT ", "PRI * HTTP"} {
		if n := min(len(b), len(start)); n >= 4 && string(b[:n]) == start[:n] {
			return "so begins an HTTP client"
		}
	}
	if len(b) >= 3 && b[0] == 0x16 && b[1] == 3 {
		return "so begins TLS: the peer wants a secured run, and this side is in clear: start both with --tls-cert, --tls-key and --tls-ca, or with --psk"
	}
	if len(b) >= 4 && string(b[:4]) == "SSH-" {
		return "so begins SSH"
	}
	return ""
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isHex(b []byte) bool {
	for _, c := range b {
		if !isDigit(c) && (c|0x20 < 'a' || c|0x20 > 'f') {
			return false
		}
	}
	return true
}

// RefusedError says that the server did not take this client, in its words.
type RefusedError struct{ Why string }

func (e *RefusedError) Error() string { return "the server refused: " + e.Why }

// CompletionError says that a work request completed with an error.
type CompletionError struct {
	Doing string // the operation, in words
	Done  uint64 // operations that had completed before
	WC    verbs.WC
}

func (e *CompletionError) Error() string {
	s := fmt.Sprintf("%s: completion status %v (code %d) for work request 0x%x on QP %v after %d completed",
		e.Doing, e.WC.Status, uint8(e.WC.Status), e.WC.ID, e.WC.QPN, e.Done)
	for _, words := range []string{e.WC.Vendor(), e.WC.Explain()} {
		if words != "" {
			s += ": " + words
		}
	}
	if e.Done == 0 && e.WC.Status == verbs.StatusRetryExcErr {
		s += "; or it runs another transport service: start both sides with the same"
	}
	return s
}

// Unwrap returns the completion's error, for errors.Is with a status.
func (e *CompletionError) Unwrap() error { return e.WC.Err() }

// ConfigError says that what was asked for cannot be run.
type ConfigError struct{ Msg string }

func (e *ConfigError) Error() string { return e.Msg }

// BadConfig makes a ConfigError.
func BadConfig(format string, args ...any) error {
	return &ConfigError{Msg: fmt.Sprintf(format, args...)}
}

// LossError says that a run over an unreliable service cannot go on: a message
// that this side waits for does not come, and is not sent again.
type LossError struct {
	Service        Service
	Sent, Received uint64        // messages, until then
	Silence        time.Duration // for which nothing came
}

func (e *LossError) Error() string {
	if e.Received == 0 {
		return fmt.Sprintf("nothing came for %v, after %d messages sent: the peer runs another transport service than %v (start both sides with the same), or the first message was lost, which %v does not repeat",
			e.Silence, e.Sent, e.Service, e.Service)
	}
	return fmt.Sprintf("a message was lost, or the peer is gone: after %d sent and %d received, nothing came for %v, and %v does not repeat what is lost",
		e.Sent, e.Received, e.Silence, e.Service)
}
