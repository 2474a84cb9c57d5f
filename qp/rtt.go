package qp

import (
	"time"

	"github.com/gosoftroce/rocev2/clock"
	"github.com/gosoftroce/rocev2/rocev2"
)

// rtt measures the time from a packet to its acknowledgement, one packet at a time and never a retransmission, and from it
// when a silent peer is probed. With a floor of 0 it does nothing.
//
// Where many queue pairs share a device the answer takes as long as the queues are, on both sides, and that can change
// from one round trip to the next. So the deviation counts too, as for TCP (RFC 6298); and after a probe, which spoils the
// measurement, the longer wait holds until a round trip was measured, not only until the next acknowledgement (Karn), or
// for a while at least.
//
// A peer in software also pauses now and then, for as long as its processor is taken away. No packet is lost then, and a
// probe is spurious. The longest pause that was seen lately is therefore waited for as well. A probe that was needed is
// answered a round trip after it was sent; if progress comes at another time, the peer was silent for a reason of its own.
type rtt struct {
	floor    time.Duration
	smooth   time.Duration
	deviates time.Duration
	least    time.Duration // of all round trips: one without queues
	pauses   *Pauses
	own      Pauses // unless they are shared
	known    bool   // smooth is more than a guess
	asked    bool   // since the last progress packets were sent again because of silence
	late     bool   // a probe was put off since then
	doubted  bool   // before the last progress they were, and it may have been spurious
	resent   bool   // or for whatever reason
	timing   bool
	attempts uint8  // probes since the last progress
	backoff  uint8  // doublings of the wait for lack of a measurement
	blind    uint8  // acknowledgements since then, or since the last doubling was taken back
	noise    uint16 // acknowledgements for which losses are to be expected
	sentAt   clock.Time
	quietAt  clock.Time    // since when the peer has been silent
	askedAt  clock.Time    // if asked: when
	silence  time.Duration // if doubted: how long it was, until the peer answered
	probeAt  clock.Time
	psn      rocev2.PSN
}

const (
	// maxProbes is how many probes without progress double the wait; after them the local ACK timeout has its turn.
	maxProbes = 6
	// maxPause bounds what is waited for because of pauses: well below the usual local ACK timeout.
	maxPause = 32 * time.Millisecond
	// pauseHalfLife is how long it takes until half as long a pause is expected, if none comes.
	pauseHalfLife = 1 << 31 // ns, about 2 s
	// noiseAcks is for how many acknowledgements after a loss that was repaired others are to be expected; meanwhile the
	// floor is so many times lower: what costs a few packets need not wait until all doubt is gone.
	noiseAcks = 1 << 12
	// blindAcks is after how many acknowledgements without a measurement, because too much is sent again, one doubling is
	// taken back.
	blindAcks  = 4
	noiseFloor = 8
)

// init begins with the guess that a round trip takes as long as the floor, so that the first probe waits four times as long.
func (r *rtt) init(floor time.Duration) {
	*r = rtt{floor: floor, smooth: floor}
	r.pauses = &r.own
}

// start times the acknowledgement of psn, unless another is being timed.
func (r *rtt) start(now clock.Time, psn rocev2.PSN) {
	if r.floor > 0 && !r.timing {
		r.timing, r.psn, r.sentAt = true, psn, now
	}
}

// discard ends a measurement: what is sent again cannot be told from the first time.
func (r *rtt) discard() { r.timing, r.resent = false, true }

// lossy notes that the path loses packets.
func (r *rtt) lossy() { r.noise = noiseAcks }

// progress takes that everything before una is acknowledged, and reports whether probes that were sent meanwhile have
// turned out spurious.
func (r *rtt) progress(now clock.Time, una rocev2.PSN) (spurious bool) {
	if r.floor == 0 {
		return false
	}
	if r.known {
		spurious = r.asked && !r.answersProbe(now)
		if !r.resent || spurious {
			r.paused(now)
		} else if r.asked {
			r.backoff = 0 // the round trip is what it was
		}
	}
	if r.asked {
		r.doubted, r.silence = !spurious, time.Duration(now-r.quietAt)
	}
	r.asked, r.late, r.resent = false, false, false
	if r.timing && r.psn.Before(una) {
		r.timing, r.backoff, r.blind = false, 0, 0
		d := max(time.Duration(now-r.sentAt), 1)
		if !r.known {
			r.known, r.smooth, r.deviates, r.least = true, d, 0, d
		}
		r.least = min(r.least, d)
		r.deviates += ((d - r.smooth).Abs() - r.deviates) / 4
		r.smooth += (d - r.smooth) / 8
	}
	if r.blind++; r.blind == blindAcks {
		r.blind, r.backoff = 0, r.backoff-min(r.backoff, 1)
	}
	r.attempts = 0
	r.noise -= min(r.noise, 1)
	r.arm(now)
	return spurious
}

// answersProbe reports whether progress at now is a round trip after the packets were sent again: not sooner than without queues,
// and not much later than usual, for which a peer that must be woken has
// some time. Otherwise each loss would be taken for a pause, and make the next wait longer.
func (r *rtt) answersProbe(now clock.Time) bool {
	d, silence := time.Duration(now-r.askedAt), time.Duration(now-r.quietAt)
	return 2*d >= r.least && d <= max(2*r.smooth+4*r.deviates+r.floor/2, silence/8)
}

// paused takes note that the peer was silent until now though nothing was lost.
func (r *rtt) paused(now clock.Time) { r.pauses.add(now, time.Duration(now-r.quietAt), r.floor) }

// echo takes the second answer to what was sent twice: nothing had been lost.
func (r *rtt) echo(now clock.Time) {
	r.doubted = false
	r.pauses.add(now, r.silence, r.floor)
}

// maxPostponed is for how many waits a peer may be silent before a probe is not put off any more.
const maxPostponed = 8

// postpone puts off a probe, and reports whether it did: another queue pair has just asked the same host, and that has not
// been heard since. One question at a time is enough to find out whether it is there. But who was asked may be gone, and
// his host with others on it not; so the next one asks soon, and nobody waits for others for long.
func (r *rtt) postpone(now clock.Time) bool {
	p, wait := r.pauses, r.wait(now)
	if r.asked || p.asked <= p.heard || now >= p.asked.Add(wait) || now >= r.quietAt.Add(maxPostponed*wait) {
		return false
	}
	r.late = true
	r.probeAt = now.Add(r.floor)
	return true
}

// Pauses remembers for how long a peer was silent though nothing was lost. Queue pairs that are not used concurrently can
// share it, those to one host, say: a host that pauses does so for all of them.
type Pauses struct {
	longest time.Duration
	at      clock.Time
	heard   clock.Time // when a packet came last
	asked   clock.Time // when one of them last began to ask, because of silence
}

func (p *Pauses) add(now clock.Time, d, floor time.Duration) {
	if d > floor && d > p.expected(now) {
		p.longest, p.at = d, now
	}
}

// expected is the longest pause that was seen, which counts for less as time goes by.
func (p *Pauses) expected(now clock.Time) time.Duration {
	return p.longest >> min(uint64(now-p.at)/pauseHalfLife, 63)
}

// SharePauses has the queue pair share p with others until it is reset.
func (q *QP) SharePauses(p *Pauses) { q.req.rtt.pauses = p }

// arm sets the time of the next probe: the peer has just been heard, or has something to answer from now on.
func (r *rtt) arm(now clock.Time) {
	if r.floor == 0 {
		return
	}
	if !r.asked {
		r.quietAt = now
	}
	wait := r.wait(now) << r.backoff
	if r.noise > 0 {
		wait = min(wait, max(r.floor/noiseFloor, 2*r.smooth)) << r.attempts
		if !r.known { // a guess is no reason to wait
			wait = r.floor / noiseFloor << r.attempts
		}
	}
	r.probeAt = now.Add(wait)
}

// wait is how long the peer is silent at the most, as far as is known.
func (r *rtt) wait(now clock.Time) time.Duration {
	pause := r.pauses.expected(now)
	return max(r.floor, 4*(r.smooth+r.deviates), min(pause+pause/4, maxPause))
}

// ask takes note that packets are sent again at now because the peer is silent. Who asks again, in vain so far, gives
// others no reason to wait.
func (r *rtt) ask(now clock.Time) {
	if !r.asked {
		r.pauses.asked = now
	}
	r.asked, r.doubted, r.askedAt = true, false, now
}

// backOff doubles the wait for the next probe.
func (r *rtt) backOff() {
	r.attempts++
	r.backoff = min(r.backoff+1, maxProbes)
}

func (r *rtt) active() bool { return r.floor > 0 && r.attempts < maxProbes }

// expired reports that it is time for a probe before the deadline of the local ACK timeout.
func (r *rtt) expired(now, deadline clock.Time) bool {
	return r.active() && r.probeAt < deadline && now >= r.probeAt
}

// earlier returns the time of the probe or the deadline.
func (r *rtt) earlier(deadline clock.Time) clock.Time {
	if r.active() {
		return min(r.probeAt, deadline)
	}
	return deadline
}
