package engine

import (
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

// AckDelay has the lone acknowledgements of an engine wait. The driver says
// when they begin to wait and when they go; MayWait and Expired tell it what is
// worth while.
type AckDelay struct {
	on      bool // lone acknowledgements wait
	first   bool // they leave before requests
	waiting list // queue pairs with one that waits
	timing  ackDelay
	turns   *turns
}

// Hold has lone acknowledgements wait from now on, until Release.
func (d *AckDelay) Hold() { d.on, d.first = true, false }

// First has acknowledgements leave before requests, until Hold. A peer's
// program that is told of events takes them in the order in which they come:
// what answers its message must not come before the completion of that.
func (d *AckDelay) First() { d.first = true }

// Release has all acknowledgements go with the next batches.
func (d *AckDelay) Release() {
	d.on = false
	d.timing.sent()
	for !d.waiting.empty() {
		d.turns.push(d.waiting.pop())
	}
}

// MayWait reports at now whether the answers to the packets of r may wait until
// the driver's next call, where they leave together with what is posted: there
// are few packets, none wants an urgent answer, and the acknowledgements have
// not waited for too long.
func (d *AckDelay) MayWait(now clock.Time, r *Ready) bool {
	return r.Packets <= MaxDelayed && !r.Urgent && (!r.Requests || d.timing.hold(now))
}

// AtOnce reports whether those that wait leave with what is posted: peers were
// seen to wait for them.
func (d *AckDelay) AtOnce() bool { return d.timing.immediate > 0 }

// Expired reports at now, when nothing more has come, whether the
// acknowledgements that wait should be sent.
func (d *AckDelay) Expired(now clock.Time) bool { return d.timing.expired(now) }
