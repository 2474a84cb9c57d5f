package requester

import (
	"github.com/gosoftroce/rocev2/clock"
	"github.com/gosoftroce/rocev2/qp/queue"
	"github.com/gosoftroce/rocev2/rocev2"
)

// lateness is what may only be late, on a path that does not keep the order of
// packets, and what has turned out to be.
type lateness struct {
	path  queue.Reordering // of requests
	back  queue.Reordering // of responses
	ahead bool             // since aheadAt an acknowledgement has come before the response una
	mute  bool             // a sequence NAK has come without the selective acknowledgement that a native peer sends
	alone bool             // since aloneAt there is a sequence NAK without the selective acknowledgement that it comes with
	asked bool             // a sequence NAK has come before responses: the request askedFor is missing

	askedFor         rocev2.PSN
	aheadAt, aloneAt clock.Time
	resent           uint64 // if ahead: Stats.Retransmits when that showed

	// What has turned out lost since the size of the window was noted, and
	// how much of that has been sent again for nothing.
	round          uint64 // it was noted for what had been sent up to here
	lostIn, lateIn uint32
}

// noteGaps takes note since when something is missing that may only be late.
func noteGaps(r *recovery) {
	s, t := r.sel, &r.rtt
	if r.nxt != r.max || r.c.Failed() {
		t.gaps = false
		return
	}
	t.gaps, t.missedAt = s.ahead, s.aheadAt
	if s.alone && (!t.gaps || s.aloneAt < t.missedAt) {
		t.gaps, t.missedAt = true, s.aloneAt
	}
	for _, b := range [...]*queue.Scoreboard{s.board, s.reads} {
		if at, ok := b.FirstLate(); ok && (!t.gaps || at < t.missedAt) {
			t.gaps, t.missedAt = true, at
		}
	}
}

// loseLate takes note that what has been missing for longer than a round trip
// is lost.
func loseLate(r *recovery, now clock.Time) {
	s, n := r.sel, 0
	r.rtt.judges(&s.path, now)
	r.rtt.judges(&s.back, now)
	if s.board != nil {
		n += s.board.LoseLate()
	}
	if s.reads != nil {
		n += s.reads.LoseLate()
	}
	if n > 0 {
		r.losses(now, n)
	}
	if s.alone && s.aloneAt <= s.path.Missed {
		s.alone, s.mute = false, true
		r.restart(now, true)
	}
	if s.ahead && s.aheadAt <= s.back.Missed {
		s.ahead = false
		s.back.Lost()
		r.restart(now, false)
	}
	noteGaps(r)
}

// awaitsSelective takes a sequence NAK of a native peer that has sent no
// selective acknowledgement so far, and reports whether that is waited for: it
// says more, was sent before, and may have taken a longer way.
func awaitsSelective(r *recovery, now clock.Time) bool {
	if r.c.Pool == nil || r.rtt.floor == 0 || r.tells || r.nxt != r.max || r.retry.restarts > 0 || r.c.Failed() || r.rnr.waiting || r.paging ||
		r.queue.At(r.queue.Head).Answered() {
		return false
	}
	s := r.selective()
	if !s.alone && !s.mute {
		s.alone, s.aloneAt = true, now
		noteGaps(r)
	}
	return !s.mute
}

// mayBeLate reports whether the response una, before which something has come
// that the peer sent later, may only be late.
func mayBeLate(r *recovery, now clock.Time) bool {
	if r.c.Pool == nil || r.nxt != r.max || !r.selective().back.Waits() {
		return false
	}
	if !r.sel.ahead && !r.sel.reads.Knows(r.una) {
		r.sel.ahead, r.sel.aheadAt, r.sel.resent = true, now, r.c.Stats.Retransmits
		noteGaps(r)
		r.armProbe(now)
	}
	return true
}

// undoSpurious takes what has turned out to have been late only, though it was
// sent again. When all that was taken for lost was, so does the cut.
func undoSpurious(r *recovery) {
	s := r.sel
	n := s.path.TakeSpurious() + s.back.TakeSpurious()
	if n == 0 {
		return
	}
	r.c.Stats.Rare().SpuriousRetransmits += uint64(n)
	if s.lateIn += uint32(n); s.lateIn >= s.lostIn {
		s.lostIn, s.lateIn, s.round = 0, 0, 0
		r.rtt.noise = 0
		r.c.CC.Control.Undo()
		r.c.Reload()
	}
}

// nakAhead takes a sequence NAK that came before responses, when these have
// come.
func nakAhead(r *recovery, now clock.Time) {
	if s := r.sel; s.asked && !r.una.Before(s.askedFor) {
		s.asked = false
		if r.una == s.askedFor {
			r.nakHole(now)
			noteGaps(r)
		}
	}
}

// advanceBoards takes note that what comes before una is acknowledged.
func advanceBoards(r *recovery, now clock.Time) {
	s := r.sel
	s.back.Advance(r.una)
	if s.ahead {
		s.ahead = false
		if r.c.Stats.Retransmits == s.resent && r.again == 0 && !s.back.ComesTwice(r.una) {
			s.back.Passed()
		}
	}
	s.alone = false
	if s.board == nil && s.reads == nil {
		r.rtt.gaps = false
		return
	}
	r.rtt.judges(&s.path, now)
	r.rtt.judges(&s.back, now)
	s.advance(r.una, r.c.Pool)
	r.bound()
	noteGaps(r)
	undoSpurious(r)
}
