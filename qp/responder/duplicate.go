package responder

import (
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/rocev2"
)

// duplicate answers a request that was executed before, without executing it
// (IBTA 9.7.5.1.4).
func (r *answerer) duplicate(p *rocev2.Packet, info *rocev2.OpcodeInfo) conn.Drop {
	switch info.Operation {
	case rocev2.OpSend, rocev2.OpWrite:
		r.duplicateMessage(p.BTH.PSN)
	case rocev2.OpReadRequest:
		if !isTwin(r.c, p) {
			r.duplicateRead(p)
		}
	case rocev2.OpCompareSwap, rocev2.OpFetchAdd, rocev2.OpAtomicWrite:
		r.duplicateAtomic(p)
	case rocev2.OpFlush:
		r.duplicateFlush(p)
	}
	return conn.DropDuplicate
}

// duplicateMessage acknowledges all SEND and WRITE packets that were executed
// (IBTA 9.7.5.1.4), but not past a READ or an atomic behind the duplicate: the
// peer may have lost its response, and Linux takes an acknowledgement for one.
// Before anything was executed there is nothing to say.
func (r *answerer) duplicateMessage(psn rocev2.PSN) {
	if !r.acked || r.epsn.Ahead(r.lastAck) > r.epsn.Ahead(psn) {
		return
	}
	if e, _ := r.res.find(psn); e != nil {
		return // not what was executed there
	}
	r.c.Stats.AcksMerged += uint64(r.out.ack(r.res.ackLimit(psn, r.lastAck), r.msn))
}

// isTwin reports whether a READ that was executed comes again only because the
// path loses packets. A native peer that lacks the answer asks for an
// acknowledgement.
func isTwin(c *conn.Conn, p *rocev2.Packet) bool { return c.Pool != nil && !p.BTH.AckReq }

// duplicateRead answers a READ again, or a part of it from any of its PSNs on
// (IBTA 9.7.5.1.5).
func (r *answerer) duplicateRead(p *rocev2.Packet) {
	psn := p.BTH.PSN
	e, index := r.res.find(psn)
	if e == nil {
		r.readAgain(p)
		return
	}
	if e.kind != resourceRead || e.srqn != r.xrc.namedBy(p) {
		return
	}
	rel := psn.Ahead(e.first)
	off := rel << r.c.Shift
	if e.length > 0 && (p.RETH.RKey != e.rkey || p.RETH.VA != e.va+uint64(off)) {
		return
	}
	if e.length < off || p.RETH.Length > e.length-off {
		return
	}
	r.c.Stats.Rare().ReadReplays++
	end := off + p.RETH.Length
	psns := r.c.PSNs(p.RETH.Length)
	part := false
	for i := r.out.head; i != r.out.tail; i++ {
		w := r.out.at(i)
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
		behind := max(from+w.left, rel+psns)
		if w.psn.After(psn) {
			r.out.rewind(w, psn, r.msn)
		}
		w.left, w.end = behind-w.psn.Ahead(e.first), max(w.end, end)
		return
	}
	if !part {
		e.pending = pendingReplay
	}
	r.out.insert(response{kind: responseRead, res: index, part: part, psn: psn, start: psn, msn: r.msn, left: psns, end: end})
}

// readAgain executes a READ again that lost its place in the ring, because the
// peer had more outstanding than agreed: a READ changes nothing, so that is
// allowed (IBTA 9.7.5.1.5). If it is refused this time, the peer is told, and
// nothing else happens: anybody can guess a PSN that looks like a duplicate.
func (r *answerer) readAgain(p *rocev2.Packet) {
	h, e := &p.BTH, &p.RETH
	if e.Length > ib.MaxMessage {
		return
	}
	psns := r.c.PSNs(e.Length)
	if !r.res.wasPushed(h.PSN, psns, r.epsn) {
		return
	}
	if r.c.Attr.Access&ib.RemoteRead == 0 {
		r.out.nakDuplicate(rocev2.NAKInvalidRequest, h.PSN, r.msn)
		return
	}
	if f := r.checkRead(e, r.domainOf(r.xrc.namedBy(p))); f != ib.FaultNone {
		s, _ := faultNAK(f)
		r.out.nakDuplicate(s, h.PSN, r.msn)
		return
	}
	index, ok := r.res.addBeside(resource{kind: resourceRead, srqn: r.xrc.namedBy(p), opcode: h.Opcode, first: h.PSN, psns: psns, va: e.VA,
		rkey: e.RKey, length: e.Length})
	if !ok {
		return // as if lost
	}
	r.c.Stats.Rare().ReadReplays++
	r.out.insert(response{kind: responseRead, res: index, psn: h.PSN, start: h.PSN, msn: r.msn, left: psns, end: e.Length})
}

// duplicateAtomic sends the stored result of an atomic again, or that an ATOMIC
// WRITE was executed (IBTA 9.7.5.1.6). One that lost
// its place in the ring cannot be executed again, so the peer is told that it
// had more outstanding than agreed; nothing else happens, see readAgain.
func (r *answerer) duplicateAtomic(p *rocev2.Packet) {
	e, index := r.res.find(p.BTH.PSN)
	if e == nil && r.res.wasPushed(p.BTH.PSN, 1, r.epsn) {
		r.out.nakDuplicate(rocev2.NAKInvalidRequest, p.BTH.PSN, r.msn)
	}
	if e == nil || e.opcode != p.BTH.Opcode || e.pending != pendingNone {
		return
	}
	r.c.Stats.Rare().AtomicReplays++
	e.pending = pendingReplay
	r.out.insert(response{kind: e.answer(), res: index, psn: e.first, msn: r.msn})
}
