package requester

import (
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/qp/queue"
	"github.com/gosoftroce/rocev2/qp/trace"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// turn is one Poll: it says what may be sent now, has the encoder write it, and
// tells the stream and recovery.
type turn struct {
	r    *Requester
	s    *stream
	rec  *recovery
	c    *conn.Conn
	now  clock.Time
	left int // bytes of requests that the driver lets go
	out  *conn.Output
}

// Poll writes request packets (IBTA 9.7.2) until out takes no more, nothing may
// be sent now, or there are no bytes left: while there are some a request may
// go. It returns the bytes that it has sent, as they count in flight, and
// whether it has stopped only because there were no bytes left.
func (r *Requester) Poll(now clock.Time, bytes int, out *conn.Output) (sent int, blocked bool) {
	var t turn // filled in place: to copy what was just written in parts stalls
	t.r, t.s, t.rec, t.c, t.now, t.left, t.out = r, &r.stream, &r.recovery, r.stream.c, now, bytes, out
	for {
		buf := out.Room()
		if buf == nil || !t.next(buf) {
			return bytes - t.left, t.left <= 0 && t.blocked()
		}
	}
}

// Idle reports whether Poll has nothing to do: no request at the cursor, and
// none to send again. With a rate it is never sure.
func (r *Requester) Idle() bool {
	return r.stream.empty() && !r.recovery.waits() && r.stream.c.CC.Limit.Burst == 0
}

// blocked reports whether the driver's bound alone stops the requester, as far
// as is known without asking fences, credits and the like.
func (t *turn) blocked() bool {
	s, rec, c := t.s, t.rec, t.c
	return t.mayGoOn() && !rec.paced &&
		(s.una == s.nxt || c.CC.Limit.Room(rec.pipe(), s.inFlight(), 1) > 0)
}

// mayGoOn reports whether there is a request at the cursor that waits neither
// for the peer to be ready, nor for memory, nor for RTS.
func (t *turn) mayGoOn() bool {
	s, rec, c := t.s, t.rec, t.c
	return !s.empty() && !rec.holds() &&
		(c.State == ib.StateRTS || c.State == ib.StateSQD && s.cur != s.started)
}

// next writes what comes next: a packet that is sent again, or those at the
// cursor. It returns false if there is nothing that may be sent now.
func (t *turn) next(buf []byte) bool {
	s, rec, c := t.s, t.rec, t.c
	if c.CC.Limit.Burst > 0 && rec.pace(t.now, t.mayGoOn()) {
		return false
	}
	if rec.waits() && t.again(buf) {
		return true
	}
	if s.empty() {
		return false
	}
	w := s.ring.At(s.cur)
	if w.Kind&ib.OpLocal != 0 {
		return s.executeLocal()
	}
	begun := s.cur != s.started
	if t.left <= 0 || rec.holds() || !begun && c.State == ib.StateSQD {
		return false
	}
	if !begun {
		psns, flags := c.PSNs(w.Length), uint8(0)
		if psns > 1 {
			flags = t.shape(w, psns)
		}
		s.number(w, psns, flags)
	}
	var rq request
	s.cut(&rq, s.cur, s.nxt)
	if w.Status != ib.StatusSuccess || !t.mayStart(&rq) {
		return false
	}
	if rq.rel > 0 || w.Flags&queue.Split != 0 {
		if n := t.runLength(&rq); n > 1 {
			if n = (encoder{c, &s.ring}).run(&rq, n, t.out); n > 0 {
				t.sent(&rq, n)
				return true
			}
		}
	}
	rq.ack = rq.ends() || t.asks(&rq)
	n, fault := encoder{c, &s.ring}.packet(&rq, buf)
	if fault != ib.FaultNone {
		if !t.fetches(&rq, fault) {
			s.fail(ib.StatusLocProtErr, conn.VendorErr(fault))
		}
		return false
	}
	kind := conn.OrdinaryPacket
	if w.Opcode == ib.OpFlush && t.sealsAsLinux() {
		kind = conn.KernelFlush
	}
	t.out.Commit(n, nil, kind)
	t.sent(&rq, 1)
	return true
}

// again writes the next packet that is sent again while sending goes on where
// it was, and reports whether there is one.
func (t *turn) again(buf []byte) bool {
	s, rec, c := t.s, t.rec, t.c
	if rec.holds() {
		return false
	}
	var rq request
	if rec.gaps != nil && rec.gaps.waits() && rec.gaps.next(t.now, &rq, t.r.reorder) && t.sendAgain(&rq, buf) {
		return true
	}
	i, psn, ok := rec.repair.next(s)
	if !ok {
		return false
	}
	s.cut(&rq, i, psn)
	rq.stopAt(t.r.reorder, s.una, c.Shift)
	rq.why, rq.ack = trace.Repaired, rq.ends() || t.asks(&rq)
	return t.sendAgain(&rq, buf)
}

// sendAgain writes a packet that is sent again. It returns false if it cannot
// be written now.
func (t *turn) sendAgain(rq *request, buf []byte) bool {
	s, rec, c := t.s, t.rec, t.c
	n, fault := encoder{c, &s.ring}.packet(rq, buf)
	if fault != ib.FaultNone {
		if !t.fetches(rq, fault) {
			rec.rewind() // meets the fault again, and handles it
		}
		return false
	}
	rec.sentAgain(t.now, rq)
	if c.CC.Limit.Burst > 0 && rq.why != trace.Twin {
		t.spend(rq, 1)
	}
	t.out.Commit(n, nil, conn.OrdinaryPacket)
	return true
}

// fetches has the memory fetched that a packet is made of, and is not present.
// It returns false for another fault.
func (t *turn) fetches(rq *request, fault ib.Fault) bool {
	s, rec, c := t.s, t.rec, t.c
	if fault == ib.FaultNotPresent && !rec.fetch.Pending(conn.NeedPayload) {
		rec.fetch.Add(c, conn.NeedPayload, c.Memory.MissingLocal(c.PD, s.ring.List(rq.i, rq.w), uint64(rq.off), uint64(rq.n), 0))
	}
	return fault == ib.FaultNotPresent
}

// runLength returns how many packets of the path MTU, in the middle of a
// message, may be written at once, so that what is asked for each packet is
// asked once for all of them: of memory in one piece, without one that asks for
// an acknowledgement. 1 or less is no run.
func (t *turn) runLength(rq *request) int {
	s, rec, c := t.s, t.rec, t.c
	w, l := rq.w, &c.CC.Limit
	if w.Kind&ib.OpCarries == 0 || w.NumSGE != 1 || rec.repair.left > 0 || w.Kind&ib.OpConsumesRecv != 0 && !t.r.credit.allows(w.SSN) {
		return 1
	}
	// The last one that the limit or the driver admits asks for an
	// acknowledgement, and so does one now and then.
	size := fullPacket(c)
	n := min(t.out.Left(), int(w.PSNs-rq.rel)-1, l.Room(rec.pipe(), s.inFlight(), size)-1,
		int(l.AckInterval(size))-1-int(rec.sinceAck), (t.left-1)/size)
	if s.goesAgain() {
		n = min(n, int(s.max.Ahead(s.nxt)))
	}
	if l.Burst > 0 {
		n = min(n, l.Burst/size)
	}
	return n
}

// mayStart checks the window, the depth of READs and atomics (IBTA 9.7.3),
// fences (IBTA 10.8.3.3) and credits (IBTA 9.7.7.2).
func (t *turn) mayStart(rq *request) bool {
	s, rec, c := t.s, t.rec, t.c
	w := rq.w
	inFlight := s.inFlight()
	if !c.CC.Limit.Admits(rec.pipe(), inFlight, rq.cost, rq.psns) {
		return false
	}
	if w.Kind&ib.OpReads != 0 && (t.r.reorder.Len() > 0 || rec.gaps != nil && rec.gaps.reads != nil) && int(inFlight+rq.psns) > c.Pool.Share(c.MTU) {
		return false // while something is missing there is no room for what comes
	}
	if w.Kind&ib.OpAnswered != 0 {
		if c.Attr.MaxRdAtomic == 0 { // lowered in SQD after the request was posted
			s.fail(ib.StatusLocQPOpErr, 0)
			return false
		}
		if s.rd >= uint32(c.Attr.MaxRdAtomic) {
			return false
		}
	}
	if s.rd > 0 && rq.rel == 0 {
		// After an empty request with a RETH, Linux (rxe, 6.12) answers
		// a READ before it that is repeated from its first PSN with
		// remote access error. So such a request waits, as with a
		// fence.
		spoils := c.Pool == nil && w.Length == 0 && w.Kind&ib.OpRemote != 0 && (w.Opcode != ib.OpFlush || w.Arg == 0)
		if w.Flags&queue.Fence != 0 || spoils {
			return false
		}
	}
	return !t.r.credit.limited || t.mayProbe(rq, inFlight)
}

// mayProbe decides for a message beyond the peer's credits: its first packet
// may be sent when nothing else is in flight, and the rest once that is
// acknowledged (IBTA 9.7.7.2).
func (t *turn) mayProbe(rq *request, inFlight uint32) bool {
	s, c := t.s, t.c
	w := rq.w
	if w.Kind&ib.OpConsumesRecv == 0 || t.r.credit.allows(w.SSN) || inFlight == 0 || s.ring.Head == s.cur && s.una != w.First {
		t.r.credit.stalled = false
		return true
	}
	if !t.r.credit.stalled {
		t.r.credit.stalled = true
		c.Stats.Rare().CreditStalls++
	}
	return false
}

// asks reports whether a packet inside a message asks for an acknowledgement:
// one for READs, one in every quarter of the window, the packet that fills it,
// the last one that the driver lets go, or the rate before a long pause, and a
// probe beyond the credits. So nothing stays unacknowledged in a pause, which
// would be taken for the peer's silence.
func (t *turn) asks(rq *request) bool {
	s, rec, c := t.s, t.rec, t.c
	l, size := &c.CC.Limit, fullPacket(c)
	if rq.w.Kind&ib.OpReads != 0 || rec.sinceAck+1 >= l.AckInterval(size) || rec.repair.left == 1 || uint64(max(t.left, 0)) <= rq.cost {
		return true
	}
	if rq.rel == 0 && rq.w.Kind&ib.OpConsumesRecv != 0 && !t.r.credit.allows(rq.w.SSN) {
		return true
	}
	return l.Pauses(rq.cost) || !l.Admits(rec.pipe()+rq.cost, rq.psn.Ahead(s.una)+1, uint64(size), 1)
}

// sent takes n packets for sent: a run, or the one that rq is.
func (t *turn) sent(rq *request, n int) {
	s, rec, c := t.s, t.rec, t.c
	repeated := s.goesAgain()
	s.sent(rq, n)
	rec.sent(t.now, rq, n, repeated)
	t.left -= int(min(rq.cost*uint64(n), mostCounted))
	if c.CC.Limit.Burst > 0 {
		t.spend(rq, n)
	}
}

// spend tells a controller that works with rates what was sent.
func (t *turn) spend(rq *request, n int) {
	t.c.Spent(t.now, int(min(rq.cost*uint64(n), mostCounted)), int(rq.psns)*n)
}

// sealsAsLinux reports how to seal the FLUSH at the cursor.
func (t *turn) sealsAsLinux() bool {
	s, rec, c := t.s, t.rec, t.c
	if c.Pool != nil || c.XRC() { // a native peer takes both ways, and Linux has no XRC
		return false
	}
	if s.goesAgain() {
		s.resume(s.cur)
		rec.flush.again(s.nxt == s.una)
	}
	return rec.flush.linux
}
