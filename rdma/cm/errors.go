package cm

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// Reason says why a connection was rejected. String says it in words. The
// numbers are those of IBTA 12.6.7.2; package cm returns all of them, and the
// constants below are those that it sends itself, and some more.
type Reason = mad.Reason

// Reasons.
const (
	ReasonNoQP           Reason = mad.ReasonNoQP
	ReasonNoResources    Reason = mad.ReasonNoResources
	ReasonTimeout        Reason = mad.ReasonTimeout          // the peer has given up, or its answer came too late
	ReasonUnsupported    Reason = mad.ReasonUnsupported      // of the request
	ReasonInvalidService Reason = mad.ReasonInvalidServiceID // no program listens on the port
	ReasonTransport      Reason = mad.ReasonInvalidTransport // the listener is for another type of queue pair
	ReasonStale          Reason = mad.ReasonStale            // the queue pair is part of an older connection
	ReasonGID            Reason = mad.ReasonInvalidGID       // the address is not the one that the request is for
	ReasonMTU            Reason = mad.ReasonInvalidMTU       // the path MTU is impossible, or more than the link carries
	ReasonConsumer       Reason = mad.ReasonConsumer         // the program has rejected
	ReasonVendorOption   Reason = mad.ReasonVendorOptionNotSupported
)

var (
	// ErrClosed: the listener, the request or the connection was closed on
	// this side, or its device was. errors.Is(err, net.ErrClosed) holds.
	ErrClosed error = &closedError{}

	// ErrDisconnected: the peer has ended the connection.
	ErrDisconnected = errors.New("cm: disconnected by the peer")

	// ErrUnreachable: the peer does not answer. errors.Is(err,
	// os.ErrDeadlineExceeded) holds.
	ErrUnreachable error = &unreachableError{}

	// ErrNoDevice: the peer's host says by ICMP that the UDP port of RoCEv2
	// is closed. errors.Is(err, syscall.ECONNREFUSED) holds.
	ErrNoDevice error = &noDeviceError{}

	// ErrGone: a request is not waiting any more: it was accepted or
	// rejected before, or the peer has given up.
	ErrGone = errors.New("cm: the request is over: it was answered before, or the peer has given up")
)

type closedError struct{}

func (*closedError) Error() string   { return "cm: closed" }
func (*closedError) Unwrap() error   { return net.ErrClosed }
func (*closedError) Timeout() bool   { return false }
func (*closedError) Temporary() bool { return false }

type unreachableError struct{}

func (*unreachableError) Error() string   { return "cm: the peer does not answer" }
func (*unreachableError) Unwrap() error   { return os.ErrDeadlineExceeded }
func (*unreachableError) Timeout() bool   { return true }
func (*unreachableError) Temporary() bool { return true }

type noDeviceError struct{}

func (*noDeviceError) Error() string {
	return "cm: nothing listens on UDP port 4791 at that address, says its host (ICMP port unreachable): start the server first, or wait for it (WaitForServer); where it runs, it may have another address, or a firewall rejects what comes to the port"
}
func (*noDeviceError) Unwrap() error { return syscall.ECONNREFUSED }

// RejectedError says that the peer has rejected the connection. For the reason
// ReasonInvalidService errors.Is(err, syscall.ECONNREFUSED) holds.
type RejectedError struct {
	Reason      Reason
	PrivateData []byte // of the peer's program: the whole field of 148 bytes, zeros after what was sent
	Info        []byte // additional information, of which the reason says what it means; mostly empty
}

// Error says why.
func (e *RejectedError) Error() string {
	text := fmt.Sprintf("cm: rejected by the peer: %v (reason %d)", e.Reason, uint16(e.Reason))
	if most := e.acceptable(); most != 0 {
		text += fmt.Sprintf("; it takes %d bytes", most.Bytes())
	}
	if e.Reason == ReasonInvalidService {
		text += "; start the server first, give both sides the same port, or wait for it (WaitForServer)"
	}
	if said := e.said(); said != "" {
		text += "; it says: " + strconv.Quote(said)
	}
	return text
}

// said returns what the program of the peer has said, if it is a text: in the
// private data, before the zeros that fill it up.
func (e *RejectedError) said() string {
	text := strings.TrimRight(string(e.PrivateData), "\x00")
	if e.Reason != ReasonConsumer && e.Reason != ReasonNoResources || strings.ContainsFunc(text, func(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }) {
		return ""
	}
	return text
}

// Is reports whether target is ECONNREFUSED, and no program listens on the
// port.
func (e *RejectedError) Is(target error) bool {
	return target == syscall.ECONNREFUSED && e.Reason == ReasonInvalidService
}

// StatusError says that the peer has refused to resolve a service of datagrams
// (SIDR). Where no program serves the port, errors.Is(err,
// syscall.ECONNREFUSED) holds.
type StatusError struct {
	Status      mad.SIDRStatus // as IBTA 12.11.1.2 has them: 1 no program serves the port, 2 rejected …
	PrivateData []byte         // of the peer's program
}

// Error says why.
func (e *StatusError) Error() string {
	return fmt.Sprintf("cm: the peer refuses: %v (status %d)", e.Status, uint8(e.Status))
}

// Is reports whether target is ECONNREFUSED, and no program serves the port.
func (e *StatusError) Is(target error) bool {
	return target == syscall.ECONNREFUSED && e.Status == mad.SIDRUnsupported
}

// tooLong says that private data does not fit its message.
func tooLong(message string, got, most int) error {
	if got <= most {
		return nil
	}
	return fmt.Errorf("cm: %d bytes of private data; a %s has room for %d", got, message, most)
}
