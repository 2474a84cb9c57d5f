package rdma

import (
	"errors"
	"fmt"
	"io/fs"
	"net"

	"github.com/gosoftroce/rocev2/verbs"
)

// Errors that programs tell apart with errors.Is.
var (
	// ErrTooLong: the message is longer than the peer takes. See
	// Conn.MaxMessage.
	ErrTooLong = errors.New("message too long")
	// ErrShortBuffer: the message that is next is longer than the buffer
	// of Recv. It stays the next one.
	ErrShortBuffer = errors.New("buffer shorter than the message")
	// ErrGivenBack: the Buffer was sent or discarded before.
	ErrGivenBack = errors.New("the buffer was given back before")
	// ErrPeerClosed: the peer has closed the connection.
	ErrPeerClosed = errors.New("the peer has closed the connection")
	// ErrPeerGone: the peer does not answer any more.
	ErrPeerGone = errors.New("the peer does not answer any more")
	// ErrRefused: the peer has refused an access to its memory, because the
	// key is not valid any more, or not for that. The connection is over.
	ErrRefused = errors.New("the peer has refused an access to its memory")
	// ErrProtocol: the peer breaks the rules of the messages of this
	// package, or has asked for memory that it may not have. The connection
	// is over.
	ErrProtocol = errors.New("the peer breaks the protocol")
	// ErrForeign: the peer does not speak the protocol of this package, and
	// so has no directory of regions.
	ErrForeign = errors.New("the peer does not speak this protocol")
	// ErrUnknownRegion: the peer exports no region of that name.
	ErrUnknownRegion = errors.New("unknown region")
	// ErrPermission: this client has no right to the region, or none to do
	// that to it. errors.Is(err, fs.ErrPermission) holds for it.
	ErrPermission error = permissionError{}
	// ErrRange: a place is not inside the region.
	ErrRange = verbs.ErrRange
	// ErrMisaligned: the offset of an atomic is not a multiple of 8.
	ErrMisaligned = errors.New("offset is not a multiple of 8")
	// ErrTransfer: the context has ended in the middle of a transfer from
	// or to the caller's memory that did not end by itself. The connection
	// is over: nothing else keeps the device from that memory.
	ErrTransfer = errors.New("a transfer was given up in the middle")
)

type permissionError struct{}

func (permissionError) Error() string        { return "permission denied" }
func (permissionError) Is(target error) bool { return target == fs.ErrPermission }

// OpError says which operation failed, and with which peer. errors.Is and
// errors.As find the cause.
type OpError struct {
	Op     string   // "dial", "send", "recv", "read", "region" …
	Name   string   // of a region; may be empty
	Remote net.Addr // the peer; nil if there is none
	Err    error    // the cause
}

// Error says what failed, with which peer, and why.
func (e *OpError) Error() string {
	s := "rdma: " + e.Op
	if e.Name != "" {
		s += fmt.Sprintf(" %q", e.Name)
	}
	if e.Remote != nil {
		s += " " + e.Remote.String()
	}
	return s + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *OpError) Unwrap() error { return e.Err }

// Timeout reports whether a deadline has passed, as net.Error has it.
func (e *OpError) Timeout() bool {
	var t interface{ Timeout() bool }
	return errors.As(e.Err, &t) && t.Timeout()
}

// Temporary is there for net.Error.
func (e *OpError) Temporary() bool { return e.Timeout() }

// causeOf says what the completion that ended a connection means.
func causeOf(wc verbs.WC) error {
	err := wc.Err()
	switch wc.Status {
	case verbs.StatusRetryExcErr, verbs.StatusRNRRetryExcErr:
		return fmt.Errorf("%w: %w", ErrPeerGone, err)
	case verbs.StatusRemAccessErr:
		return fmt.Errorf("%w: %w", ErrRefused, err)
	case verbs.StatusLocLenErr, verbs.StatusRemInvReqErr:
		return fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	return err
}
