package requester

import (
	"time"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/cc"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/qp/trace"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// recovery decides what is sent again, and when. It is told what was sent, what
// is acknowledged, what a NAK or a response shows to be missing, and the time.
// What comes of that: the stream goes back, single packets are to be sent again
// (gaps and repair), the controller hears of losses, and a deadline.
//
// It reads where the stream is, and moves its cursor back; it neither posts,
// nor makes packets, nor completes anything but a request that has no retry
// left.
type recovery struct {
	c *conn.Conn
	s *stream

	fetch  conn.Fetches
	gaps   *gaps // nil: nothing was ever kept after a gap
	retry  retry
	rnr    rnr
	rtt    rtt
	repair repair

	resent   uint64 // Stats.Retransmits when the peer's silence first had packets sent again
	sinceAck uint32 // packets since the last one with AckReq
	again    uint32 // responses to READs that were asked for more than once, and have not come again
	paced    bool   // the last poll stopped before Limit.NotBefore
	tells    bool   // the peer sends selective acknowledgements
	flush    flushICRC
}

// init begins anew, with the floor of probes.
func (r *recovery) init(s *stream, floor time.Duration) {
	*r = recovery{c: s.c, s: s}
	r.rtt.init(floor)
}

// configure takes changed attributes.
func (r *recovery) configure(mask ib.AttrMask) {
	a := &r.c.Attr
	if mask&(ib.AttrTimeout|ib.AttrRetryCount) != 0 {
		r.retry.configure(a.Timeout, a.RetryCount)
	}
	if mask&ib.AttrRNRRetry != 0 {
		r.rnr.configure(a.RNRRetry)
	}
	if mask&ib.AttrRateLimit != 0 {
		r.c.SetRate()
		r.paced = false
	}
}

// stop stops the timers and forgets what the peer keeps.
func (r *recovery) stop() {
	r.retry.stop()
	r.gaps.clear()
	r.rnr.waiting, r.paced = false, false
	r.fetch = conn.Fetches{}
}

// newPeer forgets what the peer can do: another one may not keep anything.
func (r *recovery) newPeer() {
	r.gaps.clear()
	r.tells = false
}

// holds reports whether nothing is sent: the peer has asked for time, or the
// place of a response is not there.
func (r *recovery) holds() bool { return r.rnr.waiting || r.fetch.Pending(conn.NeedResult) }

// pace reports whether what there is to send, new or again, waits for its rate.
func (r *recovery) pace(now clock.Time, more bool) bool {
	r.paced = (more || r.waits()) && r.c.Waits(now, r.paced)
	return r.paced
}

// pipe returns the bytes that are between the two hosts, as far as is known.
func (r *recovery) pipe() uint64 {
	if r.gaps != nil {
		return r.gaps.pipe()
	}
	return r.s.posNxt - r.s.posUna
}

// inFlight returns pipe, and whether the peer has not answered that for so long
// that it was sent again, or would be.
func (r *recovery) inFlight() (bytes uint64, silent bool) {
	silent = r.rtt.probes > 0 || r.rtt.postponed || r.retry.left < r.retry.limit && r.retry.restarts == 0
	return r.pipe(), silent
}

// sent records that n packets were sent, the last of them as rq says: for the
// first time, or again because the stream went back (repeated).
func (r *recovery) sent(now clock.Time, rq *request, n int, repeated bool) {
	if repeated {
		r.c.Stats.Retransmits += uint64(n)
		r.gaps.askedAgain(rq)
		if rq.w.Kind&ib.OpReads != 0 {
			r.again = min(r.again+rq.psns, maxChunk)
		}
	} else {
		if rq.ack {
			r.rtt.start(now, rq.psn)
		}
		if r.gaps != nil {
			r.gaps.wantTwin(rq)
		}
	}
	r.sinceAck += uint32(n)
	switch {
	case !r.retry.armed:
		r.await(now)
	case rq.ack && r.rtt.unasked(r.s.una) && r.rtt.known && r.answerDue() < now.Add(r.rtt.late()):
		// Until now nothing in flight asked the peer, and the timers
		// would end before it can answer.
		r.heard(now)
	case r.rtt.few && r.s.inFlight() >= fewInFlight:
		r.rtt.many(now)
	}
	if rq.ack {
		r.sinceAck, r.rtt.asked = 0, r.s.nxt.Add(-1)
	}
	if r.c.Traces() {
		why := trace.None
		if repeated {
			why = trace.Rewound
		}
		r.c.Trace(rq.event(n, why, r.pipe()))
	}
}

// waits reports whether packets are to be sent again while sending goes on
// where it was: single ones that are lost, or a repair.
func (r *recovery) waits() bool { return r.repair.left > 0 || r.gaps != nil && r.gaps.waits() }

// sentAgain takes a packet that was sent again while sending goes on where it
// was.
func (r *recovery) sentAgain(now clock.Time, rq *request) {
	r.c.Stats.Retransmits++
	if rq.w.Kind&ib.OpCarries != 0 {
		r.c.Stats.TxBytes += uint64(rq.n)
	}
	if r.c.Traces() {
		r.c.Trace(rq.event(1, rq.why, r.pipe()))
	}
	if rq.why != trace.Missing { // of which next has told
		r.gaps.askedAgain(rq)
	}
	switch {
	case rq.why == trace.Twin:
		return
	case rq.why != trace.Repaired:
		r.gaps.sent(now, rq)
		r.retry.stop()
		r.rtt.discardOne(rq.psn)
	case r.rtt.known:
		r.repair.sent(r.s, rq)
		r.retry.stop()
		r.rtt.discard()
	default:
		r.repair.sent(r.s, rq)
		r.rtt.discardOne(rq.psn)
	}
	r.await(now)
}

// await has the timers run, unless the one for the timeout does, for what is in
// flight.
func (r *recovery) await(now clock.Time) {
	r.retry.start(now)
	r.rtt.watch(now, r.s.inFlight())
}

// progress does what follows when una moves on: it was at from before, and at
// position pos. The timer and the retry counts start anew (IBTA 9.7.6.1.3),
// the round trip is measured (RFC 6298, section 3), the controller may let more
// go (RFC 5681, section 3.1).
func (r *recovery) progress(now clock.Time, from rocev2.PSN, pos uint64) {
	s := r.s
	if s.una == from || r.c.Failed() {
		return
	}
	s.catchUp(from)
	n := s.posUna - pos
	if r.gaps != nil {
		r.gaps.advance(now, r.again)
		n = r.gaps.arrived()
	}
	r.retry.progress(now, s.una != s.nxt)
	if r.rtt.probing && !r.rtt.known {
		r.rtt.guess(now, s.rd > 0)
	}
	timing := r.rtt.timing
	if r.rtt.progress(now, s.una, s.inFlight()) {
		r.c.CC.Control.Undo() // the peer was only late (RFC 4015)
		r.c.Reload()
		r.c.Stats.Rare().SpuriousRetransmits += r.c.Stats.Retransmits - r.resent
	}
	if r.rtt.known {
		r.c.SRTT = r.rtt.srtt
	}
	r.rnr.reset()
	f := r.flight()
	if timing && !r.rtt.timing {
		f.Sample = time.Duration(r.rtt.last)
	}
	r.c.Acked(now, f, n)
	if r.c.Traces() {
		r.c.Trace(trace.Event{Kind: trace.Acked, PSN: s.una, Bytes: int(n), Flow: trace.Flow{InFlight: r.pipe()}})
	}
	if r.repair.progress(s.una) {
		r.restart(now, true)
	}
	if r.gaps != nil && r.gaps.late.takeAsked(s.una) {
		r.missing(now)
		r.gaps.noteGaps()
	}
	if s.fault || s.notify {
		s.settle()
	}
}

// heard records that something of the peer has come which is no progress: it is
// there, and the timers start anew.
func (r *recovery) heard(now clock.Time) {
	r.retry.heard(now)
	r.rtt.watch(now, r.s.inFlight())
}

// flight returns what is in flight, for the controller, until the next call.
func (r *recovery) flight() *cc.Flight {
	f := &r.c.Scratch.Flight
	// In place: to copy what was just written in parts stalls.
	f.Una, f.Next, f.Packet, f.Pipe = r.s.posUna, r.s.posNxt, fullPacket(r.c), 0
	// A queue makes both of the last two round trips longer, a host that
	// was busy one of them.
	f.RTT = time.Duration(min(r.rtt.last, r.rtt.before))
	f.MinRTT, f.RTTVar, f.Sample = time.Duration(r.rtt.minRTT), r.rtt.rttvar, 0
	if r.s.rd == 0 {
		f.Pipe = r.pipe()
	}
	return f
}

// lost tells the controller of n losses. Those that acknowledgements have shown
// each by itself are sent again each by itself.
func (r *recovery) lost(now clock.Time, how cc.Loss, n int) {
	if how == cc.Selective {
		r.c.Stats.Rare().Repairs++
		r.rtt.lossy()
		l := &r.gaps.late
		l.path.Judge()
		if r.s.posUna >= l.round {
			l.round, l.lostIn, l.lateIn = r.s.posNxt, 0, 0
			if !r.rtt.probing {
				r.c.CC.Control.Silence()
			}
		}
		l.lostIn += uint32(n)
	}
	f := r.flight()
	if f.Pipe > 0 && how == cc.Selective {
		f.Pipe += uint64(n) * uint64(fullPacket(r.c))
	}
	for range n {
		if r.c.CC.Control.Lost(now, f, how) {
			r.c.Stats.Rare().WindowCuts++
		}
	}
	r.c.Reload()
	if r.c.Traces() {
		r.c.Trace(trace.Event{Kind: trace.Lost, Why: lossNames[how], PSN: r.s.una, Packets: n, Flow: trace.Flow{InFlight: r.pipe()}})
	}
}

// rewind goes back to the oldest unacknowledged PSN.
func (r *recovery) rewind() {
	r.s.rewind()
	r.sinceAck, r.repair.left = 0, 0
	r.gaps.clear()
	r.retry.stop()
	r.rtt.discard()
}

// goBack goes back because of a loss.
func (r *recovery) goBack(now clock.Time, how cc.Loss) {
	r.lost(now, how, 1)
	r.rewind()
}

// waitRNR waits as long as the peer asks, then goes on with the request that
// met no receive (IBTA 9.7.5.2.8). The peer is alive, so the count for lost
// packets is reloaded.
func (r *recovery) waitRNR(now clock.Time, s rocev2.Syndrome) {
	if !r.rnr.nak(now, rocev2.RNRDelay(s.Code())) {
		r.s.failHead(ib.StatusRNRRetryExcErr, ib.VendorNAK|uint32(s))
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
	case r.c.Failed() || r.holds():
		return
	case n == 0:
		if !r.retry.spend() {
			r.s.failHead(r.retry.exhausted(), 0)
			return
		}
	case !again || n >= maxRestarts || r.s.nxt == r.s.una || r.repair.left > 0:
		return
	}
	r.retry.restarts++
	r.c.Stats.Rare().Restarts++
	if r.beginRepair(now, repairRun) {
		r.rtt.lossy()
		return
	}
	r.goBack(now, cc.GoBack)
}

// beginRepair begins to send a run of packets again, from the oldest
// unacknowledged one on, if that may be enough.
func (r *recovery) beginRepair(now clock.Time, run uint32) bool {
	grows := r.repair.grows(r.s.una)
	how := cc.Repaired
	if grows && r.repair.run > run {
		how = cc.RepairedRow
	}
	if r.c.Pool == nil || !r.repair.begin(r.s, run, repairReads, grows) {
		return false
	}
	r.lost(now, how, 1)
	r.c.Stats.Rare().Repairs++
	return true
}

// impliedNAK takes a response after a READ or an atomic whose response was
// lost (IBTA 9.7.6.1: an implied NAK). While the requests are sent again, the
// rest of the first answers still arrives, in PSN order. When the response that
// showed the gap comes once more, or an earlier one, the repeated answers have
// begun and their first is lost as well. Acknowledgements tell nothing here,
// because each duplicate may cause one. Nothing does after a response that does
// not fit: it would not fit when repeated.
func (r *recovery) impliedNAK(now clock.Time, psn rocev2.PSN, info *rocev2.OpcodeInfo) {
	if r.mayBeLate(now) {
		return
	}
	if r.gaps != nil && r.gaps.reads != nil && !r.s.goesAgain() {
		if b := r.gaps.openReads(now); b.Missing(r.s.una) && b.Late() == 0 {
			r.lost(now, cc.Selective, r.gaps.loseBare(b))
		}
		return
	}
	r.restart(now, info.Operation != rocev2.OpAcknowledge && r.retry.impliedBefore(psn))
}

// probe sends again before the local ACK timeout, without cost, when a native
// peer has been silent for much longer than a round trip: the last packets in
// flight are lost, and nothing follows them that would show it (tail loss: RFC
// 8985, section 7; RFC 9002, section 6.2). To others nothing goes again before
// that timeout, which is the least (IBTA 9.7.6.1.3): not all of them answer a
// repeated READ.
func (r *recovery) probe(now clock.Time) {
	if r.rtt.probe(now) {
		r.resent = r.c.Stats.Retransmits
		r.c.CC.Control.Silence()
	}
	r.rtt.backOff()
	r.c.Stats.Rare().Probes++
	r.c.Trace(trace.Event{Kind: trace.Timer, Why: trace.Probe, PSN: r.s.una, Flow: trace.Flow{InFlight: r.pipe()}})
	// While it is not known how long a round trip takes, more than the
	// guess, perhaps, nothing says that more than the oldest was lost.
	if r.probeSelectively(now) || !r.rtt.known && r.repair.begin(r.s, 1, 1, false) ||
		r.rtt.probes == 1 && r.beginRepair(now, probeRun) {
		r.rtt.watch(now, r.s.inFlight())
		return
	}
	r.goBack(now, cc.Timeout)
	r.retry.holds = true
}

// stale takes a response to what has completed. If one packet was sent again
// because of silence, and now both have their answer, then nothing had been
// lost, and the retransmission was spurious (as with DSACK, RFC 3708).
func (r *recovery) stale(now clock.Time, psn rocev2.PSN, info *rocev2.OpcodeInfo) {
	if r.rtt.maybeSpurious && psn.Next() == r.s.una && r.c.Stats.Retransmits == r.resent+1 {
		r.rtt.spurious(now)
		r.c.Stats.Rare().SpuriousRetransmits++
	}
	if info.Operation != rocev2.OpReadResponse {
		return
	}
	if r.gaps != nil && info.First && !info.Last {
		r.gaps.twins.answered()
	}
	if r.again > 0 { // the peer answers twice, in order: what is waited for follows
		r.again--
		r.heard(now)
	}
}

// timeout does what is due at now; without anything due it does nothing.
func (r *recovery) timeout(now clock.Time) {
	r.paced = r.paced && now < r.c.CC.Limit.NotBefore
	switch {
	case r.rnr.expired(now):
		r.c.Trace(trace.Event{Kind: trace.Timer, Why: trace.RNRWait, PSN: r.s.una, Flow: trace.Flow{InFlight: r.pipe()}}) // the next Poll goes on from where rewind has put the cursor
	case r.retry.armed && r.fetch.Pending(conn.NeedPayload):
		r.retry.stop()
	case r.retry.armed && r.gaps.overdue(now):
		r.c.Trace(trace.Event{Kind: trace.Timer, Why: trace.Late, PSN: r.s.una, Flow: trace.Flow{InFlight: r.pipe()}})
		r.loseLate(now)
		if r.rtt.probeAt <= now { // what goes again now is waited for first
			r.rtt.watch(now, r.s.inFlight())
		}
	case r.retry.armed && r.rtt.expired(now, r.retry.deadline):
		switch {
		case r.c.Pool == nil:
			r.rtt.giveUp()
		case !r.asksFirst(now) && !r.rtt.postpone(now):
			r.probe(now)
		}
	case r.retry.expired(now):
		r.c.Stats.Rare().Timeouts++
		r.c.Trace(trace.Event{Kind: trace.Timer, Why: trace.AckTimeout, PSN: r.s.una, Flow: trace.Flow{InFlight: r.pipe()}})
		if !r.retry.spend() {
			r.s.failHead(r.retry.exhausted(), 0)
			return
		}
		if r.rtt.probe(now) {
			r.resent = r.c.Stats.Retransmits
			r.c.CC.Control.Silence()
		}
		r.goBack(now, cc.Timeout)
	}
}

// mustAsk is a sinceAck with which the next packet asks in any case.
const mustAsk = 1 << 30

// asksFirst has the next packet ask for an answer, and reports whether it does:
// the peer is asked before it is taken for silent. It answers what asks for it.
// While nothing in flight does, its silence says nothing, and a large window
// takes longer to be sent than a short path to answer.
func (r *recovery) asksFirst(now clock.Time) bool {
	if !r.rtt.unasked(r.s.una) || r.sinceAck == mustAsk || r.s.empty() || r.holds() {
		return false
	}
	r.sinceAck = mustAsk
	r.rtt.watch(now, r.s.inFlight())
	return true
}

// deadline returns when timeout wants to be called, or Poll, and whether at
// all.
func (r *recovery) deadline() (clock.Time, bool) {
	at, armed := r.rnr.deadline, r.rnr.waiting
	if !armed {
		at, armed = r.answerDue(), r.retry.armed
	}
	if r.paced {
		if next := r.c.Resumes(); !armed || next < at {
			at, armed = next, true
		}
	}
	return at, armed
}

// answerDue returns when something is done if no answer comes until then, while
// the retry timer runs.
func (r *recovery) answerDue() clock.Time {
	at := r.retry.deadline
	if r.rtt.active() {
		at = min(at, r.rtt.probeAt)
	}
	if r.gaps != nil && r.gaps.late.waiting {
		at = min(at, r.gaps.late.dueAt)
	}
	return at
}
