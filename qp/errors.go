package qp

import (
	"errors"
	"fmt"

	"github.com/gosoftroce/rocev2/ib"
)

// Errors of New.
var (
	ErrService = errors.New("qp: only the service RC is implemented")
	ErrConfig  = errors.New("qp: bad configuration")
)

// PostError says why a request was not queued. Those that a program meets in its normal course are preallocated:
// ErrQueueFull and ErrState. Err wraps its kind where there are figures to tell.
type PostError struct {
	Op    string // "post send" or "post receive"
	State ib.State
	Err   error // one of the errors above, or wraps it
}

func (e *PostError) Error() string {
	if e.Err == ib.ErrState {
		return fmt.Sprintf("qp: %s: %v: %v: %s", e.Op, e.Err, e.State, needsState(e.Op))
	}
	return fmt.Sprintf("qp: %s: %v", e.Op, e.Err)
}

// needsState says what a queue pair must be for an operation.
func needsState(op string) string {
	if op == opPostRecv {
		return "receives are posted from INIT on"
	}
	return "sends are posted from RTS on, when the queue pair is connected"
}

// Unwrap returns the error, which is one of the above or wraps it.
func (e *PostError) Unwrap() error { return e.Err }
