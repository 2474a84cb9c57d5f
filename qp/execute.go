package qp

import (
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
)

// executeSend takes a packet of a SEND into the receive in hand.
func (q *QP) executeSend(p *rocev2.Packet, info *rocev2.OpcodeInfo) Drop {
	r := &q.resp
	if info.First {
		if !q.takeReceive() {
			return q.notReady()
		}
		r.done = 0
	}
	n := len(p.Payload)
	if !info.Payload.Allows(n, q.attr.PathMTU) || uint64(r.done)+uint64(n) > ib.MaxMessage {
		return q.refuse(rocev2.NAKInvalidRequest, ib.StatusRemInvReqErr, ib.FaultNone)
	}
	if uint64(r.done)+uint64(n) > r.space {
		return q.refuse(rocev2.NAKInvalidRequest, ib.StatusLocLenErr, ib.FaultOutOfBounds)
	}
	if n > 0 {
		f := q.cfg.Memory.Scatter(q.cfg.PD, r.recv.SGList, uint64(r.done), p.Payload)
		if f == ib.FaultNotPresent {
			return q.dropForPage(q.cfg.Memory.MissingLocal(q.cfg.PD, r.recv.SGList, uint64(r.done), uint64(n), ib.LocalWrite))
		}
		if f != ib.FaultNone {
			return q.refuse(rocev2.NAKRemoteOperational, ib.StatusLocProtErr, f)
		}
	}
	// After the copy, which may be put off: a key can be invalidated only once.
	if info.WithInv && (q.cfg.Invalidate == nil || !q.cfg.Invalidate(ib.Key(p.IETH.RKey))) {
		return q.refuse(rocev2.NAKRemoteAccess, ib.StatusRemAccessErr, ib.FaultUnknownKey)
	}
	r.done += uint32(n)
	if !info.Last {
		r.message = rocev2.OpSend
		return q.accepted(p)
	}
	q.wc = ib.WC{ID: r.recv.ID, Opcode: ib.WCRecv, ByteLen: r.done}
	if info.WithInv {
		q.wc.WithInv, q.wc.InvalidatedKey = true, ib.Key(p.IETH.RKey)
	}
	return q.finish(p, info)
}

// finish ends a SEND or WRITE; q.wc is the completion of the receive in hand, if any.
func (q *QP) finish(p *rocev2.Packet, info *rocev2.OpcodeInfo) Drop {
	r := &q.resp
	r.message = 0
	if r.held {
		r.held = false
		q.stats.RecvDone++
		q.wc.Solicited = p.BTH.Solicited
		if info.WithImm {
			q.wc.WithImm, q.wc.Imm = true, p.Imm
		}
		if !q.recvWC() {
			return q.refuse(rocev2.NAKRemoteOperational, ib.StatusLocQPOpErr, ib.FaultNone) // nobody has received it
		}
	}
	r.msn = r.msn.Next()
	return q.accepted(p)
}

// executeWrite takes a packet of a WRITE.
func (q *QP) executeWrite(p *rocev2.Packet, info *rocev2.OpcodeInfo) Drop {
	r := &q.resp
	if info.WithImm && !q.takeReceive() {
		return q.notReady()
	}
	n := uint32(len(p.Payload))
	if info.First {
		if p.RETH.Length > ib.MaxMessage {
			return q.refuse(rocev2.NAKInvalidRequest, ib.StatusRemInvReqErr, ib.FaultNone)
		}
		r.va, r.rkey, r.left, r.done = p.RETH.VA, ib.Key(p.RETH.RKey), p.RETH.Length, 0
	}
	// Exactly what is left, or a full packet and more to come.
	if !info.Payload.Allows(int(n), q.attr.PathMTU) || n > r.left || info.Last != (n == r.left) {
		return q.refuse(rocev2.NAKInvalidRequest, ib.StatusRemInvReqErr, ib.FaultNone)
	}
	if n > 0 {
		// The whole range is checked with the first packet, so nothing is written if it straddles the region.
		v, f := q.cfg.Memory.Resolve(q.cfg.PD, q.cfg.QPN, r.rkey, r.va, uint64(r.left), ib.RemoteWrite)
		if f != ib.FaultNone {
			return q.refuseFault(f)
		}
		f = v.CopyIn(0, p.Payload)
		v.Release()
		if f == ib.FaultNotPresent {
			return q.dropForPage(v.Missing(0, uint64(n), true))
		}
		if f != ib.FaultNone {
			return q.refuseFault(f)
		}
	}
	r.va += uint64(n)
	r.left -= n
	r.done += n
	if !info.Last {
		r.message = rocev2.OpWrite
		return q.accepted(p)
	}
	if r.held {
		q.wc = ib.WC{ID: r.recv.ID, Opcode: ib.WCRecvWriteImm, ByteLen: r.done}
	}
	return q.finish(p, info)
}

// reserve puts a READ or an atomic that was accepted into the ring, where it takes the place of the oldest one, and moves
// on behind it.
func (r *responder) reserve(n resource) (index uint8) {
	e, index := r.res.oldest()
	r.res.push(e)
	if e.pending == pendingReplay {
		// A stray duplicate has asked for this, or a peer that has more outstanding than agreed.
		if to, ok := r.res.addBeside(*e); ok {
			r.out.move(index, to)
		} else {
			r.out.kill(index)
		}
	}
	n.pending, n.first = pendingFirst, r.epsn
	*e = n
	r.res.next++
	r.msn = r.msn.Next()
	r.epsn = r.epsn.Add(int(n.psns))
	return index
}

// busy reports whether a READ or an atomic of so many PSNs must wait for earlier answers to be sent: the peer has more
// outstanding than agreed, or than PSNs can tell apart.
func (r *responder) busy(psns uint32) bool {
	e, _ := r.res.oldest()
	return e.pending == pendingFirst || crossesAge(r.epsn, psns) && !r.age(psns)
}

// executeRead accepts a READ. Its data is read when the responses are sent.
func (q *QP) executeRead(p *rocev2.Packet) Drop {
	r := &q.resp
	if r.res.depth == 0 || p.RETH.Length > ib.MaxMessage {
		return q.refuse(rocev2.NAKInvalidRequest, ib.StatusRemInvReqErr, ib.FaultNone)
	}
	psns := q.psnsFor(p.RETH.Length)
	if r.busy(psns) {
		return q.putOff()
	}
	if f := q.checkRead(&p.RETH); f != ib.FaultNone {
		return q.refuseFault(f)
	}
	psn := r.epsn
	index := r.reserve(resource{kind: resourceRead, opcode: p.BTH.Opcode, psns: psns, va: p.RETH.VA, rkey: p.RETH.RKey,
		length: p.RETH.Length})
	r.out.push(response{kind: responseRead, res: index, psn: psn, start: psn, msn: r.msn, left: psns, end: p.RETH.Length})
	return DropNone
}

// checkRead checks the whole range of a READ; an empty one may have any key.
func (q *QP) checkRead(h *rocev2.RETH) ib.Fault {
	if h.Length == 0 {
		return ib.FaultNone
	}
	v, f := q.cfg.Memory.Resolve(q.cfg.PD, q.cfg.QPN, ib.Key(h.RKey), h.VA, uint64(h.Length), ib.RemoteRead)
	if f == ib.FaultNone {
		v.Release()
	}
	return f
}

// executeAtomic executes an atomic and keeps its result.
func (q *QP) executeAtomic(p *rocev2.Packet, info *rocev2.OpcodeInfo) Drop {
	r := &q.resp
	if r.res.depth == 0 {
		return q.refuse(rocev2.NAKInvalidRequest, ib.StatusRemInvReqErr, ib.FaultNone)
	}
	if r.busy(1) {
		return q.putOff()
	}
	a := &p.AtomicETH
	v, f := q.cfg.Memory.Resolve(q.cfg.PD, q.cfg.QPN, ib.Key(a.RKey), a.VA, 8, ib.RemoteAtomic)
	if f != ib.FaultNone {
		return q.refuseFault(f)
	}
	var old uint64
	switch {
	case a.VA&7 != 0:
		f = ib.FaultMisaligned
	case info.Operation == rocev2.OpCompareSwap:
		old, f = v.CompareSwap64(0, a.Compare, a.SwapAdd)
	default:
		old, f = v.FetchAdd64(0, a.SwapAdd)
	}
	v.Release()
	if f == ib.FaultNotPresent {
		return q.dropForPage(v.Missing(0, 8, true))
	}
	if f != ib.FaultNone {
		return q.refuseFault(f)
	}
	psn := r.epsn
	index := r.reserve(resource{kind: resourceAtomic, opcode: p.BTH.Opcode, psns: 1, value: old})
	r.out.push(response{kind: responseAtomic, res: index, psn: psn, msn: r.msn})
	return DropNone
}
