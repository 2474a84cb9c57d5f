package requester

import (
	"github.com/gosoftroce/rocev2/clock"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/cc"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/qp/queue"
	"github.com/gosoftroce/rocev2/rocev2"
)

// recovery decides when what is sent again: on a timeout, on a NAK, when a
// response shows a loss, or when the peer is silent. It knows what may be in
// flight, which losses make less.
type recovery struct {
	work
	reorder queue.Reorder // responses behind a gap
	fetch   conn.Fetches
	recoveryState
}

// recoveryState is what a reset clears.
type recoveryState struct {
	repair   repair
	sel      *selective // nil: nothing was ever kept behind a gap
	retry    retry
	rtt      rtt
	rnr      rnr
	resent   uint64 // Stats.Retransmits when the peer's silence first had packets sent again
	sinceAck uint32 // packets since the last one with AckReq
	again    uint32 // responses to READs that were asked for more than once, and have not come again
}

// Configure brings changed attributes to where they are used.
func (r *recovery) Configure(mask ib.AttrMask) {
	a := &r.c.Attr
	if mask&(ib.AttrTimeout|ib.AttrRetryCount) != 0 {
		armed := r.retry.armed
		r.retry.configure(a.Timeout, a.RetryCount)
		r.retry.armed = armed
	}
	if mask&ib.AttrRNRRetry != 0 {
		r.rnr.configure(a.RNRRetry)
	}
	if mask&ib.AttrRateLimit != 0 {
		r.c.SetRate()
		r.paced = false
	}
}

// SetLimits changes the bounds of what may be in flight.
func (r *recovery) SetLimits(c cc.Config) {
	r.c.CC.Control.SetConfig(c)
	r.c.Reload()
}

// SharePauses has the requester share p with others until it is reset.
func (r *recovery) SharePauses(p *Pauses) { r.rtt.pauses = p }

// Heard takes note that a packet of the peer has come.
func (r *recovery) Heard(now clock.Time) { r.rtt.host().heard = now }

// Held returns the number of responses that are kept behind a gap.
func (r *recovery) Held() int { return r.reorder.Len() }

// DiscardHeld discards the responses that are kept behind a gap, and what is
// known of what the peer keeps. Another peer may not keep anything.
func (r *recovery) DiscardHeld() {
	r.reorder.Discard()
	r.sel.clear(r.c.Pool)
	r.bound()
	r.rtt.gaps = false
	r.tells = false
}

// InFlight returns the bytes that may lie in the peer's receive buffer: those
// between the oldest unacknowledged packet and the next one, without a share
// that the peer has kept behind a gap.
func (r *recovery) InFlight() int {
	return r.c.CC.Limit.Charge(int(min(r.pipe(), mostCounted)))
}

// Silent reports whether the peer has not answered what is in flight for so
// long that it was sent again, or would be.
func (r *recovery) Silent() bool {
	t := &r.retry
	return r.rtt.probes > 0 || r.rtt.postponed || t.left < t.limit && t.restarts == 0
}

// flight returns what is in flight, for the controller, until the next call.
func (r *recovery) flight() *cc.Flight {
	f := r.c.Flight()
	*f = cc.Flight{
		Una: r.posUna, Next: r.posNxt, Packet: r.packet(),
		RTT: r.rtt.recent(), MinRTT: r.rtt.minRTT.duration(), RTTVar: r.rtt.rttvar,
	}
	if r.rd == 0 {
		f.Pipe = r.pipe()
	}
	return f
}

// lost tells the controller of a loss.
func (r *recovery) lost(now clock.Time, how cc.Loss) {
	if r.c.CC.Control.Lost(now, r.flight(), how) {
		r.c.Stats.Rare().WindowCuts++
	}
	r.c.Reload()
}

// Marked takes a sign of congestion on the path of what is in flight: a
// notification of the peer (CNP), or a response that came marked.
func (r *recovery) Marked(now clock.Time, how cc.Mark) { r.c.Marked(now, r.flight(), how) }

// stop stops the timers and gives back what is kept.
func (r *recovery) stop() {
	r.retry.stop()
	r.rnr.waiting = false
	r.reorder.Discard()
	r.sel.clear(r.c.Pool)
	r.bound()
	r.rtt.gaps = false
	r.fetch = conn.Fetches{}
	r.paging, r.paced = false, false
}

// rewind puts the cursor at the oldest unacknowledged PSN.
func (r *recovery) rewind() {
	r.cur, r.nxt, r.posNxt = r.queue.Head, r.una, r.posUna
	r.rd, r.sinceAck = 0, 0
	r.repair.left = 0
	r.sel.clear(r.c.Pool)
	r.bound()
	r.rtt.gaps = false
	r.retry.stop()
	r.rtt.discard()
	if r.una != r.max {
		if w := r.queue.At(r.queue.Head); w.Is(ib.OpReads) {
			w.Flags |= queue.Resumed
		}
	}
}

// waitRNR waits as long as the peer asks, then goes on with the request that
// met no receive (IBTA 9.7.5.2.8). The peer is alive, so the count for lost
// packets is reloaded.
func (r *recovery) waitRNR(now clock.Time, s rocev2.Syndrome) {
	if !r.rnr.nak(now, rocev2.RNRDelay(s.Code())) {
		r.failHead(ib.StatusRNRRetryExcErr, ib.VendorNAK|uint32(s))
		return
	}
	r.c.Stats.Rare().RNRWaits++
	r.retry.reset()
	r.rewind()
}

// restart goes back to the oldest unacknowledged PSN without a timeout, for a
// sequence NAK or an implied one (IBTA 9.7.6.1). It does so once until there is
// progress or a timeout: more signs of the same loss follow the first. A sign
// that may also say that the packet was sent again and lost again (again) is
// taken a few times, at no cost, so that late signs cannot use up the retries.
func (r *recovery) restart(now clock.Time, again bool) {
	n := r.retry.restarts
	switch {
	case r.c.Failed() || r.rnr.waiting || r.paging:
		return
	case n == 0:
		if !r.retry.spend() {
			r.failHead(r.retry.exhausted(), 0)
			return
		}
	case !again || n >= maxRestarts || r.nxt == r.una || r.repair.left > 0:
		return
	}
	r.retry.restarts++
	r.c.Stats.Rare().Restarts++
	if r.beginRepair(now, repairRun) {
		r.rtt.lossy()
		return
	}
	r.lost(now, cc.GoBack)
	r.rewind()
}

// handleImpliedNAK takes a response behind a READ or an atomic whose response
// was lost (IBTA 9.7.6.1: an implied NAK). While the requests are sent again,
// the rest of the first answers still arrives, in PSN order. When the response
// that showed the gap comes once more, or an earlier one, the repeated answers
// have begun and their first is lost as well. Acknowledgements tell nothing
// here, because each duplicate may cause one. Nothing does after a response
// that does not fit: it would not fit when repeated.
func (r *recovery) handleImpliedNAK(now clock.Time, psn rocev2.PSN, info *rocev2.OpcodeInfo) {
	t := &r.retry
	if mayBeLate(r, now) {
		return
	}
	if r.sel != nil && r.sel.reads != nil && r.nxt == r.max {
		if b := openReads(r, now); b.Missing(r.una) && b.Late() == 0 {
			r.losses(now, r.loseBare(b))
		}
		return
	}
	if info.Operation == rocev2.OpAcknowledge {
		r.restart(now, false)
		return
	}
	again := t.implied && !psn.After(t.impliedBy) && !t.badResp
	if again || !t.implied {
		t.implied, t.impliedBy = true, psn
	}
	r.restart(now, again)
}

// probe sends again before the local ACK timeout, without cost, when a native
// peer has been silent for much longer than a round trip: the last packets in
// flight are lost, and nothing follows them that would show it (tail loss: RFC
// 8985, section 7; RFC 9002, section 6.2). To others nothing goes again before
// that timeout, which is the least (IBTA 9.7.6.1.3): not all of them answer a
// repeated READ.
func (r *recovery) probe(now clock.Time) {
	r.noteSilence(now)
	r.rtt.backOff()
	r.c.Stats.Rare().Probes++
	if r.probeSelectively(now) {
		r.armProbe(now)
		return
	}
	if !r.rtt.known && r.beginProbe() {
		r.armProbe(now)
		return
	}
	if r.rtt.probes == 1 && r.beginRepair(now, probeRun) {
		r.armProbe(now)
		return
	}
	r.goBack(now)
	r.retry.holds = true
}

// armProbe sets the time of the next probe: what is in flight is waited for
// from now on.
func (r *recovery) armProbe(now clock.Time) {
	r.rtt.flies(r.nxt.Ahead(r.una))
	r.rtt.arm(now)
}

// noteSilence notes, before anything is sent again because of silence, what
// there will be to undo if that is spurious.
func (r *recovery) noteSilence(now clock.Time) {
	if !r.rtt.probing {
		r.c.CC.Control.Silence()
		r.resent = r.c.Stats.Retransmits
	}
	r.rtt.probe(now)
}

// undoTimeout undoes what was done because of silence: the peer was only late
// (RFC 4015).
func (r *recovery) undoTimeout() {
	r.c.CC.Control.Undo()
	r.c.Reload()
	r.c.Stats.Rare().SpuriousRetransmits += r.c.Stats.Retransmits - r.resent
}

// detectSpurious takes a response to what has completed. If one packet was sent
// again because of silence, and now both have their answer, then nothing had
// been lost, and the retransmission was spurious (as with DSACK, RFC 3708).
func (r *recovery) detectSpurious(now clock.Time, psn rocev2.PSN) {
	if psn.Next() == r.una && r.c.Stats.Retransmits == r.resent+1 {
		r.rtt.spurious(now)
		r.c.Stats.Rare().SpuriousRetransmits++
	}
}

// goBack goes back because of silence.
func (r *recovery) goBack(now clock.Time) {
	r.lost(now, cc.Timeout)
	r.rewind()
}

// HandleTimeout does what is due at now; without anything due it does nothing.
func (r *recovery) HandleTimeout(now clock.Time) {
	r.c.Expire(&r.reorder, now, queue.ReorderAge(r.c.SRTT))
	r.paced = r.paced && now < r.c.CC.Limit.NotBefore
	if r.rnr.expired(now) {
		return // the next Poll goes on from where rewind has put the cursor
	}
	if r.retry.armed && r.fetch.Pending(conn.NeedPayload) {
		r.retry.stop()
		return
	}
	if r.retry.armed && r.rtt.overdue(now) {
		loseLate(r, now)
		if r.rtt.probeAt <= now { // what goes again now is waited for first
			r.armProbe(now)
		}
		return
	}
	if r.retry.armed && r.rtt.expired(now, r.retry.deadline) {
		switch {
		case r.c.Pool == nil:
			r.rtt.giveUp()
		case !asksFirst(r, now) && !r.rtt.postpone(now):
			r.probe(now)
		}
		return
	}
	if r.retry.expired(now) {
		r.c.Stats.Rare().Timeouts++
		if !r.retry.spend() {
			r.failHead(r.retry.exhausted(), 0)
			return
		}
		r.noteSilence(now)
		r.goBack(now)
	}
}

// Deadline returns when HandleTimeout wants to be called, or Poll, and whether
// at all.
func (r *recovery) Deadline() (clock.Time, bool) {
	at, armed := r.rnr.deadline, r.rnr.waiting
	if !armed {
		at, armed = r.rtt.earlier(r.retry.deadline), r.retry.armed
	}
	if r.paced {
		if next := r.c.Resumes(); !armed || next < at {
			at, armed = next, true
		}
	}
	if t, ok := r.reorder.Deadline(queue.ReorderAge(r.c.SRTT)); ok && (!armed || t < at) {
		return t, true
	}
	return at, armed
}
