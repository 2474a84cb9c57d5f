package qp

import (
	"time"

	"github.com/gosoftroce/rocev2/rocev2"
)

// rtt measures the time from a packet to its acknowledgement, one packet at a time and never a retransmission, and from it
// when a silent peer is probed. With a floor of 0 it does nothing.
//
// Where many queue pairs share a device the answer takes as long as the queues are, on both sides, and that can change
// from one round trip to the next. So the deviation counts too, as for TCP (RFC 6298); and after a probe, which spoils the
// measurement, the longer wait holds until a round trip was measured, not only until the next acknowledgement (Karn), or
// for a while at least.
type rtt struct {
	floor    time.Duration
	smooth   time.Duration
	deviates time.Duration
	known    bool // smooth is more than a guess
	timing   bool
	attempts uint8  // probes since the last progress
	backoff  uint8  // doublings of the wait for lack of a measurement
	blind    uint8  // acknowledgements since then, or since the last doubling was taken back
	noise    uint16 // acknowledgements for which losses are to be expected
	sentAt   Time
	probeAt  Time
	psn      rocev2.PSN
}

const (
	// maxProbes is how many probes without progress double the wait; after them the local ACK timeout has its turn.
	maxProbes = 6
	// firstGuess is what a round trip is taken for before one was measured: long enough for a loaded Linux peer.
	firstGuess = 5 * time.Millisecond
	// noiseAcks is for how many acknowledgements after a loss that was repaired others are to be expected; meanwhile the
	// floor is so many times lower: what costs a few packets need not wait until all doubt is gone.
	noiseAcks = 1 << 12
	// blindAcks is after how many acknowledgements without a measurement, because too much is sent again, one doubling is
	// taken back.
	blindAcks  = 4
	noiseFloor = 8
)

func (r *rtt) init(floor time.Duration) { *r = rtt{floor: floor, smooth: firstGuess} }

// start times the acknowledgement of psn, unless another is being timed.
func (r *rtt) start(now Time, psn rocev2.PSN) {
	if r.floor > 0 && !r.timing {
		r.timing, r.psn, r.sentAt = true, psn, now
	}
}

// discard ends a measurement: what is sent again cannot be told from the first time.
func (r *rtt) discard() { r.timing = false }

// lossy notes that the path loses packets.
func (r *rtt) lossy() { r.noise = noiseAcks }

// progress takes that everything before una is acknowledged.
func (r *rtt) progress(now Time, una rocev2.PSN) {
	if r.floor == 0 {
		return
	}
	if r.timing && r.psn.Before(una) {
		r.timing, r.backoff, r.blind = false, 0, 0
		d := max(time.Duration(now-r.sentAt), 1)
		if !r.known {
			r.known, r.smooth, r.deviates = true, d, 0
		}
		r.deviates += ((d - r.smooth).Abs() - r.deviates) / 4
		r.smooth += (d - r.smooth) / 8
	}
	if r.blind++; r.blind == blindAcks {
		r.blind, r.backoff = 0, r.backoff-min(r.backoff, 1)
	}
	r.attempts = 0
	r.noise -= min(r.noise, 1)
	r.arm(now)
}

// arm sets the time of the next probe.
func (r *rtt) arm(now Time) {
	if r.floor > 0 {
		wait := max(r.floor, 4*(r.smooth+r.deviates)) << r.backoff
		if r.noise > 0 {
			wait = min(wait, max(r.floor/noiseFloor, 2*r.smooth)) << r.attempts
			if !r.known { // a guess is no reason to wait
				wait = r.floor / noiseFloor << r.attempts
			}
		}
		r.probeAt = now.Add(wait)
	}
}

func (r *rtt) backOff() {
	r.attempts++
	r.backoff = min(r.backoff+1, maxProbes)
}

func (r *rtt) active() bool { return r.floor > 0 && r.attempts < maxProbes }

// expired reports that it is time for a probe before the deadline of the local ACK timeout.
func (r *rtt) expired(now, deadline Time) bool {
	return r.active() && r.probeAt < deadline && now >= r.probeAt
}

// earlier returns the time of the probe or the deadline.
func (r *rtt) earlier(deadline Time) Time {
	if r.active() {
		return min(r.probeAt, deadline)
	}
	return deadline
}
