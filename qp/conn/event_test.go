package conn

import (
	"testing"

	"github.com/gosoftroce/rocev2/ib"
)

// Each event that there is can be raised and comes out, whether memory must be
// fetched or not.
func TestEventsComeOut(t *testing.T) {
	t.Parallel()
	for _, e := range []ib.Event{
		ib.EventCQError, ib.EventQPFatal, ib.EventQPRequestError, ib.EventQPAccessError, ib.EventCommEstablished,
		ib.EventSQDrained, ib.EventDeviceFatal, ib.EventPortActive, ib.EventPortError, ib.EventSRQError, ib.EventSRQLimit,
		ib.EventLastWQEReached, ib.EventGIDChange, ib.EventPathMTU,
	} {
		for _, before := range []Events{0, Fetching} {
			s := before
			s.Raise(e)
			if got, ok := s.Poll(); !ok || got != e || s != before {
				t.Errorf("%v raised at %#x: %v, %v, and %#x is left", e, uint32(before), got, ok, uint32(s))
			}
			if got, ok := s.Poll(); ok {
				t.Errorf("%v raised at %#x: %v comes, too", e, uint32(before), got)
			}
		}
	}
}
