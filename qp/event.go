package qp

import (
	"math/bits"
	"strconv"
)

// Event is an asynchronous event of a queue pair (IBTA 11.6.3).
type Event uint8

// The events.
const (
	EventNone      Event = iota
	EventCommEst         // in RTR: the first request of the peer came before the move to RTS
	EventSQDrained       // the send queue has drained, as EnableSQDNotify asked
	EventLastWQE         // in ERR, with a RecvSource: no more receives of it will complete here
	EventAccessErr       // the peer violated memory rights or bounds; state ERR
	EventReqErr          // the peer sent an invalid request; state ERR
	EventFatal           // a completion was lost (overflow) or memory failed; state ERR
	numEvents
)

var eventNames = [numEvents]string{
	"NONE", "COMM_EST", "SQ_DRAINED", "QP_LAST_WQE_REACHED", "QP_ACCESS_ERR", "QP_REQ_ERR", "QP_FATAL",
}

// String returns the name of ibv_event_type without its prefix.
func (e Event) String() string {
	if e < numEvents {
		return eventNames[e]
	}
	return "event " + strconv.Itoa(int(e))
}

// eventSet holds the events that were not polled yet: each one at most once, which is all that an event says.
type eventSet uint16

func (s *eventSet) raise(e Event) { *s |= 1 << e }

func (s *eventSet) poll() (Event, bool) {
	if *s == 0 {
		return EventNone, false
	}
	e := Event(bits.TrailingZeros16(uint16(*s)))
	*s &^= 1 << e
	return e, true
}
