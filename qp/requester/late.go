package requester

import (
	"github.com/gosoftroce/rocev2/qp/queue"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// lateness is what may only be late, on a path that does not keep the order of
// packets, and what has turned out to be.
type lateness struct {
	path    queue.Reordering // of requests
	back    queue.Reordering // of responses
	waiting bool             // something is missing that may only be late, until dueAt
	ahead   wait             // an acknowledgement has come before the response una
	alone   wait             // a sequence NAK without the selective acknowledgement that it comes with
	mute    bool             // such a NAK has come that the peer sends alone
	asked   bool             // a sequence NAK has come before responses: the request askedFor is missing

	askedFor rocev2.PSN
	dueAt    clock.Time
	resent   uint64 // if ahead: Stats.Retransmits when that showed

	// What has turned out lost since the size of the window was noted, and
	// how much of that has been sent again for nothing.
	round          uint64 // it was noted for what had been sent up to here
	lostIn, lateIn uint32
}

// wait is for what may only be late.
type wait struct {
	on bool
	at clock.Time // since when
}

// over reports, once, that what has been missing since missed is lost.
func (w *wait) over(missed clock.Time) bool {
	if !w.on || w.at > missed {
		return false
	}
	w.on = false
	return true
}

// waits records that something is waited for until a time.
func (l *lateness) waits(until clock.Time) {
	if !l.waiting || until < l.dueAt {
		l.waiting, l.dueAt = true, until
	}
}

// takeAsked reports, once, when the responses before such a NAK have come,
// whether the request is missing still.
func (l *lateness) takeAsked(una rocev2.PSN) bool {
	if !l.asked || una.Before(l.askedFor) {
		return false
	}
	l.asked = false
	return una == l.askedFor
}
