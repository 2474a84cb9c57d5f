package transport

import (
	"errors"
	"fmt"
	"net"
)

// ErrClosed is returned by the methods of a closed link. It wraps
// net.ErrClosed.
var ErrClosed = fmt.Errorf("transport: link closed: %w", net.ErrClosed)

// ErrTooLong is the error for a packet that is longer than the MTU of the
// interface by which it leaves.
var ErrTooLong = errors.New("the packet is longer than the MTU of the way to the peer")

// SendError reports that some packets of a batch were not sent. The zero value
// is for a link to count in, see Add.
type SendError struct {
	Index  int   // first packet that failed
	Failed int   // how many failed
	Err    error // why the first one failed
}

// Add notes that n packets from index on failed because of err. The first call
// decides what Index and Err are.
func (e *SendError) Add(index, n int, err error) {
	if e.Failed == 0 {
		e.Index, e.Err = index, err
	}
	e.Failed += n
}

// Take takes what Send of a link inside has returned, whose first packet is
// packet first of the caller: it adds what was not sent, and returns any other
// error, which ends the caller's Send.
func (e *SendError) Take(err error, first int) error {
	if err == nil {
		return nil
	}
	var failed *SendError
	if !errors.As(err, &failed) {
		return err
	}
	e.Add(first+failed.Index, failed.Failed, failed.Err)
	return nil
}

// Result returns what Send returns: nil if nothing failed, else a copy of e. So
// a link can use e for the next batch.
func (e *SendError) Result() error {
	if e.Failed == 0 {
		return nil
	}
	failed := *e // only now on the heap
	return &failed
}

func (e *SendError) Error() string {
	return fmt.Sprintf("transport: %d packets not sent, first is %d: %v", e.Failed, e.Index, e.Err)
}

// Unwrap returns the cause of the first failure.
func (e *SendError) Unwrap() error { return e.Err }
