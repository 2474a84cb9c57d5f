package requester

import (
	"github.com/gosoftroce/rocev2/clock"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/queue"
	"github.com/gosoftroce/rocev2/rocev2"
)

// missingResponses takes note which responses to READs are missing before those
// that are kept here. It does nothing, and returns false, if other requests are
// among them: their acknowledgements show something else.
func (r *Requester) missingResponses(now clock.Time) bool {
	if r.nxt != r.max || r.rnr.waiting || r.paging || r.reorder.Len() == 0 || !r.onlyReads(r.reorder.End()) {
		return false
	}
	b := openReads(&r.recovery, now)
	r.sel.held = 0
	var kept [queue.MostReorder / 8]byte
	lost, _ := b.Update(r.una, r.max, r.reorder.AppendKept(kept[:0], r.una, len(kept)))
	noteGaps(&r.recovery)
	undoSpurious(&r.recovery)
	r.c.Acked(now, r.flight(), r.arrived(r.posUna))
	if lost > 0 {
		r.losses(now, lost)
	}
	return true
}

// noteGivenUp takes note that responses which were kept here are not any more,
// as they were kept for too long or others needed the room. It shows when the
// first of them is next, and then all are asked for again: one by one that
// would take a round trip each, or a probe.
func (r *Requester) noteGivenUp() {
	if r.sel == nil || r.sel.reads == nil || r.nxt != r.max || r.c.Failed() || !r.sel.reads.Has(r.una, r.una) ||
		r.reorder.Len() > 0 && r.reorder.First() == r.una {
		return
	}
	var kept [queue.MostReorder / 8]byte
	r.sel.reads.Rebuild(r.una, r.reorder.AppendKept(kept[:0], r.una, len(kept)))
}

// refusedResponse takes note that a response came which is not kept, as nothing
// is: it is too far from the gap. So all before it are lost, and it is now. It
// returns false if that may mean something else, see missingResponses.
func (r *Requester) refusedResponse(now clock.Time, psn rocev2.PSN) bool {
	if r.nxt != r.max || r.rnr.waiting || r.paging || r.reorder.Len() > 0 || !r.onlyReads(psn.Next()) {
		return false
	}
	b := openReads(&r.recovery, now)
	before := b.Lost()
	b.Lose(r.una)
	b.LoseRest(psn.Next(), queue.MaxHoles)
	if n := b.Lost() - before; n > 0 {
		r.losses(now, n)
	}
	return true
}

// pollMissing asks for the next responses to a READ that are missing, as many
// as are missing in a row; 0 if none may be asked for.
func (r *sender) pollMissing(now clock.Time, buf []byte) int {
	b := r.sel.reads
	h := b.NextLost()
	psn := h.PSN
	if psn != r.una && !r.mayResend(b) {
		return 0
	}
	cur, ok := r.requestOf(psn)
	if !ok || !r.queue.At(cur).Is(ib.OpReads) {
		b.Sent(h, now, r.max)
		return 0
	}
	at, nxt := r.cur, r.nxt
	r.cur, r.nxt = cur, psn
	w := r.queue.At(cur)
	w.Flags |= queue.Resumed
	var rq request
	r.requestAt(&rq, w)
	end := psn.Add(int(rq.psns))
	// A request that may not have been executed must be what it was.
	executed := rq.rel%r.chunkOf(w) != 0 || b.Any(psn, end)
	if n := b.SendRow(psn, end, !executed, now, r.max); executed && n < rq.psns {
		rq.psns, rq.n = n, n<<r.c.Shift
	} else if !executed {
		r.askedAgain(&rq, psn)
	}
	n, _ := r.buildRequest(&rq, buf) // it reads no memory
	r.cur, r.nxt = at, nxt
	r.resentOne(now, &rq, psn)
	return n
}
