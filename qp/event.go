package qp

import (
	"math/bits"

	"github.com/gosoftroce/rocev2/ib"
)

// eventSet holds the events that were not polled yet: each one at most once, which is all that an event says.
type eventSet uint32

func (s *eventSet) raise(e ib.Event) { *s |= 1 << e }

func (s *eventSet) poll() (ib.Event, bool) {
	if *s == 0 {
		return 0, false
	}
	e := ib.Event(bits.TrailingZeros32(uint32(*s)))
	*s &^= 1 << e
	return e, true
}
