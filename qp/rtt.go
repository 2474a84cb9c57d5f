package qp

import (
	"time"

	"github.com/gosoftroce/rocev2/rocev2"
)

// rtt measures the time from a packet to its acknowledgement, one packet at a time and never a retransmission, and from it
// when a silent peer is probed. With a floor of 0 it does nothing.
type rtt struct {
	floor    time.Duration
	smooth   time.Duration
	known    bool // smooth is more than a guess
	sentAt   Time
	probeAt  Time
	psn      rocev2.PSN
	timing   bool
	attempts uint8 // probes since the last progress
}

// maxProbes is how many probes without progress double the wait; after them the local ACK timeout has its turn.
const maxProbes = 6

// firstGuess is what a round trip is taken for before one was measured: long enough for a loaded Linux peer.
const firstGuess = 5 * time.Millisecond

func (r *rtt) init(floor time.Duration) { *r = rtt{floor: floor, smooth: firstGuess} }

// start times the acknowledgement of psn, unless another is being timed.
func (r *rtt) start(now Time, psn rocev2.PSN) {
	if r.floor > 0 && !r.timing {
		r.timing, r.psn, r.sentAt = true, psn, now
	}
}

// discard ends a measurement: what is sent again cannot be told from the first time.
func (r *rtt) discard() { r.timing = false }

// progress takes that everything before una is acknowledged.
func (r *rtt) progress(now Time, una rocev2.PSN) {
	if r.floor == 0 {
		return
	}
	if r.timing && r.psn.Before(una) {
		r.timing = false
		d := max(time.Duration(now-r.sentAt), 1)
		if !r.known {
			r.known, r.smooth = true, d
		}
		r.smooth += (d - r.smooth) / 8
	}
	r.attempts = 0
	r.arm(now)
}

// arm sets the time of the next probe.
func (r *rtt) arm(now Time) {
	if r.floor > 0 {
		r.probeAt = now.Add(max(r.floor, 4*r.smooth) << r.attempts)
	}
}

func (r *rtt) backOff() { r.attempts++ }

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
