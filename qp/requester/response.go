package requester

import (
	"encoding/binary"

	"github.com/gosoftroce/rocev2/clock"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/rocev2"
)

// HandleResponse takes a packet of the peer's responder, in RTS or SQD. What
// comes behind a gap may be kept until that is closed.
func (r *Requester) HandleResponse(now clock.Time, p *rocev2.Packet, info *rocev2.OpcodeInfo) conn.Drop {
	if info.Operation == rocev2.OpSelectiveAck {
		d := r.handleSelectiveAck(now, p, info)
		if r.sel != nil {
			sendRefused(&r.recovery)
		}
		return d
	}
	una := r.una
	d := r.executeResponse(now, p, info)
	if d == conn.DropGap {
		gap := r.reorder.Len() == 0 || p.BTH.PSN.After(r.reorder.End())
		d = r.c.Buffer(&r.reorder, now, p, 1, r.una, d)
		if r.waitsForKept(info) && !r.noteBehindGap(now, p.BTH.PSN, gap, d) {
			r.handleImpliedNAK(now, p.BTH.PSN, info)
		}
	}
	if r.reorder.Len() > 0 && r.una != una && !r.c.Failed() {
		r.executeBufferedResponses(now)
	}
	if r.una != una && r.sel != nil {
		r.noteGivenUp()
		sendRefused(&r.recovery)
	}
	return d
}

// noteBehindGap takes note of a response to a READ behind a gap, perhaps the
// first behind another gap, which is kept or refused. It returns false if that
// may mean something else than that some responses are lost.
func (r *Requester) noteBehindGap(now clock.Time, psn rocev2.PSN, gap bool, d conn.Drop) bool {
	switch d {
	case conn.DropNone:
		return r.keptResponse(now, psn, gap)
	case conn.DropGap:
		refuseResponse(&r.recovery, psn)
		return r.refusedResponse(now, psn)
	}
	return false
}

// executeResponse takes a packet of the peer's responder in its turn (IBTA
// 9.7.6.1). One with a PSN that was never sent is a ghost. All others
// acknowledge what comes before their PSN, whatever they say; then comes their
// own meaning.
func (r *Requester) executeResponse(now clock.Time, p *rocev2.Packet, info *rocev2.OpcodeInfo) conn.Drop {
	psn := p.BTH.PSN
	if psn.Before(r.una) {
		return r.handleStale(now, p, info)
	}
	if psn.Ahead(r.una) >= r.max.Ahead(r.una) || !r.possibleMSN(p, info) {
		return conn.DropGhost
	}
	from, pos := r.una, r.posUna
	var d conn.Drop
	switch {
	case info.Operation == rocev2.OpReadResponse:
		d = r.readResponse(p, info)
	case info.Operation == rocev2.OpAtomicAcknowledge:
		d = r.atomicResponse(p)
	case p.AETH.Syndrome.IsACK():
		d = r.acknowledge(psn)
		if d == conn.DropNone && !r.c.Failed() {
			r.credit.update(&p.AETH)
		}
	default:
		return r.handleNAK(now, p)
	}
	r.progress(now, from, pos)
	if d == conn.DropGap && !r.waitsForKept(info) {
		r.handleImpliedNAK(now, psn, info)
	}
	return d
}

// waitsForKept reports whether a response behind a gap is looked at once it is
// kept.
func (r *Requester) waitsForKept(info *rocev2.OpcodeInfo) bool {
	return r.c.Pool != nil && info.Operation == rocev2.OpReadResponse && r.nxt == r.max && !r.c.Failed()
}

// handleStale takes a response to what has completed. It may still say
// something new: the credits of an unsolicited acknowledgement (IBTA 9.7.7.2),
// and a fatal NAK of a READ in the middle of its responses, which Linux sends
// with the PSN of the request.
func (r *Requester) handleStale(now clock.Time, p *rocev2.Packet, info *rocev2.OpcodeInfo) conn.Drop {
	if r.rtt.maybeSpurious {
		r.detectSpurious(now, p.BTH.PSN)
	}
	if r.sel != nil && info.Operation == rocev2.OpReadResponse && info.First && !info.Last {
		r.sel.twins.answered()
	}
	if info.Operation == rocev2.OpReadResponse && r.again > 0 {
		// The peer answers twice, in order: what is waited for follows.
		r.again--
		r.retry.heard(now)
		r.armProbe(now)
	}
	if info.Operation != rocev2.OpAcknowledge {
		return conn.DropStale
	}
	s := p.AETH.Syndrome
	switch {
	case s.IsACK() && p.BTH.PSN.Next() == r.una:
		r.credit.update(&p.AETH)
	case s.IsNAK() && s != rocev2.NAKSequence && r.queue.Head != r.started:
		w := r.queue.At(r.queue.Head)
		if w.Is(ib.OpReads) && p.BTH.PSN.Ahead(w.First) < r.una.Ahead(w.First) && r.possibleMSN(p, info) {
			r.countNAK(s)
			r.failHead(nakStatus(s), ib.VendorNAK|uint32(s))
			return conn.DropNone
		}
	}
	return conn.DropStale
}

// acknowledge takes an ACK of everything up to psn: one ACK may stand for
// several (IBTA 9.7.5.1).
func (r *Requester) acknowledge(psn rocev2.PSN) conn.Drop {
	if r.acknowledgeBefore(psn.Next()) || r.c.Failed() {
		return conn.DropNone
	}
	if r.inHead(psn) {
		// An ACK does not complete a READ or an atomic: it has no data
		// (IBTA 9.7.6.1).
		r.retry.badResp = true
		return conn.DropBadResponse
	}
	return conn.DropGap
}

// progress does what follows when una moves on: it was at from before. The
// timer and the retry counts start anew (IBTA 9.7.6.1.3), the round trip is
// measured (RFC 6298, section 3), the controller may let more go (RFC 5681,
// section 3.1).
func (r *Requester) progress(now clock.Time, from rocev2.PSN, pos uint64) {
	if r.una == from || r.c.Failed() {
		return
	}
	if r.nxt.Ahead(from) < r.una.Ahead(from) {
		// A response to the first transmission came after going back:
		// there is no need to send that again.
		r.cur, r.nxt, r.posNxt = r.queue.Head, r.una, r.posUna
		r.rd = 0
	}
	if r.sel != nil {
		advanceBoards(&r.recovery, now)
	}
	r.retry.progress(now, r.una != r.nxt)
	r.rtt.guess(now, r.rd > 0)
	r.rtt.flies(r.nxt.Ahead(r.una))
	if r.rtt.progress(now, r.una) {
		r.undoTimeout()
	}
	if r.rtt.known {
		r.c.SRTT = r.rtt.srtt
	}
	r.rnr.reset()
	n := r.arrived(pos)
	r.c.Acked(now, r.flight(), n)
	if r.repairFailed() {
		r.restart(now, true)
	} else {
		r.repair.forget(r.una)
	}
	if r.sel != nil {
		nakAhead(&r.recovery, now)
	}
	if r.fault {
		if w := r.queue.At(r.queue.Head); r.queue.Head != r.queue.Tail && w.Status != ib.StatusSuccess {
			r.failHead(w.Status, uint32(w.Vendor))
			return
		}
	}
	if r.c.State == ib.StateSQD {
		r.checkDrained()
	}
}

// readResponse takes a packet of the response to a READ, or to a request that
// is answered like an empty one.
func (r *Requester) readResponse(p *rocev2.Packet, info *rocev2.OpcodeInfo) conn.Drop {
	psn := p.BTH.PSN
	if !r.acknowledgeBefore(psn) {
		return r.unlessFailed(conn.DropGap)
	}
	w := r.queue.At(r.queue.Head)
	rel := psn.Ahead(w.First)
	if !w.Is(ib.OpReads|ib.OpEmptyAnswer) || !r.readFits(w, rel, p, info) {
		r.retry.badResp = true
		return conn.DropBadResponse
	}
	if info.Headers.Has(rocev2.HasAETH) {
		r.credit.update(&p.AETH)
	}
	if len(p.Payload) > 0 {
		f := r.c.Memory.Scatter(r.c.PD, r.queue.List(r.queue.Head, w), uint64(rel)<<r.c.Shift, p.Payload)
		if f == ib.FaultNotPresent {
			return r.dropResult(w, uint64(rel)<<r.c.Shift, len(p.Payload))
		}
		if f != ib.FaultNone {
			r.failHead(ib.StatusLocProtErr, ib.VendorFault|uint32(f))
			return conn.DropNone
		}
	}
	if rel+1 == r.chunkEnd(w, rel) && r.nxt != psn && r.nxt.Ahead(w.First) > rel {
		r.rd--
	}
	r.una = psn.Next()
	if rel+1 == w.PSNs {
		r.flush.answered(w)
		r.posUna = endOf(w)
		r.finishRead(w)
	} else {
		r.posUna = r.position(w, rel+1)
	}
	return conn.DropNone
}

// atomicResponse takes the result of an atomic.
func (r *Requester) atomicResponse(p *rocev2.Packet) conn.Drop {
	psn := p.BTH.PSN
	if !r.acknowledgeBefore(psn) {
		return r.unlessFailed(conn.DropGap)
	}
	w := r.queue.At(r.queue.Head)
	if !w.Is(ib.OpAtomic) || !p.AETH.Syndrome.IsACK() {
		r.retry.badResp = true
		return conn.DropBadResponse
	}
	r.credit.update(&p.AETH)
	word := r.c.Word()
	binary.NativeEndian.PutUint64(word, p.AtomicAck.Original)
	f := r.c.Memory.Scatter(r.c.PD, r.queue.List(r.queue.Head, w), 0, word)
	if f == ib.FaultNotPresent {
		return r.dropResult(w, 0, len(word))
	}
	if f != ib.FaultNone {
		r.failHead(ib.StatusLocProtErr, ib.VendorFault|uint32(f))
		return conn.DropNone
	}
	if r.nxt != psn && r.nxt.Ahead(w.First) > 0 {
		r.rd--
	}
	r.una, r.posUna = psn.Next(), endOf(w)
	r.completeHead()
	return conn.DropNone
}

// executeBufferedResponses goes on with the responses in the reorder buffer, as
// far as nothing is missing before them. The next gap is repaired at once, as
// the first was when it showed.
func (r *Requester) executeBufferedResponses(now clock.Time) {
	executed := false
	for r.reorder.Len() > 0 {
		psn := r.reorder.First()
		if !psn.Before(r.una) {
			p := r.reorder.Lowest()
			info, _ := p.BTH.Opcode.Info()
			if psn != r.una && r.queue.At(r.queue.Head).Answered() {
				if executed {
					r.handleImpliedNAK(now, psn, info)
				}
				return
			}
			d := r.executeResponse(now, p, info)
			if r.c.Failed() || d == conn.DropGap || d == conn.DropNotPresent {
				return
			}
			executed = true
		}
		r.reorder.Pop()
	}
	r.reorder.Trim()
}
