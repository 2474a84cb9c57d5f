package requester

import (
	"encoding/binary"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// response is a packet of the peer's responder on its way: what it acknowledges
// the stream takes, and recovery hears of progress, and of what it shows to be
// missing.
type response struct {
	r    *Requester
	s    *stream
	rec  *recovery
	c    *conn.Conn
	now  clock.Time
	p    *rocev2.Packet
	info *rocev2.OpcodeInfo
}

// HandleResponse takes a packet of the peer's responder, in RTS or SQD. What
// comes after a gap may be kept until that is closed.
func (r *Requester) HandleResponse(now clock.Time, p *rocev2.Packet, info *rocev2.OpcodeInfo) conn.Drop {
	var x response // filled in place, as a turn
	x.r, x.s, x.rec, x.c, x.now, x.p, x.info = r, &r.stream, &r.recovery, r.stream.c, now, p, info
	if info.Operation == rocev2.OpSelectiveAck {
		return x.selectiveAck()
	}
	return x.handle()
}

// handle takes the response in its turn, or keeps it, and what is kept when a
// gap is closed.
func (x *response) handle() conn.Drop {
	s, rec, c := x.s, x.rec, x.c
	kept, una, psn := &x.r.reorder, s.una, x.p.BTH.PSN
	d := x.execute()
	if d == conn.DropGap {
		another := kept.Len() == 0 || psn.After(kept.End())
		d = c.Buffer(kept, x.now, x.p, 1, s.una, d)
		if x.waitsForKept() {
			rec.afterGap(x.now, psn, x.info, d, another, *kept)
		}
	}
	if s.una == una {
		return d
	}
	if kept.Len() > 0 && !c.Failed() {
		x.executeKept()
	}
	if rec.gaps != nil {
		rec.gaps.givenUp(*kept)
		rec.sendRefused(kept.Len())
	}
	return d
}

// execute takes the response in its turn (IBTA 9.7.6.1). One with a PSN that
// was never sent is a ghost. All others acknowledge what comes before their
// PSN, whatever they say; then comes their own meaning.
func (x *response) execute() conn.Drop {
	s, rec := x.s, x.rec
	psn := x.p.BTH.PSN
	if psn.Before(s.una) {
		return x.stale()
	}
	if psn.Ahead(s.una) >= s.max.Ahead(s.una) || !s.possible(x.p, x.info) {
		return conn.DropGhost
	}
	from, pos := s.una, s.posUna
	var d conn.Drop
	switch {
	case x.info.Operation == rocev2.OpReadResponse:
		d = x.readResponse()
	case x.info.Operation == rocev2.OpAtomicAcknowledge:
		d = x.atomicResponse()
	case x.p.AETH.Syndrome.IsACK():
		d = x.acknowledge()
	default:
		return x.nak()
	}
	rec.progress(x.now, from, pos)
	if d == conn.DropGap && !x.waitsForKept() {
		rec.impliedNAK(x.now, psn, x.info)
	}
	return d
}

// waitsForKept reports whether a response after a gap is looked at once it is
// kept.
func (x *response) waitsForKept() bool {
	s, c := x.s, x.c
	return c.Pool != nil && x.info.Operation == rocev2.OpReadResponse && !s.goesAgain() && !c.Failed()
}

// stale takes a response to what has completed. It may still say something new:
// the credits of an unsolicited acknowledgement (IBTA 9.7.7.2), and a fatal NAK
// of a READ in the middle of its responses, which Linux sends with the PSN of
// the request.
func (x *response) stale() conn.Drop {
	s, rec := x.s, x.rec
	psn := x.p.BTH.PSN
	rec.stale(x.now, psn, x.info)
	if x.info.Operation != rocev2.OpAcknowledge {
		return conn.DropStale
	}
	switch code := x.p.AETH.Syndrome; {
	case code.IsACK() && psn.Next() == s.una:
		x.r.credit.update(&x.p.AETH)
	case code.IsNAK() && code != rocev2.NAKSequence && !s.drained():
		w := s.head()
		if w.Kind&ib.OpReads != 0 && psn.Ahead(w.First) < s.una.Ahead(w.First) && s.possible(x.p, x.info) {
			x.countNAK()
			x.refused()
			return conn.DropNone
		}
	}
	return conn.DropStale
}

// acknowledge takes an ACK of everything up to its PSN: one ACK may stand for
// several (IBTA 9.7.5.1). It does not complete a READ or an atomic: it has no
// data (IBTA 9.7.6.1).
func (x *response) acknowledge() conn.Drop {
	s, c := x.s, x.c
	psn := x.p.BTH.PSN
	switch {
	case s.acknowledgeBefore(psn.Next()):
		x.r.credit.update(&x.p.AETH)
		return conn.DropNone
	case c.Failed():
		return conn.DropNone
	case s.inHead(psn):
		return x.misfit()
	}
	return conn.DropGap
}

// misfit records that the response does not fit its request.
func (x *response) misfit() conn.Drop {
	x.rec.retry.misfit()
	return conn.DropBadResponse
}

// unreached returns why the response to the oldest request is not looked at:
// responses before it are missing, unless the connection failed.
func (x *response) unreached() conn.Drop {
	if x.c.Failed() {
		return conn.DropNone // the packet was used
	}
	return conn.DropGap
}

// readResponse takes a packet of the response to a READ, or to a request that
// is answered like an empty one.
func (x *response) readResponse() conn.Drop {
	s, rec, c := x.s, x.rec, x.c
	psn := x.p.BTH.PSN
	if !s.acknowledgeBefore(psn) {
		return x.unreached()
	}
	w := s.head()
	rel := psn.Ahead(w.First)
	first, last := s.chunk.place(w, rel)
	if !s.fits(w, rel, first, last, x.p, x.info) {
		return x.misfit()
	}
	if x.info.Headers&rocev2.HasAETH != 0 {
		x.r.credit.update(&x.p.AETH)
	}
	if len(x.p.Payload) > 0 {
		list, off := s.ring.List(s.ring.Head, w), uint64(rel)<<c.Shift
		if f := c.Memory.Scatter(c.PD, list, off, x.p.Payload); f != ib.FaultNone {
			return x.misplaced(f, list, off, len(x.p.Payload))
		}
	}
	rec.flush.answered(w)
	s.answered(w, rel, last)
	return conn.DropNone
}

// atomicResponse takes the result of an atomic.
func (x *response) atomicResponse() conn.Drop {
	s, c := x.s, x.c
	if !s.acknowledgeBefore(x.p.BTH.PSN) {
		return x.unreached()
	}
	w := s.head()
	if w.Kind&ib.OpAtomic == 0 || !x.p.AETH.Syndrome.IsACK() {
		return x.misfit()
	}
	x.r.credit.update(&x.p.AETH)
	word := c.Scratch.Word[:]
	binary.NativeEndian.PutUint64(word, x.p.AtomicAck.Original)
	list := s.ring.List(s.ring.Head, w)
	if f := c.Memory.Scatter(c.PD, list, 0, word); f != ib.FaultNone {
		return x.misplaced(f, list, 0, len(word))
	}
	s.answered(w, 0, true)
	return conn.DropNone
}

// misplaced records that n bytes of the response could not be written to byte
// off of the list of the oldest request. If their place must be fetched, the
// response is dropped, and nothing is sent until that is there.
func (x *response) misplaced(f ib.Fault, list []ib.SGE, off uint64, n int) conn.Drop {
	s, rec, c := x.s, x.rec, x.c
	if f != ib.FaultNotPresent {
		s.failHead(ib.StatusLocProtErr, ib.VendorFault|uint32(f))
		return conn.DropNone
	}
	if !rec.fetch.Pending(conn.NeedResult) {
		rec.fetch.Add(c, conn.NeedResult, c.Memory.MissingLocal(c.PD, list, off, uint64(n), ib.LocalWrite))
	}
	rec.rewind()
	return conn.DropNotPresent
}

// executeKept goes on with the responses in the reorder buffer, as far as
// nothing is missing before them. The next gap is repaired at once, as the
// first was when it showed.
func (x *response) executeKept() {
	s, rec, c := x.s, x.rec, x.c
	kept := &x.r.reorder
	for executed := false; kept.Len() > 0; kept.Pop() {
		psn := kept.First()
		if psn.Before(s.una) {
			continue
		}
		x.p = kept.Lowest()
		x.info, _ = x.p.BTH.Opcode.Info()
		if psn != s.una && s.head().Kind&ib.OpAnswered != 0 {
			if executed {
				rec.impliedNAK(x.now, psn, x.info)
			}
			return
		}
		d := x.execute()
		if c.Failed() || d == conn.DropGap || d == conn.DropNotPresent {
			return
		}
		executed = true
	}
	kept.Trim()
}

// selectiveAck takes a selective acknowledgement. It acknowledges what comes
// before its PSN, as a sequence NAK does.
func (x *response) selectiveAck() conn.Drop {
	s, rec := x.s, x.rec
	psn := x.p.BTH.PSN
	from, pos, d := s.una, s.posUna, conn.DropNone
	switch {
	case psn.Before(s.una):
		d = conn.DropStale
	case psn.Ahead(s.una) >= s.max.Ahead(s.una) || !s.possible(x.p, x.info):
		d = conn.DropGhost
	case !rec.selectiveAck(x.now, x.p, from, pos, s.acknowledgeBefore(psn)):
		d = conn.DropGhost
	}
	rec.sendRefused(x.r.reorder.Len())
	return d
}
