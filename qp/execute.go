package qp

import (
	"github.com/gosoftroce/rocev2/memreg"
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
	if !info.Payload.Allows(n, q.attr.PathMTU) || uint64(r.done)+uint64(n) > MaxMessage {
		return q.refuse(rocev2.NAKInvalidRequest, StatusRemInvReqErr, memreg.None)
	}
	if uint64(r.done)+uint64(n) > r.space {
		return q.refuse(rocev2.NAKInvalidRequest, StatusLocLenErr, memreg.OutOfBounds)
	}
	if info.WithInv && (q.cfg.Invalidate == nil || !q.cfg.Invalidate(memreg.Key(p.IETH.RKey))) {
		return q.refuse(rocev2.NAKRemoteAccess, StatusRemAccessErr, memreg.UnknownKey)
	}
	if n > 0 {
		if f := q.cfg.Memory.Scatter(q.cfg.PD, r.recv.SGList, uint64(r.done), p.Payload); f != memreg.None {
			return q.refuse(rocev2.NAKRemoteOperational, StatusLocProtErr, f)
		}
	}
	r.done += uint32(n)
	if !info.Last {
		r.message = rocev2.OpSend
		return q.accepted(p)
	}
	q.wc = WC{ID: r.recv.ID, Opcode: WCRecv, ByteLen: r.done}
	if info.WithInv {
		q.wc.WithInv, q.wc.InvalidatedKey = true, memreg.Key(p.IETH.RKey)
	}
	return q.finish(p, info)
}

// finish ends a SEND or WRITE; q.wc is the completion of the receive in hand, if any.
func (q *QP) finish(p *rocev2.Packet, info *rocev2.OpcodeInfo) Drop {
	r := &q.resp
	r.message = 0
	r.msn = r.msn.Next()
	if r.held {
		r.held = false
		q.stats.RecvDone++
		q.wc.Solicited = p.BTH.Solicited
		if info.WithImm {
			q.wc.WithImm, q.wc.Imm = true, p.Imm
		}
		if !q.recvWC() {
			q.enterError(true)
			return DropInvalid
		}
	}
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
		if p.RETH.Length > MaxMessage {
			return q.refuse(rocev2.NAKInvalidRequest, StatusRemInvReqErr, memreg.None)
		}
		r.va, r.rkey, r.left, r.done = p.RETH.VA, memreg.Key(p.RETH.RKey), p.RETH.Length, 0
	}
	// Exactly what is left, or a full packet and more to come.
	if !info.Payload.Allows(int(n), q.attr.PathMTU) || n > r.left || info.Last != (n == r.left) {
		return q.refuse(rocev2.NAKInvalidRequest, StatusRemInvReqErr, memreg.None)
	}
	if n > 0 {
		// The whole range is checked with the first packet, so nothing is written if it straddles the region.
		v, f := q.cfg.Memory.Resolve(q.cfg.PD, r.rkey, r.va, uint64(r.left), memreg.RemoteWrite)
		if f != memreg.None {
			return q.refuseFault(f)
		}
		f = v.CopyIn(0, p.Payload)
		v.Release()
		if f != memreg.None {
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
		q.wc = WC{ID: r.recv.ID, Opcode: WCRecvWriteImm, ByteLen: r.done}
	}
	return q.finish(p, info)
}

// reserve gets the resource for a READ or an atomic. False means that the peer has more of them outstanding than was
// agreed: the oldest has not even been answered.
func (q *QP) reserve() (*resource, uint32, bool) {
	r := &q.resp
	if r.res.depth == 0 {
		return nil, 0, false
	}
	e, index := r.res.oldest()
	switch e.pending {
	case pendingFirst:
		return nil, 0, false
	case pendingReplay:
		// Only a stray duplicate can have asked for this: the peer goes on without it.
		for w := r.out.waiting(index); w != nil; w = r.out.waiting(index) {
			w.kind = responseDead
		}
	}
	return e, index, true
}

// executeRead accepts a READ. Its data is read when the responses are sent.
func (q *QP) executeRead(p *rocev2.Packet) Drop {
	r := &q.resp
	e, index, ok := q.reserve()
	if !ok || p.RETH.Length > MaxMessage {
		return q.refuse(rocev2.NAKInvalidRequest, StatusRemInvReqErr, memreg.None)
	}
	if p.RETH.Length > 0 {
		v, f := q.cfg.Memory.Resolve(q.cfg.PD, memreg.Key(p.RETH.RKey), p.RETH.VA, uint64(p.RETH.Length),
			memreg.RemoteRead)
		if f != memreg.None {
			return q.refuseFault(f)
		}
		v.Release()
	}
	psns := q.psnsFor(p.RETH.Length)
	r.msn = r.msn.Next()
	*e = resource{kind: resourceRead, pending: pendingFirst, opcode: p.BTH.Opcode, first: r.epsn, psns: psns,
		va: p.RETH.VA, rkey: p.RETH.RKey, length: p.RETH.Length}
	r.res.next++
	r.out.push(response{kind: responseRead, res: uint8(index), psn: r.epsn, start: r.epsn, msn: r.msn, left: psns,
		end: p.RETH.Length})
	r.epsn = r.epsn.Add(int(psns))
	return DropNone
}

// executeAtomic executes an atomic and keeps its result.
func (q *QP) executeAtomic(p *rocev2.Packet, info *rocev2.OpcodeInfo) Drop {
	r := &q.resp
	e, index, ok := q.reserve()
	if !ok {
		return q.refuse(rocev2.NAKInvalidRequest, StatusRemInvReqErr, memreg.None)
	}
	a := &p.AtomicETH
	v, f := q.cfg.Memory.Resolve(q.cfg.PD, memreg.Key(a.RKey), a.VA, 8, memreg.RemoteAtomic)
	if f != memreg.None {
		return q.refuseFault(f)
	}
	var old uint64
	switch {
	case a.VA&7 != 0:
		f = memreg.Misaligned
	case info.Operation == rocev2.OpCompareSwap:
		old, f = v.CompareSwap64(0, a.Compare, a.SwapAdd)
	default:
		old, f = v.FetchAdd64(0, a.SwapAdd)
	}
	v.Release()
	if f != memreg.None {
		return q.refuseFault(f)
	}
	r.msn = r.msn.Next()
	*e = resource{kind: resourceAtomic, pending: pendingFirst, opcode: p.BTH.Opcode, first: r.epsn, psns: 1, value: old}
	r.res.next++
	r.out.push(response{kind: responseAtomic, res: uint8(index), psn: r.epsn, msn: r.msn})
	r.epsn = r.epsn.Next()
	return DropNone
}
