package requester

import (
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/qp/queue"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// gaps is what is kept after gaps: by the peer, as its selective
// acknowledgements have shown, and here, of responses to READs. So it knows
// which packets are missing, which of them are lost, and which may only be
// late.
type gaps struct {
	c   *conn.Conn
	s   *stream
	rtt *rtt

	board *queue.Scoreboard // nil: the peer keeps nothing
	reads *queue.Scoreboard // the same of responses to READs, which this side keeps
	held  uint8             // of these, since the scoreboard knows
	bare  int               // packets that the last sign of a gap was taken for, with nothing kept after it
	room  uint32            // PSNs after a gap that the peer keeps, as it has said last; 0: it has not
	// refused says that more was in flight than that when a gap showed.
	refused      bool
	refusedReads bool       // responses to READs were not kept here, up to
	refusedTo    rocev2.PSN // this one
	tail         bool       // the packet last is to be sent, or once more
	last         rocev2.PSN
	twins        twins
	late         lateness

	// Places in the stream: PSNs come again.
	flight uint64 // up to which all was sent when bare was set
	probed uint64 // up to which all was sent when the peer was silent last
	told   uint64 // what has arrived, and the controller knows of
}

// kept returns how many packets have arrived after gaps.
func (g *gaps) kept() uint32 { return g.board.Kept(g.s.una) + g.reads.Kept(g.s.una) }

// lost returns how many packets are to be sent, or responses asked for.
func (g *gaps) lost() int { return g.board.Lost() + g.reads.Lost() }

// pipe returns the bytes that are between the two hosts, as far as is known:
// without what is kept, and without what is lost and not sent again yet.
func (g *gaps) pipe() uint64 {
	n := g.s.posNxt - g.s.posUna
	return n - min(n, (uint64(g.kept())+uint64(g.lost()))*uint64(fullPacket(g.c)))
}

// waits reports whether anything is to be sent again.
func (g *gaps) waits() bool { return g.tail || g.twins.due || g.lost() > 0 }

// arrived returns how many bytes have arrived at the peer that the controller
// does not know of, in whatever order.
func (g *gaps) arrived() uint64 {
	at := g.s.posUna + uint64(g.kept())*uint64(fullPacket(g.c))
	if at <= g.told {
		return 0
	}
	n := at - g.told
	g.told = at
	return n
}

// openBoard returns the scoreboard of what the peer keeps.
func (g *gaps) openBoard(now clock.Time) *queue.Scoreboard {
	g.judgeRequests(now)
	if g.board == nil {
		g.board = g.c.Pool.OpenBoard(g.s.una, &g.late.path, g.c.MTU)
		g.bound()
	}
	return g.board
}

// openReads returns the scoreboard of the responses that are kept here.
func (g *gaps) openReads(now clock.Time) *queue.Scoreboard {
	g.late.back.Exact = true
	g.rtt.judges(&g.late.back, now)
	if g.reads == nil {
		g.reads = g.c.Pool.OpenBoard(g.s.una, &g.late.back, g.c.MTU)
	}
	return g.reads
}

// update takes what the peer says it keeps after una. It returns how many
// packets have turned out lost, and whether that can be true.
func (g *gaps) update(now clock.Time, kept []byte) (lost int, ok bool) {
	b := g.openBoard(now)
	if lost, ok = b.Update(g.s.una, g.s.max, kept); !ok {
		g.trim()
		return 0, false
	}
	lost -= g.s.answers(b)
	g.noteGaps()
	g.undoSpurious()
	g.bare = 0
	return lost, true
}

// trim forgets what comes before una, which is acknowledged.
func (g *gaps) trim() {
	if g.board != nil && !g.board.Advance(g.s.una) {
		g.close(&g.board)
		g.tail = false
	}
	if g.reads != nil && !g.reads.Advance(g.s.una) {
		g.close(&g.reads)
	}
}

// advance records that una has moved on. again is how many responses may come
// twice.
func (g *gaps) advance(now clock.Time, again uint32) {
	l := &g.late
	l.back.Advance(g.s.una)
	if l.ahead.on && g.c.Stats.Retransmits == l.resent && again == 0 && !l.back.ComesTwice(g.s.una) {
		l.back.Passed()
	}
	l.ahead.on, l.alone.on = false, false
	if g.board == nil && g.reads == nil {
		l.waiting = false
		return
	}
	g.judge(now)
	g.trim()
	g.bound()
	g.noteGaps()
	g.undoSpurious()
}

// judge says by when what is sent again is answered.
func (g *gaps) judge(now clock.Time) {
	g.judgeRequests(now)
	g.rtt.judges(&g.late.back, now)
}

// judgeRequests is judge of requests. Where a READ is outstanding none is given
// time to come late: a request that is lost would hold its answer back, of many
// packets.
func (g *gaps) judgeRequests(now clock.Time) {
	p := &g.late.path
	if g.s.rd > 0 {
		p.Judge()
	}
	g.rtt.judges(p, now)
	if g.s.rd > 0 {
		p.Ripe = now
	}
}

// undoSpurious takes what has turned out to have been late only, though it was
// sent again. When all that was taken for lost was, the cut is undone.
func (g *gaps) undoSpurious() {
	l := &g.late
	n := l.path.TakeSpurious() + l.back.TakeSpurious()
	if n == 0 {
		return
	}
	g.c.Stats.Rare().SpuriousRetransmits += uint64(n)
	if l.lateIn += uint32(n); l.lateIn >= l.lostIn {
		l.lostIn, l.lateIn, l.round = 0, 0, 0
		g.rtt.lossless()
		g.c.CC.Control.Undo()
		g.c.Reload()
	}
}

// clear forgets all: everything is sent again.
func (g *gaps) clear() {
	if g == nil {
		return
	}
	g.close(&g.board)
	g.close(&g.reads)
	g.tail, g.twins.due, g.refused, g.refusedReads = false, false, false, false
	g.late.waiting, g.late.ahead.on, g.late.alone.on, g.late.asked = false, false, false, false
	g.bound()
}

// close gives a scoreboard back, if there is one.
func (g *gaps) close(b **queue.Scoreboard) {
	if *b != nil {
		g.c.Pool.CloseBoard(*b)
		*b = nil
	}
}

// loseBare records that una is missing, which is in the scoreboard, and that
// nothing is kept after it, while nothing that was sent is sent again. It
// returns how many packets are to be sent again for that. If it is so again
// when these have arrived, more is missing than single packets, and what came
// after them is too far from the gap to be kept: so the number is multiplied
// each time. Packet by packet, a lost flight would take as many round trips as
// it has packets.
func (g *gaps) loseBare(b *queue.Scoreboard) int {
	if g.s.posUna >= g.flight {
		g.bare = 0
	}
	g.bare = min(max(1, g.bare*repairGrowth), queue.MaxHoles)
	g.flight = g.s.posNxt
	before := b.Lost()
	end := g.s.max
	if b == g.reads {
		end = g.s.readsUntil(end)
	}
	b.LoseRest(end, g.bare-1)
	return b.Lost() - before + 1
}

// keepsNothing reports, once, that the peer has kept nothing of all that was
// sent when the gap at una showed before.
func (g *gaps) keepsNothing() bool {
	none := g.bare > 0 && g.s.posUna < g.flight
	if none {
		g.bare = 0
	}
	return none
}

// probe has sent what is missing, as far as is known, and the last packet in
// flight: its answer shows what else is (RFC 8985, section 7).
func (g *gaps) probe(now clock.Time) {
	b := g.openBoard(now)
	b.Resend()
	b.Lose(g.s.una) // also if the peer has said that it keeps it
	most := probeRun
	if g.s.posUna < g.probed { // what was in flight then was lost as a whole
		most = queue.MaxHoles
	}
	b.LoseRest(g.s.max, most)
	g.s.answers(b)
	g.last = g.s.max.Add(-1)
	g.tail = g.s.una != g.last
	g.probed = g.s.posNxt
}

// askedAgain takes a request that is sent again. The peer answers a READ as
// often as it is asked.
func (g *gaps) askedAgain(rq *request) {
	if g != nil && rq.w.Kind&ib.OpReads != 0 {
		g.late.back.Again(rq.psn.Add(int(rq.psns)))
	}
}

// wantTwin has the request for a READ, which was just sent for the first time,
// sent once more if that pays.
func (g *gaps) wantTwin(rq *request) {
	if rq.psns >= twinPSNs && rq.w.Kind&ib.OpReads != 0 && g.rtt.noise > 0 &&
		!g.twins.off && !g.late.path.Seen() && !g.late.back.Seen() { // one that comes first would have the peer answer both
		g.twins.psn, g.twins.due = rq.psn, true
	}
}

// noteGaps notes until when what is missing may only be late.
func (g *gaps) noteGaps() {
	l := &g.late
	l.waiting = false
	if g.s.goesAgain() || g.c.Failed() {
		return
	}
	request, response := g.rtt.patience(&l.path), g.rtt.patience(&l.back)
	if l.ahead.on {
		l.waits(l.ahead.at.Add(response))
	}
	if l.alone.on {
		l.waits(l.alone.at.Add(request))
	}
	if at, on := g.board.FirstLate(); on {
		l.waits(at.Add(request))
	}
	if at, on := g.reads.FirstLate(); on {
		l.waits(at.Add(response))
	}
}

// overdue reports that what is missing should have come by now, if it was only
// late (RFC 8985, section 6.3).
func (g *gaps) overdue(now clock.Time) bool {
	return g != nil && g.late.waiting && now >= g.late.dueAt
}

// waitsAlone takes a sequence NAK without a selective acknowledgement, and
// reports whether that is waited for.
func (g *gaps) waitsAlone(now clock.Time) bool {
	if !g.late.alone.on && !g.late.mute {
		g.late.alone = wait{true, now}
		g.noteGaps()
	}
	return !g.late.mute
}

// waitsAhead records that something has come before the response una, and
// reports whether that is news.
func (g *gaps) waitsAhead(now clock.Time) bool {
	if g.late.ahead.on || g.reads.Knows(g.s.una) {
		return false
	}
	g.late.ahead, g.late.resent = wait{true, now}, g.c.Stats.Retransmits
	g.noteGaps()
	return true
}

// A native peer keeps what arrives after a gap while it has room, and says how
// much it has. What is sent beyond that is lost, and has to go once more. So
// while something is missing there nothing new goes past the room. What was on
// the way already is sent again when all before it has been repaired.

// usualRoom is how many PSNs after a gap a peer keeps that does not say it.
const usualRoom = 2048

// noteRoom notes what a selective acknowledgement says of the peer's room. It
// may have kept more, while others do not need that.
func (g *gaps) noteRoom(p *rocev2.Packet) {
	if g.board == nil || g.c.Failed() {
		return
	}
	g.room = usualRoom
	if n, ok := p.AETH.Syndrome.Credits(); ok && p.BTH.Solicited {
		g.room = uint32(n)
	}
	g.room = max(g.room, g.board.End().Ahead(g.s.una)-1)
	g.refused = g.refused || g.s.inFlight() > g.room+1
	g.bound()
}

// bound bounds what is in flight by the peer's room, while it lacks something.
func (g *gaps) bound() {
	most := uint32(0)
	if g.board != nil {
		if g.room == 0 {
			g.room = usualRoom
		}
		most = g.room + 1
	}
	g.c.Bound(most)
}

// takeRefused reports, once, that there was no room for something, at the peer
// or for responses to READs here, and that all before that has come. Nothing
// else would ask for it, and the window may be full of it. held is how many
// responses are kept.
func (g *gaps) takeRefused(held int) bool {
	if !g.refused && !g.refusedReads || g.board != nil || g.reads != nil || held > 0 {
		return false
	}
	again := g.refused || g.s.una.Before(g.refusedTo)
	g.refused, g.refusedReads = false, false
	return again && !g.s.goesAgain() && g.s.una != g.s.max
}

// Which responses to READs are missing this side knows of itself: those before
// the ones that are kept here.

// updateReads notes which responses are missing, and returns how many have
// turned out lost.
func (g *gaps) updateReads(now clock.Time, kept queue.Reorder) int {
	b := g.openReads(now)
	g.held = 0
	var bits [queue.MostReorder / 8]byte
	lost, _ := b.Update(g.s.una, g.s.max, kept.AppendKept(bits[:0], g.s.una, len(bits)))
	g.noteGaps()
	g.undoSpurious()
	return lost
}

// loseReads records that all responses before end are lost, and returns how
// many of them are news.
func (g *gaps) loseReads(now clock.Time, end rocev2.PSN) int {
	b := g.openReads(now)
	before := b.Lost()
	b.Lose(g.s.una)
	b.LoseRest(end, queue.MaxHoles)
	return b.Lost() - before
}

// refuse notes a response that is too far from a gap to be kept here.
func (g *gaps) refuse(psn rocev2.PSN, kept queue.Reorder) {
	if g.s.goesAgain() || kept.Len() == 0 || psn.Before(kept.End()) {
		return
	}
	if !g.refusedReads || psn.After(g.refusedTo) {
		g.refusedReads, g.refusedTo = true, psn
	}
}

// givenUp records that responses which were kept here are not any more, as they
// were kept for too long or others needed the room. It shows when the first of
// them is next, and then all are asked for again: one by one that would take a
// round trip each, or a probe.
func (g *gaps) givenUp(kept queue.Reorder) {
	if g.reads == nil || g.s.goesAgain() || g.c.Failed() || !g.reads.Has(g.s.una, g.s.una) ||
		kept.Len() > 0 && kept.First() == g.s.una {
		return
	}
	var bits [queue.MostReorder / 8]byte
	g.reads.Rebuild(g.s.una, kept.AppendKept(bits[:0], g.s.una, len(bits)))
}
