package ib

import (
	"errors"
	"fmt"
)

// Errors of Modify. They come wrapped in a ModifyError.
var (
	ErrTransition     = errors.New("no such state transition")
	ErrAttrMissing    = errors.New("attribute missing")
	ErrAttrNotAllowed = errors.New("attribute not allowed")
	ErrAttrValue      = errors.New("attribute has a bad value")
	ErrCurState       = errors.New("not the current state")
	ErrNotDrained     = errors.New("the send queue is still draining")
)

// ErrInUse is wrapped by errors that say what uses an object, which therefore
// cannot be closed yet.
var ErrInUse = errors.New("in use")

// ErrGSIInUse is returned where a second GSI queue pair is made.
var ErrGSIInUse = errors.New("the device has a GSI queue pair, whose number is 1, already")

// Errors of PostSend and PostRecv. They come wrapped in a PostError, and
// nothing was queued.
var (
	ErrState           = errors.New("wrong queue pair state")
	ErrQueueFull       = errors.New("queue full: it has room again when an earlier request completes")
	ErrTooManySGE      = errors.New("too many scatter/gather entries")
	ErrInlineTooLong   = errors.New("inline data too long")
	ErrInline          = errors.New("operation cannot have inline data")
	ErrOpcode          = errors.New("unknown operation")
	ErrNoOpcode        = fmt.Errorf("%w: Opcode is not set", ErrOpcode)
	ErrTooLong         = errors.New("message longer than 2^31 bytes")
	ErrAtomicLength    = errors.New("the result of an atomic needs exactly 8 bytes")
	ErrAtomicWrite     = errors.New("an atomic write carries exactly 8 bytes")
	ErrFlush           = errors.New("FLUSH without a meaning")
	ErrNoRdAtomic      = errors.New("max_rd_atomic is 0: the peer takes neither READ, atomics, ATOMIC WRITE nor FLUSH")
	ErrRemoteSRQN      = errors.New("a request of XRC names a shared receive queue of the peer")
	ErrNoSend          = errors.New("an XRC target has no send queue: requests are posted to the initiator on the other side")
	ErrNoReceive       = errors.New("an XRC initiator has no receives: they are posted to the shared receive queues of the other side")
	ErrShared          = errors.New("the queue pair takes its receives from a shared receive queue: post them there")
	ErrNoAH            = errors.New("a datagram needs an address handle: AH is not set")
	ErrAHClosed        = errors.New("the address handle was destroyed")
	ErrAHDomain        = errors.New("the address handle belongs to another protection domain than the queue pair")
	ErrRemoteQPN       = errors.New("the queue pair number that a datagram is for")
	ErrNoRemoteQPN     = fmt.Errorf("%w: RemoteQPN is not set", ErrRemoteQPN)
	ErrDatagramTooLong = errors.New("datagram too long")
	ErrNoBind          = errors.New("what to bind a memory window to is missing: Bind is not set")
	ErrNoReg           = errors.New("how to register is missing: Reg is not set")
	ErrNoKey           = errors.New("the key to invalidate is missing: InvalidateKey is not set")
	ErrRemote          = errors.New("the remote address was made for a place outside of the peer's memory")
)

// ModifyError says which state transition or attribute QP.Modify, or what
// calls it, refused, and why. Nothing was changed.
type ModifyError struct {
	From, To State    // the transition; the same state twice if it is none
	Type     QPType   // of the queue pair
	Attr     AttrMask // those at fault; 0 if it is the transition itself
	Detail   string   // what is wrong or what to do, in words; may be empty
	Err      error    // ErrTransition, ErrAttrMissing …
}

// Error says what was refused and why.
func (e *ModifyError) Error() string {
	s := fmt.Sprintf("%v to %v: %v", e.From, e.To, e.Err)
	if e.Attr != 0 {
		s += ": " + e.Attr.String()
	}
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s
}

// Unwrap returns the cause, for errors.Is.
func (e *ModifyError) Unwrap() error { return e.Err }
