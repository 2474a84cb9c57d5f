package conn

import (
	"math/bits"

	"github.com/gosoftroce/rocev2/ib"
)

// Events holds what the driver has not taken yet: the events, each kind at most
// once, which is all that an event says, and Fetching.
type Events uint32

// Fetching says that a half may have memory that must be fetched. It is no
// event: none has the number 30.
const Fetching Events = 1 << 30

// Raise adds an event.
func (s *Events) Raise(e ib.Event) { *s |= 1 << e }

// Poll returns the next event and takes it out.
func (s *Events) Poll() (ib.Event, bool) {
	if *s&^Fetching == 0 {
		return 0, false
	}
	e := ib.Event(bits.TrailingZeros32(uint32(*s &^ Fetching)))
	*s &^= 1 << e
	return e, true
}
