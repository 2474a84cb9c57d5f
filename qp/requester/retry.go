package requester

import (
	"time"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// GuardTimeout stands in for the local ACK timeout if the attribute is 0,
// "none": the connection must not hang for ever when a packet is lost.
const GuardTimeout = 8589934592 * time.Nanosecond // code 21: 4.096 µs · 2^21

// retry is the local ACK timer and the count of retries (IBTA 9.7.6.1.3). The
// timer runs while packets are in flight, from the last progress or else from
// the first packet.
type retry struct {
	interval time.Duration
	deadline clock.Time
	armed    bool
	limit    uint8
	left     uint8
	holds    bool // the deadline holds though the timer is stopped: a probe does not put it off
	// restarts counts how often the requester went back without a timeout,
	// since progress or a timeout.
	restarts uint8
	implied  bool // since the last progress a READ or atomic response came that showed a gap
	badResp  bool // since the last progress a response came that did not fit

	impliedBy rocev2.PSN // if implied: the response that showed the gap first, after the last restart for one
}

// maxRestarts bounds how often the same PSN is sent again for sequence NAKs,
// without progress or a timeout in between. A responder that sends one NAK for
// a gap never gets here; ours sends another when it sees that the
// retransmission has a gap, too.
const maxRestarts = 4

func (r *retry) configure(timeout, count uint8) {
	r.interval = rocev2.AckTimeout(timeout)
	if r.interval == 0 {
		r.interval = GuardTimeout
	}
	r.limit, r.left = count, count
}

// reset ends a connection's or an attempt's state.
func (r *retry) reset() {
	r.left = r.limit
	r.armed, r.holds, r.restarts, r.implied, r.badResp = false, false, 0, false, false
}

// start arms the timer unless it runs.
func (r *retry) start(now clock.Time) {
	if r.armed {
		return
	}
	if !r.holds {
		r.deadline = now.Add(r.interval)
	}
	r.armed, r.holds = true, false
}

func (r *retry) stop() { r.armed, r.holds = false, false }

// progress reloads the counter; the timer starts anew if something is still in
// flight.
func (r *retry) progress(now clock.Time, inFlight bool) {
	r.left = r.limit
	r.restarts, r.implied, r.badResp = 0, false, false
	r.armed, r.holds, r.deadline = inFlight, false, now.Add(r.interval)
}

// heard starts the timer anew, for the peer has got something.
func (r *retry) heard(now clock.Time) {
	if r.armed {
		r.deadline = now.Add(r.interval)
	}
}

// expired reports, once, that the timer has run out.
func (r *retry) expired(now clock.Time) bool {
	if !r.armed || now < r.deadline {
		return false
	}
	r.armed, r.restarts = false, 0
	return true
}

// misfit takes a response that does not fit.
func (r *retry) misfit() { r.badResp = true }

// impliedBefore takes a response that shows a gap, and reports whether one that
// has come shows that the first of the repeated answers is lost.
func (r *retry) impliedBefore(psn rocev2.PSN) bool {
	again := r.implied && !psn.After(r.impliedBy) && !r.badResp
	if again || !r.implied {
		r.implied, r.impliedBy = true, psn
	}
	return again
}

// spend takes one retry, false if none is left.
func (r *retry) spend() bool {
	if r.left == 0 {
		return false
	}
	r.left--
	return true
}

// exhausted is the status of a request that has no retry left.
func (r *retry) exhausted() ib.Status {
	if r.badResp {
		return ib.StatusBadRespErr
	}
	return ib.StatusRetryExcErr
}

// rnrInfinite is the RNR retry count that stands for no limit (IBTA 9.7.5.2.8).
const rnrInfinite = 7

// rnr is the wait of a requester whose peer had no receive posted.
type rnr struct {
	deadline clock.Time
	waiting  bool
	limit    uint8
	left     uint8
}

func (r *rnr) configure(count uint8) { r.limit, r.left = count, count }

func (r *rnr) reset() { r.waiting, r.left = false, r.limit }

// nak starts a wait. It returns false if no retry is left.
func (r *rnr) nak(now clock.Time, delay time.Duration) bool {
	if r.limit != rnrInfinite {
		if r.left == 0 {
			return false
		}
		r.left--
	}
	r.waiting, r.deadline = true, now.Add(delay)
	return true
}

// expired reports, once, that the wait is over.
func (r *rnr) expired(now clock.Time) bool {
	if !r.waiting || now < r.deadline {
		return false
	}
	r.waiting = false
	return true
}
