package requester

import (
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/cc"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/qp/queue"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// Between two native peers both directions keep what arrives after a gap, and
// tell it. So what is lost is known packet by packet.

// kept returns where to note what is kept.
func (r *recovery) kept() *gaps {
	if r.gaps == nil {
		r.gaps = &gaps{c: r.c, s: r.s, rtt: &r.rtt, told: r.s.posUna}
		r.gaps.late.back.Judge() // what is kept here shows at once how late a response was
		if r.rtt.floor == 0 {    // nothing would end a wait
			r.gaps.late.path.Judge()
		}
	}
	return r.gaps
}

// selectiveAck takes a selective acknowledgement. What comes before its PSN is
// taken already: una was at from, and pos, before, and has reached that PSN, or
// not for a response that is missing. It returns false if what it says cannot
// be true.
func (r *recovery) selectiveAck(now clock.Time, p *rocev2.Packet, from rocev2.PSN, pos uint64, reached bool) bool {
	if r.gaps != nil {
		r.gaps.late.alone.on = false
	}
	early := r.s.goesAgain() && p.BTH.PSN.Ahead(from) >= r.s.nxt.Ahead(from) || r.holds()
	r.tells = r.tells || !early
	if !reached || r.c.Failed() || early || r.s.goesAgain() { // all is being sent again
		r.progress(now, from, pos)
		return true
	}
	r.rtt.hears(now)
	s := r.kept()
	before := s.kept()
	lost, ok := s.update(now, p.Payload)
	if !ok {
		r.progress(now, from, pos)
		return false
	}
	if r.rtt.timing && s.board.Has(r.rtt.psn, r.s.una) {
		r.rtt.sample(now)
	}
	switch {
	case r.s.una != from:
		r.progress(now, from, pos)
	case s.kept() > before:
		r.heard(now)
		r.c.Acked(now, r.flight(), s.arrived())
	}
	s.noteRoom(p)
	if lost > 0 && !r.c.Failed() {
		r.lost(now, cc.Selective, lost)
	}
	return true
}

// loseLate records that what has been missing for longer than a round trip is
// lost.
func (r *recovery) loseLate(now clock.Time) {
	r.gaps.judge(now)
	if n := r.gaps.board.LoseLate() + r.gaps.reads.LoseLate(); n > 0 {
		r.lost(now, cc.Selective, n)
	}
	l := &r.gaps.late
	if l.alone.over(l.path.Missed) {
		l.mute = true
		r.restart(now, true)
	}
	if l.ahead.over(l.back.Missed) {
		l.back.Lost()
		r.restart(now, false)
	}
	r.gaps.noteGaps()
}

// sequenceNAK takes a sequence NAK for una. A native peer that has sent no
// selective acknowledgement so far may have: that says more, was sent before,
// and may have taken a longer way. So it is waited for.
func (r *recovery) sequenceNAK(now clock.Time) {
	if r.tells && !r.s.goesAgain() {
		r.missing(now)
		return
	}
	says := r.c.Pool != nil && r.rtt.floor > 0 && !r.tells && !r.s.goesAgain() && r.retry.restarts == 0
	if says && !r.c.Failed() && !r.holds() && r.s.head().Kind&ib.OpAnswered == 0 && r.kept().waitsAlone(now) {
		return
	}
	r.restart(now, true)
}

// missing records that una is missing at a peer that sends selective
// acknowledgements, which say more.
func (r *recovery) missing(now clock.Time) {
	if r.c.Failed() || r.s.goesAgain() || r.holds() {
		return
	}
	b := r.kept().openBoard(now)
	kept := b.Kept(r.s.una)
	switch {
	case !b.Missing(r.s.una):
	case kept > 0: // it has given up what it kept (RFC 2018, section 8)
		r.goBack(now, cc.GoBack)
	case b.Late() > 0:
	case r.gaps.keepsNothing():
		r.goBack(now, cc.GoBack)
	default:
		n := r.gaps.loseBare(b)
		r.lost(now, cc.Selective, n-r.s.answers(b))
	}
}

// mayBeLate reports whether the response una, before which something has come
// that the peer sent later, may only be late.
func (r *recovery) mayBeLate(now clock.Time) bool {
	if r.c.Pool == nil || r.s.goesAgain() || !r.kept().late.back.Waits() {
		return false
	}
	if r.gaps.waitsAhead(now) {
		r.rtt.watch(now, r.s.inFlight())
	}
	return true
}

// nakAhead takes a sequence NAK for psn that came before responses, and reports
// whether these may only be late.
func (r *recovery) nakAhead(now clock.Time, psn rocev2.PSN) bool {
	if !r.mayBeLate(now) {
		return false
	}
	r.gaps.late.asked, r.gaps.late.askedFor = true, psn
	return true
}

// probeSelectively sends what is missing again, as far as is known, and what
// shows the rest. It returns false if nothing is known.
func (r *recovery) probeSelectively(now clock.Time) bool {
	switch {
	case r.s.goesAgain():
		return false
	case r.gaps != nil && r.gaps.reads != nil:
		r.gaps.reads.Resend()
		return r.gaps.reads.Lost() > 0
	case !r.tells || r.s.una == r.s.max || r.s.awaitsRest():
		return false
	}
	r.kept().probe(now)
	return true
}

// afterGap takes a response to a READ after a gap, the first after another
// gap, perhaps (another), which is kept, or refused (d).
func (r *recovery) afterGap(now clock.Time, psn rocev2.PSN, info *rocev2.OpcodeInfo, d conn.Drop, another bool, kept queue.Reorder) {
	switch d {
	case conn.DropNone:
		if r.keptResponse(now, psn, another, kept) {
			return
		}
	case conn.DropGap:
		r.kept().refuse(psn, kept)
		if r.s.goesAgain() || r.holds() || kept.Len() > 0 || r.s.readsUntil(psn.Next()) != psn.Next() {
			break
		}
		// Nothing is kept, so it is too far from the gap. All before it
		// are lost, and it is now.
		if n := r.gaps.loseReads(now, psn.Next()); n > 0 {
			r.lost(now, cc.Selective, n)
		}
		return
	}
	r.impliedNAK(now, psn, info) // it may mean something else than that some responses are lost
}

// keptResponse takes a response that is kept after a gap; the packet is the
// first after another gap, perhaps (gap). It returns false if requests other
// than READs are among what is missing: their acknowledgements show something
// else.
func (r *recovery) keptResponse(now clock.Time, psn rocev2.PSN, gap bool, kept queue.Reorder) bool {
	r.heard(now)
	if r.rtt.timing && r.rtt.psn == psn {
		r.rtt.sample(now)
	}
	r.rtt.hears(now)
	s := r.kept()
	s.bare = 0
	if s.held++; s.reads != nil && (!gap || s.late.back.Seen()) && s.held < kept.Every(r.s.una) {
		return true
	}
	if r.s.goesAgain() || r.holds() || kept.Len() == 0 || r.s.readsUntil(kept.End()) != kept.End() {
		return false
	}
	lost := s.updateReads(now, kept)
	r.c.Acked(now, r.flight(), s.arrived())
	if lost > 0 {
		r.lost(now, cc.Selective, lost)
	}
	return true
}

// sendRefused goes back to what there was no room for after a gap, when that
// is closed. held is how many responses are kept here.
func (r *recovery) sendRefused(held int) {
	if r.gaps != nil && r.gaps.takeRefused(held) && !r.holds() {
		r.rewind()
	}
}
