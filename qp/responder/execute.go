package responder

import (
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/rocev2"
)

// executeSend takes a packet of a SEND into the receive in hand.
func (r *Responder) executeSend(p *rocev2.Packet, info *rocev2.OpcodeInfo) conn.Drop {
	if info.First {
		if !r.receives.Take() {
			return r.notReady()
		}
		r.done = 0
	}
	n := len(p.Payload)
	if !info.Payload.Allows(n, r.c.Attr.PathMTU) || uint64(r.done)+uint64(n) > ib.MaxMessage {
		return r.refuse(rocev2.NAKInvalidRequest, ib.StatusRemInvReqErr, ib.FaultNone)
	}
	if uint64(r.done)+uint64(n) > r.receives.Space {
		return r.refuse(rocev2.NAKInvalidRequest, ib.StatusLocLenErr, ib.FaultOutOfBounds)
	}
	if n > 0 {
		f := r.c.Memory.Scatter(r.receives.Recv.PD, r.receives.Recv.SGList, uint64(r.done), p.Payload)
		if f == ib.FaultNotPresent {
			return r.dropForPage(r.c.Memory.MissingLocal(r.receives.Recv.PD, r.receives.Recv.SGList, uint64(r.done), uint64(n), ib.LocalWrite))
		}
		if f != ib.FaultNone {
			return r.refuse(rocev2.NAKRemoteOperational, ib.StatusLocProtErr, f)
		}
	}
	// After the copy, which may be put off: a key can be invalidated only
	// once.
	if info.WithInv {
		if f := r.endKey(ib.Key(p.IETH.RKey)); f != ib.FaultNone {
			return r.refuse(rocev2.NAKRemoteAccess, ib.StatusRemAccessErr, f)
		}
	}
	r.done += uint32(n)
	if !info.Last {
		r.message = rocev2.OpSend
		return r.accepted(p)
	}
	return r.finish(p, info, ib.WCRecv)
}

// endKey invalidates a key for the peer.
func (r *Responder) endKey(key ib.Key) ib.Fault {
	switch {
	case r.xrc != nil:
		return r.c.Memory.Invalidate(r.c.PD, r.c.QPN, key)
	case r.invalidate == nil:
		return ib.FaultUnknownKey
	}
	return r.invalidate(key)
}

// finish ends a SEND or WRITE, and completes the receive in hand, if any.
func (r *Responder) finish(p *rocev2.Packet, info *rocev2.OpcodeInfo, op ib.WCOpcode) conn.Drop {
	r.message = 0
	if r.receives.Held {
		r.receives.Held = false
		r.taken = !r.receives.Shared
		r.c.Stats.RecvDone++
		wc := r.receives.WC(r.receives.Recv.ID, op)
		wc.ByteLen, wc.Solicited = r.done, p.BTH.Solicited
		if info.WithInv {
			wc.WithInv, wc.InvalidatedKey = true, ib.Key(p.IETH.RKey)
		}
		if info.WithImm {
			wc.WithImm, wc.Imm = true, p.Imm
		}
		if !r.c.Complete(r.receives.Recv.CQ, wc) {
			return r.refuse(rocev2.NAKRemoteOperational, ib.StatusLocQPOpErr, ib.FaultNone) // nobody has received it
		}
	}
	r.msn = r.msn.Next()
	return r.accepted(p)
}

// executeWrite takes a packet of a WRITE.
func (r *Responder) executeWrite(p *rocev2.Packet, info *rocev2.OpcodeInfo) conn.Drop {
	if info.WithImm && !r.receives.Take() {
		return r.notReady()
	}
	n := uint32(len(p.Payload))
	if info.First {
		if p.RETH.Length > ib.MaxMessage {
			return r.refuse(rocev2.NAKInvalidRequest, ib.StatusRemInvReqErr, ib.FaultNone)
		}
		r.va, r.rkey, r.left, r.done = p.RETH.VA, ib.Key(p.RETH.RKey), p.RETH.Length, 0
	}
	// Exactly what is left, or a full packet and more to come (IBTA
	// 9.7.4.1.6).
	if !info.Payload.Allows(int(n), r.c.Attr.PathMTU) || n > r.left || info.Last != (n == r.left) {
		return r.refuse(rocev2.NAKInvalidRequest, ib.StatusRemInvReqErr, ib.FaultNone)
	}
	if n > 0 {
		// The whole range is checked with the first packet, so nothing
		// is written if it straddles the region (IBTA 9.7.4.1.5).
		v, f := r.c.Memory.Resolve(r.c.PD, r.c.QPN, r.rkey, r.va, uint64(r.left), ib.RemoteWrite)
		if f != ib.FaultNone {
			return r.refuseFault(f)
		}
		if info.Last { // a program may watch for it
			f = v.CopyInLast(0, p.Payload)
		} else {
			f = v.CopyIn(0, p.Payload)
		}
		v.Release()
		if f == ib.FaultNotPresent {
			return r.dropForPage(v.Missing(0, uint64(n), true))
		}
		if f != ib.FaultNone {
			return r.refuseFault(f)
		}
	}
	r.va += uint64(n)
	r.left -= n
	r.done += n
	if !info.Last {
		r.message = rocev2.OpWrite
		return r.accepted(p)
	}
	return r.finish(p, info, ib.WCRecvWriteImm)
}

// executeRead accepts a READ. Its data is read when the responses are sent.
func (r *Responder) executeRead(p *rocev2.Packet) conn.Drop {
	if r.res.depth == 0 || p.RETH.Length > ib.MaxMessage {
		return r.refuse(rocev2.NAKInvalidRequest, ib.StatusRemInvReqErr, ib.FaultNone)
	}
	psns := r.c.PSNs(p.RETH.Length)
	if r.busy(psns) {
		return r.putOff()
	}
	if f := r.checkRead(&p.RETH, r.c.PD); f != ib.FaultNone {
		return r.refuseFault(f)
	}
	psn := r.epsn
	e, index := r.reservePlace(psns)
	e.kind, e.srqn, e.opcode, e.value = resourceRead, r.xrc.current(), p.BTH.Opcode, 0
	e.va, e.rkey, e.length = p.RETH.VA, p.RETH.RKey, p.RETH.Length
	r.out.pushRead(index, psn, r.msn, psns, p.RETH.Length)
	return conn.DropNone
}

// executeAtomic executes an atomic and keeps its result, in case the peer asks
// again (IBTA 9.7.5.1.6). The address must be aligned (IBTA 9.4.5.1).
func (r *Responder) executeAtomic(p *rocev2.Packet, info *rocev2.OpcodeInfo) conn.Drop {
	if r.res.depth == 0 {
		return r.refuse(rocev2.NAKInvalidRequest, ib.StatusRemInvReqErr, ib.FaultNone)
	}
	if r.busy(1) {
		return r.putOff()
	}
	a := &p.AtomicETH
	v, f := r.c.Memory.Resolve(r.c.PD, r.c.QPN, ib.Key(a.RKey), a.VA, 8, ib.RemoteAtomic)
	if f != ib.FaultNone {
		return r.refuseFault(f)
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
		return r.dropForPage(v.Missing(0, 8, true))
	}
	if f != ib.FaultNone {
		return r.refuseFault(f)
	}
	psn := r.epsn
	index := r.reserve(resource{kind: resourceAtomic, srqn: r.xrc.current(), opcode: p.BTH.Opcode, psns: 1, value: old})
	r.out.push(response{kind: responseAtomic, res: index, psn: psn, msn: r.msn})
	return conn.DropNone
}
