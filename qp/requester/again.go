package requester

import (
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/queue"
	"github.com/gosoftroce/rocev2/qp/trace"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// next makes rq, which is empty, the next packet that is lost, and reports
// whether there is one that may go. kept are the responses that are kept here.
func (g *gaps) next(now clock.Time, rq *request, kept queue.Reorder) bool {
	if g.twins.due && g.nextTwin(rq) {
		return true
	}
	if g.reads.Lost() > 0 {
		return g.nextMissing(now, rq)
	}
	for b := g.board; b.Lost() > 0; {
		h := b.NextLost()
		if h.PSN != g.s.una && !g.mayResend(b) {
			return false
		}
		if g.cutHole(rq, h.PSN, kept) {
			rq.why = trace.Hole
			return true
		}
		b.Sent(h, now, g.s.max)
	}
	if !g.tail {
		return false
	}
	g.tail, rq.why = false, trace.Tail
	return g.cutHole(rq, g.last, kept)
}

// nextTwin makes rq the twin that is due.
func (g *gaps) nextTwin(rq *request) bool {
	t := &g.twins
	t.note()
	i, ok := g.s.requestOf(t.psn)
	if !ok || g.s.goesAgain() || t.psn.Before(g.s.una) {
		return false
	}
	g.s.cut(rq, i, t.psn)
	rq.why = trace.Twin
	return true
}

// nextMissing makes rq a request for the next responses to a READ that are
// missing, as many as are missing in a row.
func (g *gaps) nextMissing(now clock.Time, rq *request) bool {
	b := g.reads
	h := b.NextLost()
	psn := h.PSN
	if psn != g.s.una && !g.mayResend(b) {
		return false
	}
	i, ok := g.s.requestOf(psn)
	if !ok || g.s.ring.At(i).Kind&ib.OpReads == 0 {
		b.Sent(h, now, g.s.max)
		return false
	}
	g.s.resume(i)
	g.s.cut(rq, i, psn)
	rq.why, rq.ack = trace.Missing, true
	end := psn.Add(int(rq.psns))
	// A request that may not have been executed must be what it was.
	executed := rq.rel%g.s.chunk.of(rq.w) != 0 || b.Any(psn, end)
	if n := b.SendRow(psn, end, !executed, now, g.s.max); executed && n < rq.psns {
		rq.limit(n, g.c.Shift)
	} else if !executed {
		g.askedAgain(rq)
	}
	return true
}

// cutHole makes rq the packet with a PSN. There is none for the responses to a
// READ, which has one request for all.
func (g *gaps) cutHole(rq *request, psn rocev2.PSN, kept queue.Reorder) bool {
	i, ok := g.s.requestOf(psn)
	if !ok {
		return false
	}
	if w := g.s.ring.At(i); w.Kind&ib.OpAnswered != 0 {
		if psn != g.s.una && psn.Ahead(w.First)%g.s.chunk.of(w) != 0 {
			return false
		}
		g.s.resume(i)
	}
	g.s.cut(rq, i, psn)
	if rq.ack = true; psn == g.s.una {
		rq.stopAt(kept, psn, g.c.Shift)
	}
	return true
}

// resendShare is what part of the window may be packets that are sent again,
// though it is full.
const resendShare = 8

// mayResend reports whether another lost packet may be sent again. The window
// may seem full of packets that are lost, or were not kept, which nothing has
// shown yet: so some go in any case.
func (g *gaps) mayResend(b *queue.Scoreboard) bool {
	size, window := uint64(fullPacket(g.c)), uint64(g.c.CC.Limit.Bytes)
	return g.pipe()+size <= window || uint64(b.Pending())*size < window/resendShare
}

// sent records that rq was sent again.
func (g *gaps) sent(now clock.Time, rq *request) {
	if rq.why != trace.Hole {
		return
	}
	b := g.board
	b.Sent(b.NextLost(), now, g.s.max)
	// With nothing new after it, nothing would show that it is lost again.
	// Of a READ that comes twice much may be answered twice.
	if b.Lost() == 0 && (g.s.empty() || g.s.inFlight() >= g.c.CC.Limit.PSNs) && (rq.w.Kind&ib.OpReads == 0 || rq.w.PSNs == 1) {
		g.tail, g.last = true, rq.psn
	}
}

// The peer answers in order. So the request for a long READ, when it is lost,
// holds up the answers to all after it for a round trip, and then they come in
// one burst, for which no queue on the way has room. It is one small packet for
// many large ones. So while the path loses packets it goes twice. The second,
// the twin, does not ask for an acknowledgement: a native peer that has the
// first drops it (package responder, isTwin). On the wire it is a request that
// was sent again.

// twinPSNs is how many packets the answer has at least for which the request
// goes twice.
const twinPSNs = 8

// twins are the requests that go twice.
type twins struct {
	psn   rocev2.PSN // of the one that is to be sent once more
	due   bool       // there is one
	off   bool       // the peer answers both
	anew  bool       // since the last twin an answer that has come began anew
	sent  uint8      // twins, of the last twinTrial
	twice uint8      // of these, after how many that was so
}

// twinTrial is after how many twins it is seen whether the peer answers them,
// too, as a native peer of an older version does.
const twinTrial = 16

// note counts a twin that is sent.
func (t *twins) note() {
	t.due, t.anew = false, false
	if t.sent++; t.sent == twinTrial {
		t.off = t.off || t.twice >= twinTrial/2
		t.sent, t.twice = 0, 0
	}
}

// answered records that an answer which has come begins anew. It counts once
// for a twin: all that is in flight may be asked for again after a silence.
func (t *twins) answered() {
	if !t.anew {
		t.anew = true
		t.twice++
	}
}
