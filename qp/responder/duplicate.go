package responder

import (
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/rocev2"
)

// duplicate answers a request that was executed before (IBTA 9.7.5.1.4). It
// reports whether that is a READ or FLUSH that lost its place in the ring,
// because the peer had more outstanding than agreed: then it must be executed
// again, which changes nothing, so that is allowed (IBTA 9.7.5.1.5). See
// addAgain.
func (a *answers) duplicate(p *rocev2.Packet, op rocev2.Operation) (lost bool) {
	e, index := a.res.find(p.BTH.PSN)
	switch op {
	case rocev2.OpSend, rocev2.OpWrite:
		if e == nil { // else it is not what was executed there
			a.duplicateMessage(p.BTH.PSN)
		}
	case rocev2.OpReadRequest:
		if isTwin(a.c, p) {
			return false
		}
		if e != nil {
			a.duplicateRead(p, e, index)
			return false
		}
		return wellFormed(p, op) && a.res.wasPushed(p.BTH.PSN, a.c.PSNs(p.RETH.Length), a.epsn)
	case rocev2.OpCompareSwap, rocev2.OpFetchAdd, rocev2.OpAtomicWrite:
		a.duplicateAtomic(p, e, index)
	case rocev2.OpFlush:
		if e == nil {
			return wellFormed(p, op) && a.res.wasPushed(p.BTH.PSN, 1, a.epsn)
		}
		if e.kind == resourceFlush && e.opcode == p.BTH.Opcode && e.pending == pendingNone {
			a.c.Stats.Rare().FlushReplays++
			a.replay(e, index)
		}
	}
	return false
}

// duplicateMessage acknowledges all SEND and WRITE packets that were executed
// (IBTA 9.7.5.1.4), but not past a READ or an atomic after the duplicate: the
// peer may have lost its response, and Linux takes an acknowledgement for one.
// Before anything was executed there is nothing to say.
func (a *answers) duplicateMessage(psn rocev2.PSN) {
	if a.acked && a.epsn.Ahead(a.lastAck) <= a.epsn.Ahead(psn) {
		a.acknowledge(a.res.ackLimit(psn, a.lastAck))
	}
}

// isTwin reports whether a READ that was executed comes again only because the
// path loses packets. A native peer that lacks the answer asks for an
// acknowledgement.
func isTwin(c *conn.Conn, p *rocev2.Packet) bool { return c.Pool != nil && !p.BTH.AckReq }

// duplicateRead answers a READ again, or a part of it from any of its PSNs on
// (IBTA 9.7.5.1.5).
func (a *answers) duplicateRead(p *rocev2.Packet, e *resource, index uint8) {
	psn := p.BTH.PSN
	if e.kind != resourceRead || e.srqn != named(a.c, p) {
		return
	}
	rel := psn.Ahead(e.first)
	off := rel << a.c.Shift
	if e.length > 0 && (p.RETH.RKey != e.rkey || p.RETH.VA != e.va+uint64(off)) {
		return
	}
	if e.length < off || p.RETH.Length > e.length-off {
		return
	}
	a.c.Stats.Rare().ReadReplays++
	end := off + p.RETH.Length
	psns := a.c.PSNs(p.RETH.Length)
	part := false
	for i := a.queue.head; i != a.queue.tail; i++ {
		w := a.queue.at(i)
		if w.kind != responseRead || w.res != index {
			continue
		}
		from := w.psn.Ahead(e.first)
		if rel+psns <= from {
			part = true // sent and lost: a part of its own, before the rest
			continue
		}
		// Its answer is under way. If that has passed the asked place,
		// it goes back; otherwise it will come there.
		after := max(from+w.left, rel+psns)
		if w.psn.After(psn) {
			a.queue.rewind(w, psn, a.msn)
		}
		w.left, w.end = after-w.psn.Ahead(e.first), max(w.end, end)
		return
	}
	if !part {
		e.pending = pendingReplay
	}
	a.queue.insert(response{kind: responseRead, res: index, part: part, psn: psn, start: psn, msn: a.msn, left: psns, end: end})
}

// duplicateAtomic sends the stored result of an atomic again, or that an ATOMIC
// WRITE was executed (IBTA 9.7.5.1.6). One that lost its place in the ring
// cannot be executed again, so the peer is told that it had more outstanding
// than agreed; nothing else happens, see addAgain.
func (a *answers) duplicateAtomic(p *rocev2.Packet, e *resource, index uint8) {
	if e == nil {
		if a.res.wasPushed(p.BTH.PSN, 1, a.epsn) {
			a.queue.nakDuplicate(rocev2.NAKInvalidRequest, p.BTH.PSN, a.msn)
		}
		return
	}
	if e.opcode == p.BTH.Opcode && e.pending == pendingNone {
		a.c.Stats.Rare().AtomicReplays++
		a.replay(e, index)
	}
}

// replay adds the answer to an atomic or FLUSH again.
func (a *answers) replay(e *resource, index uint8) {
	e.pending = pendingReplay
	a.queue.insert(response{kind: e.replay(), res: index, psn: e.first, msn: a.msn})
}

// addAgain takes what came of a READ or FLUSH that was executed again, and adds
// the answer. If it was refused this time, the peer is told, and nothing else
// happens: an attacker can guess a PSN that looks like a duplicate.
func (a *answers) addAgain(p *rocev2.Packet, op rocev2.Operation, o outcome) {
	psn := p.BTH.PSN
	if o.verdict == refused {
		a.queue.nakDuplicate(o.syndrome, psn, a.msn)
		return
	}
	e := resource{first: psn, psns: 1}
	e.keep(a.c, p, op, 0)
	if op == rocev2.OpReadRequest {
		e.psns = a.c.PSNs(e.length)
	}
	index, ok := a.res.addBeside(e)
	if !ok {
		return // as if lost
	}
	if op == rocev2.OpFlush {
		a.c.Stats.Rare().FlushReplays++
		a.queue.insert(response{kind: e.answer(), res: index, psn: psn, msn: a.msn})
		return
	}
	a.c.Stats.Rare().ReadReplays++
	a.queue.insert(response{kind: responseRead, res: index, psn: psn, start: psn, msn: a.msn, left: e.psns, end: e.length})
}
