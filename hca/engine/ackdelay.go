package engine

import (
	"slices"
	"time"

	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// A lone acknowledgement costs a datagram at both ends, just when a program
// that polls is about to answer, or to take, the next message. So it waits: for
// what the program posts, and then for a while whether another message comes
// that one acknowledgement can stand for as well (delayed acknowledgements, as
// in RFC 9000, section 13.2). Whether that is worth while the peer shows. One
// that sends its next message without the acknowledgement does not need it
// yet; one that stays silent may well be waiting for it.
const (
	// MaxAckDelay is how long an acknowledgement waits for the next
	// message.
	MaxAckDelay = 24 * time.Microsecond

	// MaxAckBatches is how many batches of messages one acknowledgement
	// stands for when nothing more comes at the moment.
	MaxAckBatches = 8

	// MaxDelayed is how many packets may stay unanswered until the driver's
	// next call. A bulk transfer is answered at once.
	MaxDelayed = 4

	// After an acknowledgement has waited without result, this many go at
	// once before a wait is tried again: the least, and the most after
	// repeated waits without result.
	minImmediate = 16
	maxImmediate = 4096
)

// ackDelay decides how long lone acknowledgements wait.
type ackDelay struct {
	since     clock.Time // when the latest message came whose acknowledgement waits; 0: none waits
	batches   int        // that it stands for
	immediate int        // how many more go at once; 0: they wait
	backoff   int        // how many that will be after the next wait without result
}

// hold records a batch with requests that is left unanswered at now. It reports
// whether its acknowledgement may wait any longer.
func (d *ackDelay) hold(now clock.Time) bool {
	switch {
	case d.since == 0:
		d.immediate = max(d.immediate-1, 0)
	case d.immediate == 0:
		d.backoff = minImmediate // it came without the acknowledgement
	}
	d.since = now
	d.batches++
	return d.batches < MaxAckBatches+MaxDelayed
}

// expired reports at now, when nothing more has come, whether the wait is over.
func (d *ackDelay) expired(now clock.Time) bool {
	switch {
	case d.since == 0 || d.immediate > 0 || d.batches >= MaxAckBatches:
		return true
	case now < d.since.Add(MaxAckDelay):
		return false
	}
	if d.backoff == 0 {
		d.backoff = minImmediate
	}
	d.immediate = d.backoff
	d.backoff = min(2*d.immediate, maxImmediate)
	return true
}

// sent records that nothing waits any more.
func (d *ackDelay) sent() { d.since, d.batches = 0, 0 }

// AckMoment is when a driver asks whether lone acknowledgements wait for its
// next call.
type AckMoment uint8

const (
	// AcksLeave: the driver may not call again soon. They leave with the
	// next batches.
	AcksLeave AckMoment = iota

	// AcksLeaveFirst is AcksLeave, and acknowledgements leave before
	// requests until they wait again. A peer's program that is told of
	// events takes them in the order in which they come: what answers its
	// message must not come before the completion of that.
	AcksLeaveFirst

	// AcksAtPost: the program has posted, and will be back in a moment.
	// They wait, unless peers were seen to wait for them.
	AcksAtPost

	// AcksAtPoll: it has polled, and nothing has come. They wait, unless
	// they have done so for too long.
	AcksAtPoll

	// AcksAtRequests: it has polled, and requests have come, which are to
	// stay unanswered. They wait, unless they stand for too many already:
	// then the driver lets them leave.
	AcksAtRequests

	// AcksBeside is added where another goroutine sends, which may be about
	// to send the acknowledgements for a third one. They do not begin to
	// wait then.
	AcksBeside AckMoment = 1 << 7
)

// delayedAcks are the lone acknowledgements of an engine that wait.
type delayedAcks struct {
	on      bool  // lone acknowledgements wait
	first   bool  // they leave before requests
	waiting []*QP // queue pairs with one that waits
	timing  ackDelay
	turns   *turns
}

// at is Engine.DelayAcks.
func (d *delayedAcks) at(now clock.Time, m AckMoment) (wait bool) {
	switch m &^ AcksBeside {
	case AcksAtRequests:
		return d.timing.hold(now)
	case AcksAtPost:
		wait = d.timing.immediate == 0
	case AcksAtPoll:
		wait = !d.timing.expired(now)
	case AcksLeaveFirst:
		d.first = true
	}
	switch {
	case wait && m&AcksBeside == 0:
		d.on, d.first = true, false
	case !wait:
		d.on = false
		d.timing.sent()
		d.release()
	}
	return wait
}

// release has those that wait come to their turn.
func (d *delayedAcks) release() {
	for i, q := range d.waiting {
		q.delayed, d.waiting[i] = false, nil
		d.turns.push(q)
	}
	d.waiting = d.waiting[:0]
}

// forget takes out a queue pair that goes.
func (d *delayedAcks) forget(q *QP) {
	if q.delayed {
		q.delayed = false
		d.waiting = slices.DeleteFunc(d.waiting, func(w *QP) bool { return w == q })
	}
}
