package conn

import (
	"math/bits"

	"github.com/gosoftroce/rocev2/ib"
)

// Events holds the events that were not polled yet: each kind at most once,
// which is all that an event says.
type Events uint32

// Raise adds an event.
func (s *Events) Raise(e ib.Event) { *s |= 1 << e }

// Poll returns the next event and takes it out.
func (s *Events) Poll() (ib.Event, bool) {
	if *s == 0 {
		return 0, false
	}
	e := ib.Event(bits.TrailingZeros32(uint32(*s)))
	*s &^= 1 << e
	return e, true
}
