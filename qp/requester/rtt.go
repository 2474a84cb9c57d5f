package requester

import (
	"math"
	"time"

	"github.com/gosoftroce/rocev2/qp/queue"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// rtt estimates the round trip time: from a packet to its acknowledgement, one
// packet at a time and never a retransmission (RFC 6298, sections 2 and 3).
// From that it says when a silent peer is probed, which is the probe timeout of
// RFC 9002, section 6.2.1. With a floor of 0 it does nothing.
//
// Where many queue pairs share a device the answer takes as long as the queues
// are, on both sides, and that can change from one round trip to the next. So
// the variation counts too. A probe spoils the measurement: the longer wait
// that follows it holds until a round trip is measured (RFC 6298, section 5),
// or for a while at least, not only until the next acknowledgement.
//
// A peer in software also pauses now and then, for as long as its processor is
// taken away. No packet is lost then, and a probe is spurious. The longest
// pause that was seen lately is therefore waited for as well. A probe that was
// needed is answered a round trip after it was sent; if progress comes at
// another time, the peer was silent for a reason of its own.
type rtt struct {
	floor         time.Duration
	srtt          time.Duration
	rttvar        time.Duration
	pauses        *Pauses // of the peer: the connection's own, unless they are shared
	known         bool    // srtt is more than a guess
	probing       bool    // since the last progress packets were sent again because of silence
	postponed     bool    // a probe was put off since then
	maybeSpurious bool    // before the last progress they were, and it may have been spurious
	resent        bool    // or for whatever reason
	timing        bool
	few           bool   // the first probe comes after fewWait
	probes        uint8  // probes since the last progress
	backoff       uint8  // doublings of the wait for lack of a measurement
	unmeasured    uint8  // acknowledgements since then, or since the last doubling was taken back
	noise         uint16 // acknowledgements for which losses are to be expected
	sentAt        clock.Time
	silentSince   clock.Time    // since when the peer has been silent
	probedAt      clock.Time    // if probing: when
	silence       time.Duration // if maybeSpurious: how long it was, until the peer answered
	probeAt       clock.Time
	psn           rocev2.PSN
	minRTT        brief      // of all round trips: one without queues
	last, before  brief      // the last two
	first         brief      // if none is known: until anything was heard, what is timed has not been
	asked         rocev2.PSN // the last packet that asked for an answer
}

// brief is a round trip time in nanoseconds, 4 s at most.
type brief uint32

func briefly(d time.Duration) brief { return brief(min(d, math.MaxUint32)) }

const (
	// maxProbes is how many probes without progress double the wait; after
	// them the local ACK timeout has its turn.
	maxProbes = 6
	// maxPause bounds what is waited for because of pauses: well below the
	// usual local ACK timeout.
	maxPause = 32 * time.Millisecond
	// pauseHalfLife is how long it takes until half as long a pause is
	// expected, if none comes.
	pauseHalfLife = 1 << 31 // ns, about 2 s
	// For noiseAcks acknowledgements after a loss that was repaired others
	// are to be expected. Meanwhile the floor is noiseFloor times lower:
	// what costs a few packets need not wait until all doubt is gone.
	noiseAcks  = 1 << 12
	noiseFloor = 8
	// unmeasuredAcks is after how many acknowledgements without a
	// measurement, because too much is sent again, one doubling is taken
	// back.
	unmeasuredAcks = 4
	// noiseGuess is then the least, if the round trip is not known.
	noiseGuess = 100 * time.Microsecond
	// Where nothing was measured, fewer than fewInFlight packets wait
	// fewWait for their answer, if the floor lets them: nothing after
	// them would show their loss, and it costs little to send them for
	// nothing. The values are IRN's (Mittal et al., "Revisiting Network
	// Support for RDMA", SIGCOMM 2018).
	fewInFlight = 3
	fewWait     = 100 * time.Microsecond
)

// init begins with the guess that a round trip takes as long as the floor, so
// that the first probe waits four times as long.
func (r *rtt) init(floor time.Duration) {
	*r = rtt{floor: floor, srtt: floor, pauses: new(Pauses)}
}

// start times the acknowledgement of psn, unless another is being timed.
func (r *rtt) start(now clock.Time, psn rocev2.PSN) {
	if r.floor > 0 && !r.timing {
		r.timing, r.psn, r.sentAt = true, psn, now
	}
}

// discard ends a measurement: the answer to a retransmission cannot be told
// from that to the first transmission (RFC 6298, section 3).
func (r *rtt) discard() { r.timing, r.resent = false, true }

// discardOne is discard where one packet is sent again, and the others are not.
func (r *rtt) discardOne(psn rocev2.PSN) {
	r.timing = r.timing && r.psn != psn
	r.resent = true
}

// late returns how long ago something was sent that must have been answered
// (RFC 8985, section 6.2).
func (r *rtt) late() time.Duration {
	if !r.known {
		return time.Hour
	}
	return r.srtt + max(4*r.rttvar, r.srtt/4)
}

// judges says by when what is sent again is answered, and until when what is
// missing may only be late.
func (r *rtt) judges(o *queue.Reordering, now clock.Time) {
	m := time.Duration(r.minRTT)
	if !r.known {
		m = time.Duration(r.first)
	}
	o.Now, o.Missed, o.Ripe = now, now.Add(-r.patience(o)), now.Add(-r.ripens())
	o.Late, o.Soon = now.Add(-r.late()), now.Add(-m/4*3)
}

// lossy records that the path loses packets.
func (r *rtt) lossy() { r.noise = noiseAcks }

// lossless records that it has lost none.
func (r *rtt) lossless() { r.noise = 0 }

// begin says that the first packet will be the one with PSN first.
func (r *rtt) begin(first rocev2.PSN) { r.asked = first.Add(-1) }

// unasked reports whether nothing from una on asks for an answer, and the peer
// is not probed.
func (r *rtt) unasked(una rocev2.PSN) bool { return r.asked.Before(una) && r.probes == 0 }

// share has p be the pauses of the peer.
func (r *rtt) share(p *Pauses) { r.pauses = p }

// progress records that everything before una is acknowledged, and how many
// packets are in flight now. It reports whether probes that were sent meanwhile
// have turned out spurious.
func (r *rtt) progress(now clock.Time, una rocev2.PSN, inFlight uint32) (spurious bool) {
	if r.floor == 0 {
		return false
	}
	if r.known {
		spurious = r.probing && !r.answersProbe(now)
		if !r.resent || spurious { // it was silent though nothing was lost
			r.pauses.add(now, time.Duration(now-r.silentSince), r.floor)
		} else if r.probing {
			r.backoff = 0 // the round trip is what it was
		}
	}
	if r.probing {
		r.maybeSpurious, r.silence = !spurious, time.Duration(now-r.silentSince)
	}
	r.probing, r.postponed, r.resent = false, false, false
	if r.timing && r.psn.Before(una) {
		r.sample(now)
	}
	if r.unmeasured++; r.unmeasured == unmeasuredAcks {
		r.unmeasured, r.backoff = 0, r.backoff-min(r.backoff, 1)
	}
	r.probes = 0
	r.noise -= min(r.noise, 1)
	r.watch(now, inFlight)
	return spurious
}

// guess takes an answer after silence, where no round trip is known: to what
// was sent again, or to what was sent first. So a round trip takes no longer
// than that. With a guess that is too short each probe would come before the
// answer to the one before, and there would never be anything to measure.
//
// But where the answer comes soon after a probe, for the silence before it, it
// is to the probe. Else the loss of the last packet of the first message would
// be waited for again, four times as long as the silence was. With READs in
// flight that is not known: data comes late, and for long.
func (r *rtt) guess(now clock.Time, reads bool) {
	d := time.Duration(now - r.silentSince)
	if answer := time.Duration(now - r.probedAt); !reads && answer < d/probeAnswer {
		d = answer
	}
	r.srtt = max(r.srtt, d)
}

// probeAnswer is what part of a silence the answer to a probe takes at most,
// where no round trip is known.
const probeAnswer = 5

// sample records that the packet which is timed has arrived at the peer.
func (r *rtt) sample(now clock.Time) {
	r.timing, r.backoff, r.unmeasured = false, 0, 0
	d := max(time.Duration(now-r.sentAt), 1)
	if !r.known {
		r.known, r.srtt, r.rttvar, r.minRTT, r.last = true, d, 0, briefly(d), briefly(d)
	}
	r.minRTT = min(r.minRTT, briefly(d))
	r.before, r.last = r.last, briefly(d)
	r.rttvar += ((d - r.srtt).Abs() - r.rttvar) / 4
	r.srtt += (d - r.srtt) / 8
}

// answersProbe reports whether progress at now is a round trip after the
// packets were sent again: not sooner than without queues, and not much later
// than usual, for which a peer that must be woken has some time. Otherwise each
// loss would be taken for a pause, and make the next wait longer.
func (r *rtt) answersProbe(now clock.Time) bool {
	d, silence := time.Duration(now-r.probedAt), time.Duration(now-r.silentSince)
	return 2*d >= time.Duration(r.minRTT) && d <= max(2*r.srtt+4*r.rttvar+r.floor/2, silence/8)
}

// spurious takes the second answer to what was sent twice: nothing had been
// lost.
func (r *rtt) spurious(now clock.Time) {
	r.maybeSpurious = false
	r.pauses.add(now, r.silence, r.floor)
}

// maxPostponed is for how many waits a peer may be silent before a probe is not
// put off any more.
const maxPostponed = 8

// postpone puts off a probe, and reports whether it did: another queue pair has
// just asked the same host, and that has not been heard since. One question at
// a time shows whether it is there. But the queue pair that was asked may be
// gone, and others on its host not: so the next one asks soon.
func (r *rtt) postpone(now clock.Time) bool {
	p, wait := r.pauses, r.wait(now)
	if r.probing || p.probed <= p.heard || now >= p.probed.Add(wait) || now >= r.silentSince.Add(maxPostponed*wait) {
		return false
	}
	r.postponed = true
	r.probeAt = now.Add(r.floor)
	return true
}

// Pauses remembers for how long a peer was silent though nothing was lost.
// Queue pairs that are not used concurrently can share it, those to one host,
// say: a host that pauses does so for all of them.
type Pauses struct {
	longest time.Duration
	at      clock.Time
	heard   clock.Time // when a packet came last
	probed  clock.Time // when one of them last began to ask, because of silence
}

func (p *Pauses) add(now clock.Time, d, floor time.Duration) {
	if d > floor && d > p.Expected(now) {
		p.longest, p.at = d, now
	}
}

// Expected returns the longest pause that was seen, which counts for less as
// time goes by.
func (p *Pauses) Expected(now clock.Time) time.Duration {
	return p.longest >> min(uint64(now-p.at)/pauseHalfLife, 63)
}

// watch sets the time of the next probe, with inFlight packets: the peer has
// just been heard, or has something to answer from now on.
func (r *rtt) watch(now clock.Time, inFlight uint32) {
	if r.floor == 0 {
		return
	}
	r.few = inFlight < fewInFlight && !r.known && r.srtt == r.floor && r.floor <= fewWait
	if !r.probing {
		r.silentSince = now
	}
	r.probeAt = now.Add(r.waits(now))
}

// many records that more than a few packets are in flight now: they are waited
// for longer, from when they were before.
func (r *rtt) many(now clock.Time) {
	few := r.waits(now)
	r.few = false
	r.probeAt = r.probeAt.Add(r.waits(now) - few)
}

// waits is how long the next probe waits.
func (r *rtt) waits(now clock.Time) time.Duration {
	wait := r.wait(now) << r.backoff
	if r.noise > 0 {
		wait = min(wait, max(r.floor/noiseFloor, 2*r.srtt)) << r.probes
		if !r.known && r.srtt == r.floor { // a guess is no reason to wait
			wait = min(wait, max(r.floor/noiseFloor, noiseGuess)) << r.probes
		}
	}
	return wait
}

// wait is how long the peer is silent at most, as far as is known.
func (r *rtt) wait(now clock.Time) time.Duration {
	pause := r.pauses.Expected(now)
	trips := 4 * (r.srtt + r.rttvar)
	if r.few && !r.known {
		trips = fewWait
	}
	return max(r.floor, trips, min(pause+pause/4, maxPause))
}

// probe records that packets are sent again at now because the peer is silent.
// A queue pair that asks once more gives others no reason to wait. It reports
// whether it is the first time since the last progress: then there is something
// to undo if that is spurious.
func (r *rtt) probe(now clock.Time) (first bool) {
	if first = !r.probing; first {
		r.pauses.probed = now
	}
	r.probing, r.maybeSpurious, r.probedAt = true, false, now
	return first
}

// giveUp records that the peer is silent and is not probed: the local ACK
// timeout has its turn.
func (r *rtt) giveUp() { r.probes = maxProbes }

// backOff doubles the wait for the next probe.
func (r *rtt) backOff() {
	r.probes++
	r.backoff = min(r.backoff+1, maxProbes)
}

func (r *rtt) active() bool { return r.floor > 0 && r.probes < maxProbes }

// expired reports that it is time for a probe before the deadline of the local
// ACK timeout.
func (r *rtt) expired(now, deadline clock.Time) bool {
	return r.active() && r.probeAt < deadline && now >= r.probeAt
}

// hears records that something has arrived after what is timed.
func (r *rtt) hears(now clock.Time) {
	if r.first == 0 && r.timing && !r.known {
		r.first = briefly(time.Duration(now - r.sentAt))
	}
}

// patience is for how long what is missing may only be late, whatever has
// overtaken it. A path that keeps the order waits for the first of them only.
func (r *rtt) patience(o *queue.Reordering) time.Duration {
	switch {
	case !o.Judged():
		return r.ripens()
	case !r.known:
		return noiseGuess
	}
	return r.late()
}

// ripens is for how long at least: half of the shortest round trip, which has
// no queues in it. RFC 8985, section 6.2, begins with a quarter; but to be late
// by that costs less than a window that is cut for nothing.
func (r *rtt) ripens() time.Duration {
	switch {
	case r.known:
		return time.Duration(r.minRTT) / 2
	case r.first > 0:
		return min(time.Duration(r.first)/2, noiseGuess)
	}
	return noiseGuess
}
