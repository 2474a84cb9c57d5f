package requester

import (
	"github.com/gosoftroce/rocev2/clock"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/cc"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/qp/queue"
	"github.com/gosoftroce/rocev2/rocev2"
)

// selective is what the peer keeps behind gaps, as its selective
// acknowledgements have shown, and what this side does.
type selective struct {
	board *queue.Scoreboard // nil: it keeps nothing
	reads *queue.Scoreboard // the same of responses to READs, which this side keeps
	held  uint8             // of these, since the scoreboard knows
	bare  int               // packets that the last sign of a gap was taken for, with nothing kept behind it
	room  uint32            // PSNs after a gap that the peer keeps, as it has said last; 0: it has not
	// refused says that more was in flight than that when a gap showed.
	refused      bool
	refusedReads bool       // responses to READs were not kept here, up to
	refusedTo    rocev2.PSN // this one
	tail         bool       // the packet last is to be sent, or once more
	last         rocev2.PSN
	twins        twins
	lateness

	// Places in the stream: PSNs come again.
	flight uint64 // up to which all was sent when bare was set
	probed uint64 // up to which all was sent when the peer was silent last
	told   uint64 // what has arrived, and the controller knows of
}

// handleSelectiveAck takes a selective acknowledgement. It acknowledges what
// comes before its PSN, as a sequence NAK does.
func (r *Requester) handleSelectiveAck(now clock.Time, p *rocev2.Packet, info *rocev2.OpcodeInfo) conn.Drop {
	psn := p.BTH.PSN
	if psn.Before(r.una) {
		return conn.DropStale
	}
	if psn.Ahead(r.una) >= r.max.Ahead(r.una) || !r.possibleMSN(p, info) {
		return conn.DropGhost
	}
	from, pos := r.una, r.posUna
	reached := r.acknowledgeBefore(psn)
	if r.sel != nil {
		r.sel.alone = false
	}
	early := r.nxt != r.max && psn.Ahead(from) >= r.nxt.Ahead(from) || r.rnr.waiting || r.paging
	r.tells = r.tells || !early
	if !reached || r.c.Failed() || early || r.nxt != r.max { // all is being sent again
		r.progress(now, from, pos)
		return conn.DropNone
	}
	r.rtt.hears(now)
	before := r.selective().kept(r.una)
	lost, ok := openBoard(&r.recovery, now).Update(r.una, r.max, p.Payload)
	if !ok {
		r.sel.advance(r.una, r.c.Pool)
		r.progress(now, from, pos)
		return conn.DropGhost
	}
	lost -= r.answers(r.sel.board)
	noteGaps(&r.recovery)
	undoSpurious(&r.recovery)
	r.sel.bare = 0
	if r.rtt.timing && r.sel.board.Has(r.rtt.psn, r.una) {
		r.rtt.sample(now)
	}
	switch {
	case r.una != from:
		r.progress(now, from, pos)
	case r.sel.kept(r.una) > before:
		r.retry.heard(now)
		r.armProbe(now)
		r.c.Acked(now, r.flight(), r.arrived(r.posUna))
	}
	noteRoom(&r.recovery, p)
	if lost > 0 && !r.c.Failed() {
		r.losses(now, lost)
	}
	return conn.DropNone
}

// answers finds the PSNs of responses to READs among what the peer does not
// keep, and returns how many were taken for lost. The peer keeps the request
// for a READ as one packet, and as one packet it is lost.
func (r *work) answers(b *queue.Scoreboard) (n int) {
	if r.rd == 0 {
		return 0
	}
	for i := r.queue.Head; i != r.started; i = r.after(i) {
		if w := r.queue.At(i); w.Is(ib.OpReads) && w.PSNs > 1 {
			n += b.Answers(w.First, w.PSNs, r.chunkOf(w))
		}
	}
	return n
}

// arrived returns how many bytes have arrived at the peer that the controller
// does not know of, in whatever order; before, all had up to pos.
func (r *recovery) arrived(pos uint64) uint64 {
	if r.sel == nil {
		return r.posUna - pos
	}
	at := r.posUna + uint64(r.sel.kept(r.una))*uint64(r.packet())
	if at <= r.sel.told {
		return 0
	}
	n := at - r.sel.told
	r.sel.told = at
	return n
}

// kept returns how many packets have arrived behind gaps.
func (s *selective) kept(una rocev2.PSN) uint32 {
	if s == nil {
		return 0
	}
	return s.board.Kept(una) + s.reads.Kept(una)
}

// lost returns how many packets are to be sent, or responses asked for.
func (s *selective) lost() int {
	if s == nil {
		return 0
	}
	return s.board.Lost() + s.reads.Lost()
}

// waits reports whether anything is to be sent again.
func (s *selective) waits() bool { return s != nil && (s.tail || s.twins.due || s.lost() > 0) }

// selective returns where to note what is kept.
func (r *recovery) selective() *selective {
	if r.sel == nil {
		r.sel = &selective{told: r.posUna}
	}
	return r.sel
}

// openBoard returns the scoreboard of what the peer keeps.
func openBoard(r *recovery, now clock.Time) *queue.Scoreboard {
	s := r.selective()
	r.rtt.judges(&s.path, now)
	if s.board == nil {
		s.board = r.c.Pool.OpenBoard(r.una, &s.path, r.c.MTU)
		r.bound()
	}
	return s.board
}

// openReads returns the scoreboard of the responses that are kept here.
func openReads(r *recovery, now clock.Time) *queue.Scoreboard {
	s := r.selective()
	s.back.Exact = true
	r.rtt.judges(&s.back, now)
	if s.reads == nil {
		s.reads = r.c.Pool.OpenBoard(r.una, &s.back, r.c.MTU)
	}
	return s.reads
}

// advance forgets what comes before una, which is acknowledged.
func (s *selective) advance(una rocev2.PSN, p *queue.Pool) {
	if s == nil {
		return
	}
	if s.board != nil && !s.board.Advance(una) {
		s.board, s.tail = give(p, s.board), false
	}
	if s.reads != nil && !s.reads.Advance(una) {
		s.reads = give(p, s.reads)
	}
}

// clear forgets all: everything is sent again.
func (s *selective) clear(p *queue.Pool) {
	if s != nil {
		s.board, s.reads = give(p, s.board), give(p, s.reads)
		s.tail, s.ahead, s.alone, s.asked, s.twins.due, s.refused, s.refusedReads = false, false, false, false, false, false, false
	}
}

// give gives a scoreboard back, and returns nil.
func give(p *queue.Pool, b *queue.Scoreboard) *queue.Scoreboard {
	if b != nil && p != nil {
		p.CloseBoard(b)
	}
	return nil
}

// pipe returns the bytes that are between the two hosts, as far as is known:
// without what the peer keeps, and without what is lost and not sent again yet.
func (r *recovery) pipe() uint64 {
	n := r.posNxt - r.posUna
	if r.sel != nil {
		gone := (uint64(r.sel.kept(r.una)) + uint64(r.sel.lost())) * uint64(r.packet())
		n -= min(n, gone)
	}
	return n
}

// losses takes note of packets that have turned out lost, each by itself.
func (r *recovery) losses(now clock.Time, n int) {
	r.c.Stats.Rare().Repairs++
	r.rtt.lossy()
	if s := r.sel; r.posUna >= s.round {
		s.round, s.lostIn, s.lateIn = r.posNxt, 0, 0
		if !r.rtt.probing {
			r.c.CC.Control.Silence()
		}
	}
	r.sel.lostIn += uint32(n)
	f := r.flight()
	if f.Pipe > 0 {
		f.Pipe += uint64(n) * uint64(r.packet())
	}
	for range n {
		if r.c.CC.Control.Lost(now, f, cc.Selective) {
			r.c.Stats.Rare().WindowCuts++
		}
	}
	r.c.Reload()
}

// onlyReads reports whether all requests in flight before end are READs.
func (r *work) onlyReads(end rocev2.PSN) bool { return r.readsUntil(end) == end }

// readsUntil returns end, or the first PSN before it of a request in flight
// that is not a READ.
func (r *work) readsUntil(end rocev2.PSN) rocev2.PSN {
	at := r.una
	for i := r.queue.Head; i != r.started && at.Before(end); i = r.after(i) {
		w := r.queue.At(i)
		if !w.Is(ib.OpReads) {
			return at
		}
		at = w.First.Add(int(w.PSNs))
	}
	return end
}

// keptResponse takes a response that is kept behind a gap; the packet is the
// first behind another gap, perhaps.
func (r *Requester) keptResponse(now clock.Time, psn rocev2.PSN, gap bool) bool {
	r.retry.heard(now)
	r.armProbe(now)
	if r.rtt.timing && r.rtt.psn == psn {
		r.rtt.sample(now)
	}
	r.rtt.hears(now)
	r.selective().bare = 0
	if r.sel.held++; r.sel.reads == nil || gap && !r.sel.back.Seen() || r.sel.held >= r.reorder.Every(r.una) {
		return r.missingResponses(now)
	}
	return true
}

// nakHole takes a sequence NAK from a peer that sends selective
// acknowledgements, which say more.
func (r *recovery) nakHole(now clock.Time) {
	if r.c.Failed() || r.nxt != r.max || r.rnr.waiting || r.paging {
		return
	}
	b := openBoard(r, now)
	if kept := b.Kept(r.una); b.Missing(r.una) {
		if kept > 0 { // it has given up what it kept (RFC 2018, section 8)
			r.lost(now, cc.GoBack)
			r.rewind()
			return
		}
		if b.Late() > 0 {
			return
		}
		if r.sel.bare > 0 && r.posUna < r.sel.flight { // it keeps nothing of all that
			r.sel.bare = 0
			r.lost(now, cc.GoBack)
			r.rewind()
			return
		}
		n := r.loseBare(b)
		r.losses(now, n-r.answers(b))
	}
}

// loseBare takes note that una is missing, which is in the scoreboard, and that
// nothing is kept behind it, while nothing that was sent is sent again. It
// returns how many packets are to be sent again for that. If it is so again
// when these have arrived, more is missing than single packets, and what came
// behind is too far from the gap to be kept: so it is some times more each
// time. Packet by packet a lost flight would take as many round trips.
func (r *recovery) loseBare(b *queue.Scoreboard) int {
	s := r.sel
	if r.posUna >= s.flight {
		s.bare = 0
	}
	s.bare = min(max(1, s.bare*repairGrowth), queue.MaxHoles)
	s.flight = r.posNxt
	before := b.Lost()
	end := r.max
	if b == s.reads {
		end = r.readsUntil(end)
	}
	b.LoseRest(end, s.bare-1)
	return b.Lost() - before + 1
}

// probeSelectively sends what is missing again, as far as is known, and the
// last packet in flight: its answer shows what else is (RFC 8985, section 7).
func (r *recovery) probeSelectively(now clock.Time) bool {
	if r.sel != nil && r.sel.reads != nil && r.nxt == r.max {
		r.sel.reads.Resend()
		return r.sel.reads.Lost() > 0
	}
	if !r.tells || r.nxt != r.max || r.una == r.max || r.awaitsRest() {
		return false
	}
	openBoard(r, now).Resend()
	r.sel.board.Lose(r.una) // also if the peer has said that it keeps it
	most := probeRun
	if r.posUna < r.sel.probed { // what was in flight then was lost as a whole
		most = queue.MaxHoles
	}
	r.sel.board.LoseRest(r.max, most)
	r.answers(r.sel.board)
	r.sel.tail, r.sel.last = r.una != r.max.Add(-1), r.max.Add(-1)
	r.sel.probed = r.posNxt
	return true
}

// awaitsRest reports whether the oldest packet that is missing is a response in
// the middle of a READ: there is no packet of that PSN to be sent again.
func (r *work) awaitsRest() bool {
	w := r.queue.At(r.queue.Head)
	return w.Is(ib.OpReads) && r.una.Ahead(w.First)%r.chunkOf(w) != 0
}

// pollHole writes the next packet that is lost; 0 if none is, or none may go.
func (r *sender) pollHole(now clock.Time, buf []byte) int {
	if r.sel.twins.due {
		if n := r.pollTwin(buf); n > 0 {
			return n
		}
	}
	if r.sel.reads.Lost() > 0 {
		return r.pollMissing(now, buf)
	}
	b := r.sel.board
	for b.Lost() > 0 {
		h := b.NextLost()
		if h.PSN != r.una && !r.mayResend(b) {
			return 0
		}
		psn := h.PSN
		n, wait := r.buildHole(now, buf, psn)
		if wait {
			return 0
		}
		b.Sent(h, now, r.max)
		if n > 0 {
			// With nothing new behind it, nothing would show that
			// it is lost again.
			if b.Lost() == 0 && (r.cur == r.queue.Tail || r.nxt.Ahead(r.una) >= r.c.CC.Limit.PSNs) && !r.isLongRead(psn) {
				r.sel.tail, r.sel.last = true, psn
			}
			return n
		}
	}
	if r.sel.tail {
		r.sel.tail = false
		n, _ := r.buildHole(now, buf, r.sel.last)
		return n
	}
	return 0
}

// resendShare is what part of the window may be packets that are sent again,
// though it is full.
const resendShare = 8

// mayResend reports whether another lost packet may be sent again. The window
// may seem full of packets that are lost, or were not kept, which nothing has
// shown yet: so some go in any case.
func (r *sender) mayResend(b *queue.Scoreboard) bool {
	size := uint64(r.packet())
	return r.pipe()+size <= uint64(r.c.CC.Limit.Bytes) || uint64(b.Pending())*size < uint64(r.c.CC.Limit.Bytes)/resendShare
}

// buildHole writes the packet with a PSN once more. It writes none for the
// responses to a READ, which has one request for all, and none while something
// must be fetched.
func (r *sender) buildHole(now clock.Time, buf []byte, psn rocev2.PSN) (n int, wait bool) {
	cur, ok := r.requestOf(psn)
	if !ok {
		return 0, false
	}
	w := r.queue.At(cur)
	if w.Answered() && psn != r.una && psn.Ahead(w.First)%r.chunkOf(w) != 0 {
		return 0, false
	}
	if w.Answered() {
		w.Flags |= queue.Resumed
	}
	at, nxt, left := r.cur, r.nxt, r.repair.left
	r.cur, r.nxt, r.repair.left = cur, psn, 1 // it asks for an answer
	var rq request
	r.requestAt(&rq, w)
	if psn == r.una {
		r.limitRepair(&rq)
	}
	n, fault := r.buildRequest(&rq, buf)
	r.cur, r.nxt, r.repair.left = at, nxt, left
	if fault == ib.FaultNotPresent {
		return 0, true
	}
	if fault != ib.FaultNone {
		r.rewind() // meets the fault again, and handles it
		return 0, true
	}
	r.askedAgain(&rq, psn)
	r.resentOne(now, &rq, psn)
	return n, false
}

// isLongRead reports whether a PSN is that of a READ of several packets. If it
// comes twice, much may be answered twice.
func (r *sender) isLongRead(psn rocev2.PSN) bool {
	i, ok := r.requestOf(psn)
	return ok && r.queue.At(i).Is(ib.OpReads) && r.queue.At(i).PSNs > 1
}

// requestOf returns the request that a PSN in flight belongs to.
func (r *sender) requestOf(psn rocev2.PSN) (uint32, bool) {
	for i := r.queue.Head; i != r.started; i = r.after(i) {
		if w := r.queue.At(i); !w.Is(ib.OpLocal) && psn.Ahead(w.First) < w.PSNs {
			return i, true
		}
	}
	return 0, false
}

// resentOne counts a packet that was sent again while sending goes on.
func (r *sender) resentOne(now clock.Time, rq *request, psn rocev2.PSN) {
	r.c.Stats.Retransmits++
	if rq.w.Is(ib.OpCarries) {
		r.c.Stats.TxBytes += uint64(rq.n)
	}
	r.retry.stop()
	r.retry.start(now)
	r.rtt.discardOne(psn)
	r.armProbe(now)
	if r.c.CC.Limit.Burst > 0 {
		r.spent(now, rq.cost, rq.psns)
	}
}
