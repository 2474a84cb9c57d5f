package hca

import (
	"errors"
	"fmt"
	"net"

	"github.com/gosoftroce/rocev2/ib"
)

// ErrClosed is returned for an object that has been closed, or whose device
// has. errors.Is(err, net.ErrClosed) holds for it.
var ErrClosed error = closedError{}

type closedError struct{}

func (closedError) Error() string { return "use of closed RDMA object" }
func (closedError) Unwrap() error { return net.ErrClosed }

// ErrNoResources is wrapped by errors that say which limit, of the device or of
// the context, was reached.
var ErrNoResources = errors.New("no resources")

// ErrOtherDevice is wrapped by errors that say which object was made on another
// device than the one that is to use it.
var ErrOtherDevice = errors.New("it belongs to another device")

// ErrInUse is wrapped by errors that say what uses an object, which therefore
// cannot be closed yet.
var ErrInUse = ib.ErrInUse

var errOtherContext = errors.New("it belongs to another context of the device")

// ErrNoRoom is returned by Wait when the slice for the completions is empty: it
// would have to wait for ever, or return without one.
var ErrNoRoom = errors.New("the slice for the completions is empty: it needs room for one at least")

// RangeError says that a number is outside of what the device offers.
// Device.Query of package verbs tells the limits.
type RangeError struct {
	What     string // the number: "MaxSendWR" for example
	Got      int    // what it is
	Min, Max int    // what it may be
}

// Error says which number it is, and what it may be.
func (e *RangeError) Error() string {
	return fmt.Sprintf("%s is %d; it must be between %d and %d", e.What, e.Got, e.Min, e.Max)
}

func checkRange(what string, got, least, most int) error {
	if got < least || got > most {
		return &RangeError{What: what, Got: got, Min: least, Max: most}
	}
	return nil
}
