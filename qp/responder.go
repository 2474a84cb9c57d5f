package qp

import (
	"github.com/gosoftroce/rocev2/clock"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
)

// responder is the receiving half (IBTA 9.7.4 and 9.7.5).
type responder struct {
	queue recvQueue // the own receive queue, if there is no RecvSource
	recv  RecvWQE   // the receive in hand, if held
	held  bool
	latch bool // a NAK was sent for epsn: silence until the expected packet comes
	rearm bool // it was for a gap, before firstGap: when that or an earlier packet comes, epsn was sent again and lost again
	acked bool // lastAck is set
	owed  bool // nothing that was sent acknowledges what lies from owes to lastAck
	delay bool // a lone acknowledgement waits
	heard bool // EventCommEst was raised

	epsn    rocev2.PSN // expected
	msn     rocev2.PSN // messages completed
	lastAck rocev2.PSN // the latest SEND or WRITE packet executed
	owes    rocev2.PSN

	firstGap rocev2.PSN // epsn: nothing came behind it since the NAK
	naks     nakLimit

	message rocev2.Operation // the multi-packet message under way: OpSend, OpWrite or 0
	space   uint64           // bytes of the receive in hand
	done    uint32           // bytes of the message so far
	left    uint32           // WRITE: bytes still to come
	va      uint64           // WRITE: where they go
	rkey    ib.Key

	res   resources
	out   responses
	kept  kept
	fatal fatalNAK
}

// fatalNAK is why the connection ended. A peer that asks again, for the request that was refused or for one that was not
// answered because of it, is told again: otherwise it would learn nothing but a timeout.
type fatalNAK struct {
	first    rocev2.PSN // of the first request without an answer
	refused  rocev2.PSN // of the request that was refused
	last     rocev2.PSN // that was told of: what comes behind it is of the same attempt
	syndrome rocev2.Syndrome
	left     uint8 // repetitions
}

const fatalRepeats = 8

// code is what a request learns: one before the refused one was right, but there is no answer to it any more.
func (f *fatalNAK) code(psn rocev2.PSN) rocev2.Syndrome {
	if ahead(psn, f.first) < ahead(f.refused, f.first) {
		return rocev2.NAKRemoteOperational
	}
	return f.syndrome
}

// repeatFatal takes a request in ERR.
func (q *QP) repeatFatal(p *rocev2.Packet) Drop {
	r := &q.resp
	f, psn := &r.fatal, p.BTH.PSN
	if f.left == 0 || psn.After(r.epsn) || r.out.full() {
		return DropState
	}
	if ahead(psn, f.first) > ahead(r.epsn, f.first) {
		// Before that: only a READ or an atomic whose answer was lost keeps the peer from asking for the others.
		e, index := r.res.find(psn)
		switch {
		case e == nil || e.opcode != p.BTH.Opcode:
			return DropState
		case e.kind == resourceAtomic:
			r.out.push(response{kind: responseAtomic, res: index, psn: psn, msn: r.msn})
		default:
			r.out.nak(rocev2.NAKRemoteOperational, psn, r.msn)
		}
		f.left--
		return DropDuplicate
	}
	if ahead(psn, f.first) > ahead(f.last, f.first) {
		return DropState
	}
	if r.out.nak(f.code(psn), psn, r.msn) {
		f.last = psn
		f.left--
	}
	return DropDuplicate
}

// handleRequest executes a request, and what was kept behind it.
func (q *QP) handleRequest(now clock.Time, p *rocev2.Packet, info *rocev2.OpcodeInfo) Drop {
	d := q.executeRequest(p, info)
	if d == DropOutOfOrder {
		return q.keepRequest(now, p, info)
	}
	if q.resp.kept.len() > 0 {
		q.executeKept(now)
	}
	return d
}

// executeRequest checks a request in the order PSN, opcode sequence, rights of the queue pair, receive, length, key,
// alignment (IBTA 9.7.4.1).
func (q *QP) executeRequest(p *rocev2.Packet, info *rocev2.OpcodeInfo) Drop {
	r := &q.resp
	if r.out.full() {
		return DropBusy
	}
	psn := p.BTH.PSN
	if d := psn.Sub(r.epsn); d > 0 {
		return DropOutOfOrder
	} else if d < 0 {
		return q.duplicate(p, info)
	}
	if crossesAge(psn, 1) && !r.age(1) {
		return q.putOff()
	}
	r.latch = false
	if q.state == ib.StateRTR && !r.heard {
		r.heard = true
		q.events.raise(ib.EventCommEstablished)
	}
	if info.First == (r.message != 0) || (r.message != 0 && r.message != info.Operation) {
		return q.refuse(rocev2.NAKInvalidRequest, ib.StatusRemInvReqErr, ib.FaultNone)
	}
	if need := accessFor(info.Operation); q.attr.Access&need != need {
		return q.refuse(rocev2.NAKInvalidRequest, ib.StatusRemInvReqErr, ib.FaultNone)
	}
	switch info.Operation {
	case rocev2.OpSend:
		return q.executeSend(p, info)
	case rocev2.OpWrite:
		return q.executeWrite(p, info)
	case rocev2.OpReadRequest:
		return q.executeRead(p)
	case rocev2.OpCompareSwap, rocev2.OpFetchAdd:
		return q.executeAtomic(p, info)
	}
	return q.refuse(rocev2.NAKInvalidRequest, ib.StatusRemInvReqErr, ib.FaultNone)
}

// accessFor is the right that the queue pair must have. FLUSH and ATOMIC_WRITE get further only to be refused.
func accessFor(op rocev2.Operation) ib.Access {
	switch op {
	case rocev2.OpWrite:
		return ib.RemoteWrite
	case rocev2.OpReadRequest:
		return ib.RemoteRead
	case rocev2.OpCompareSwap, rocev2.OpFetchAdd:
		return ib.RemoteAtomic
	}
	return 0
}

// takeReceive gets a receive for the message, unless one is in hand.
func (q *QP) takeReceive() bool {
	r := &q.resp
	if r.held {
		return true
	}
	if q.cfg.RecvSource != nil {
		r.held = q.cfg.RecvSource.NextRecv(&r.recv)
	} else {
		r.held = r.queue.NextRecv(&r.recv)
	}
	if r.held {
		r.space = ib.TotalLength(r.recv.SGList)
	}
	return r.held
}

// notReady asks the peer to send the packet again later. The packets that follow it on the wire get no NAK.
func (q *QP) notReady() Drop {
	r := &q.resp
	r.latch, r.rearm = true, false
	r.out.nak(rocev2.SyndromeRNR(q.attr.MinRNRTimer), r.epsn, r.msn)
	return DropRNR
}

// putOff has the peer send the expected packet again when the answers that wait have left: the NAK goes behind them. What
// follows the packet gets no other.
func (q *QP) putOff() Drop {
	r := &q.resp
	r.latch, r.rearm, r.firstGap = true, true, r.epsn
	r.out.nak(rocev2.NAKSequence, r.epsn, r.msn)
	return DropRdAtomic
}

// refuse ends the connection because of the expected packet: NAK, completion of the receive in hand, event, ERR.
func (q *QP) refuse(s rocev2.Syndrome, status ib.Status, f ib.Fault) Drop {
	q.refuseFrom(q.resp.epsn, s, status, f)
	return DropInvalid
}

// endAnswers prepares the responder for ERR: no READ is answered any more, and nothing behind one. It reports whether
// there was one, and that the peer must be told.
func (r *responder) endAnswers(refused rocev2.PSN, s rocev2.Syndrome) bool {
	r.fatal = fatalNAK{first: r.epsn, refused: refused, last: r.epsn, syndrome: s, left: fatalRepeats}
	e, cut := r.out.quiet()
	if cut {
		r.fatal.first, r.fatal.last = r.res.at(e.res).first, e.psn
	}
	return cut
}

// tellFatal sends the NAK for the first request without an answer.
func (r *responder) tellFatal() { r.out.nak(r.fatal.code(r.fatal.last), r.fatal.last, r.msn) }

// refuseFrom ends the connection because of the request that begins at psn.
func (q *QP) refuseFrom(psn rocev2.PSN, s rocev2.Syndrome, status ib.Status, f ib.Fault) {
	r := &q.resp
	r.endAnswers(psn, s)
	r.tellFatal()
	switch s {
	case rocev2.NAKRemoteAccess:
		q.events.raise(ib.EventQPAccessError)
	case rocev2.NAKInvalidRequest:
		q.events.raise(ib.EventQPRequestError)
	default:
		if !r.held {
			q.events.raise(ib.EventQPFatal)
		}
	}
	if r.held {
		q.failRecv(status, faultDetail(f))
	}
	q.enterError(true)
}

// refuseFault refuses a request for its remote key or memory.
func (q *QP) refuseFault(f ib.Fault) Drop {
	s, status := faultNAK(f)
	return q.refuse(s, status, f)
}

func faultNAK(f ib.Fault) (rocev2.Syndrome, ib.Status) {
	switch f {
	case ib.FaultMisaligned:
		return rocev2.NAKInvalidRequest, ib.StatusRemInvReqErr
	case ib.FaultMemory:
		return rocev2.NAKRemoteOperational, ib.StatusRemOpErr
	}
	return rocev2.NAKRemoteAccess, ib.StatusRemAccessErr
}

// accepted moves on behind the expected packet of a SEND or WRITE and acknowledges it if asked.
func (q *QP) accepted(p *rocev2.Packet) Drop {
	r := &q.resp
	r.lastAck, r.acked = r.epsn, true
	if !r.owed {
		r.owed, r.owes = true, r.epsn
	}
	r.epsn = r.epsn.Next()
	if p.BTH.AckReq {
		q.stats.AcksMerged += uint64(r.out.ack(r.lastAck, r.msn))
	}
	return DropNone
}

// duplicate answers a request that was executed before, without executing it (IBTA 9.7.5.1.4).
func (q *QP) duplicate(p *rocev2.Packet, info *rocev2.OpcodeInfo) Drop {
	switch info.Operation {
	case rocev2.OpSend, rocev2.OpWrite:
		q.duplicateMessage(p.BTH.PSN)
	case rocev2.OpReadRequest:
		q.duplicateRead(p)
	case rocev2.OpCompareSwap, rocev2.OpFetchAdd:
		q.duplicateAtomic(p)
	}
	return DropDuplicate
}

// duplicateMessage acknowledges all SEND and WRITE packets that were executed, but not past a READ or an atomic behind
// the duplicate: the peer may have lost its response, and Linux takes an acknowledgement for one. Before anything was
// executed there is nothing to say.
func (q *QP) duplicateMessage(psn rocev2.PSN) {
	r := &q.resp
	if !r.acked || ahead(r.epsn, r.lastAck) > ahead(r.epsn, psn) {
		return
	}
	if e, _ := r.res.find(psn); e != nil {
		return // not what was executed there
	}
	q.stats.AcksMerged += uint64(r.out.ack(r.res.ackLimit(psn, r.lastAck), r.msn))
}

// duplicateRead answers a READ again, or a part of it from any of its PSNs on.
func (q *QP) duplicateRead(p *rocev2.Packet) {
	r := &q.resp
	psn := p.BTH.PSN
	e, index := r.res.find(psn)
	if e == nil {
		q.readAgain(&p.BTH, &p.RETH)
		return
	}
	if e.kind != resourceRead {
		return
	}
	rel := ahead(psn, e.first)
	off := rel << q.mtuShift
	if e.length > 0 && (p.RETH.RKey != e.rkey || p.RETH.VA != e.va+uint64(off)) {
		return
	}
	if e.length < off || p.RETH.Length > e.length-off {
		return
	}
	q.stats.ReadReplays++
	end := off + p.RETH.Length
	psns := q.psnsFor(p.RETH.Length)
	part := false
	for i := r.out.head; i != r.out.tail; i++ {
		w := r.out.at(i)
		if w.kind != responseRead || w.res != index {
			continue
		}
		from := ahead(w.psn, e.first)
		if rel+psns <= from {
			part = true // sent and lost: a part of its own, before the rest
			continue
		}
		// Its answer is under way. If that has passed the asked place, it goes back; otherwise it will come there.
		behind := max(from+w.left, rel+psns)
		if w.psn.After(psn) {
			r.out.back(w, psn, r.msn)
		}
		w.left, w.end = behind-ahead(w.psn, e.first), max(w.end, end)
		return
	}
	if !part {
		e.pending = pendingReplay
	}
	r.out.insert(response{kind: responseRead, res: index, part: part, psn: psn, start: psn, msn: r.msn, left: psns, end: end})
}

// readAgain executes a READ again that lost its place in the ring, because the peer had more outstanding than agreed: a
// READ changes nothing, so that is allowed (IBTA 9.7.5.1.5). If it is refused this time, the peer is told, and nothing else
// happens: anybody can guess a PSN that looks like a duplicate.
func (q *QP) readAgain(h *rocev2.BTH, e *rocev2.RETH) {
	r := &q.resp
	if e.Length > ib.MaxMessage {
		return
	}
	psns := q.psnsFor(e.Length)
	if !r.res.wasPushed(h.PSN, psns, r.epsn) {
		return
	}
	if q.attr.Access&ib.RemoteRead == 0 {
		r.out.deny(rocev2.NAKInvalidRequest, h.PSN, r.msn)
		return
	}
	if f := q.checkRead(e); f != ib.FaultNone {
		s, _ := faultNAK(f)
		r.out.deny(s, h.PSN, r.msn)
		return
	}
	index, ok := r.res.addBeside(resource{kind: resourceRead, opcode: h.Opcode, first: h.PSN, psns: psns, va: e.VA,
		rkey: e.RKey, length: e.Length})
	if !ok {
		return // as if lost
	}
	q.stats.ReadReplays++
	r.out.insert(response{kind: responseRead, res: index, psn: h.PSN, start: h.PSN, msn: r.msn, left: psns, end: e.Length})
}

// duplicateAtomic sends the stored result again. One that lost its place in the ring cannot be executed again, so the peer
// is told that it had more outstanding than agreed; nothing else happens, see readAgain.
func (q *QP) duplicateAtomic(p *rocev2.Packet) {
	r := &q.resp
	e, index := r.res.find(p.BTH.PSN)
	if e == nil && r.res.wasPushed(p.BTH.PSN, 1, r.epsn) {
		r.out.deny(rocev2.NAKInvalidRequest, p.BTH.PSN, r.msn)
	}
	if e == nil || e.kind != resourceAtomic || e.opcode != p.BTH.Opcode || e.pending != pendingNone {
		return
	}
	q.stats.AtomicReplay++
	e.pending = pendingReplay
	r.out.insert(response{kind: responseAtomic, res: index, psn: e.first, msn: r.msn})
}

// psnsFor is how many packets carry n bytes.
func (q *QP) psnsFor(n uint32) uint32 { return max(1, (n+uint32(q.mtu)-1)>>q.mtuShift) }
