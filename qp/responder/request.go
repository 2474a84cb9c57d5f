package responder

import (
	"github.com/gosoftroce/rocev2/clock"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/rocev2"
)

// HandleRequest executes a request, and what was kept behind it.
func (r *Responder) HandleRequest(now clock.Time, a *conn.Arrival, info *rocev2.OpcodeInfo) conn.Drop {
	p := a.Packet
	placing := info.Operation == rocev2.OpFlush || info.Operation == rocev2.OpAtomicWrite
	if placing && p.RETH.VA == 0 {
		r.recallAddress(p)
	}
	d := r.executeRequest(p, info)
	if placing && d != conn.DropNone {
		r.rememberAddress(p, d)
	}
	if d == conn.DropOutOfOrder {
		return r.bufferRequest(now, p, info)
	}
	if r.reorder.Len() > 0 && !r.c.Failed() {
		if d == conn.DropNone {
			noteLate(r, p)
		}
		r.executeBuffered(now)
	}
	return d
}

// executeRequest checks a request, and executes it, in the order of IBTA
// 9.7.4.1: PSN, opcode sequence, rights of the queue pair, receive, length,
// key, alignment. A PSN behind the expected one is a gap, one before it a
// duplicate.
func (r *Responder) executeRequest(p *rocev2.Packet, info *rocev2.OpcodeInfo) conn.Drop {
	if r.out.full() {
		return conn.DropBusy
	}
	psn := p.BTH.PSN
	if d := psn.Sub(r.epsn); d > 0 {
		return conn.DropOutOfOrder
	} else if d < 0 {
		return r.duplicate(p, info)
	}
	if crossesAge(psn, 1) && !r.age(1) {
		return r.putOff()
	}
	r.nakSent = false
	if r.c.State == ib.StateRTR && !r.established {
		r.established = true
		r.c.Events.Raise(ib.EventCommEstablished)
	}
	if info.First == (r.message != 0) || (r.message != 0 && r.message != info.Operation) {
		return r.refuse(rocev2.NAKInvalidRequest, ib.StatusRemInvReqErr, ib.FaultNone)
	}
	if r.xrc != nil && !r.selectSRQ(p, info) {
		return r.refuse(rocev2.NAKInvalidRequest, ib.StatusRemInvReqErr, ib.FaultNone)
	}
	if need := accessFor(p, info.Operation); r.c.Attr.Access&need != need {
		return r.refuse(rocev2.NAKInvalidRequest, ib.StatusRemInvReqErr, ib.FaultNone)
	}
	if r.flushing > 0 && info.Operation != rocev2.OpReadRequest && info.Operation != rocev2.OpFlush {
		return r.putOff()
	}
	switch info.Operation {
	case rocev2.OpSend:
		return r.executeSend(p, info)
	case rocev2.OpWrite:
		return r.executeWrite(p, info)
	case rocev2.OpReadRequest:
		return r.executeRead(p)
	case rocev2.OpCompareSwap, rocev2.OpFetchAdd:
		return r.executeAtomic(p, info)
	case rocev2.OpAtomicWrite:
		return r.executeAtomicWrite(p)
	case rocev2.OpFlush:
		return r.executeFlush(p)
	}
	return r.refuse(rocev2.NAKInvalidRequest, ib.StatusRemInvReqErr, ib.FaultNone)
}

// accessFor returns the right that the queue pair must have.
func accessFor(p *rocev2.Packet, op rocev2.Operation) ib.Access {
	switch op {
	case rocev2.OpWrite, rocev2.OpAtomicWrite:
		return ib.RemoteWrite
	case rocev2.OpReadRequest:
		return ib.RemoteRead
	case rocev2.OpCompareSwap, rocev2.OpFetchAdd:
		return ib.RemoteAtomic
	case rocev2.OpFlush:
		return flushAccess(p.FETH.Type)
	}
	return 0
}

// notReady asks the peer to send the packet again later (RNR NAK, IBTA
// 9.7.5.2.8). The packets that follow it on the wire get no NAK.
func (r *Responder) notReady() conn.Drop {
	r.nakSent, r.nakForGap = true, false
	r.out.nak(rocev2.SyndromeRNR(r.c.Attr.MinRNRTimer), r.epsn, r.msn)
	return conn.DropRNR
}

// putOff has the peer send the expected packet again when the answers that wait
// have left: a sequence NAK goes behind them. What follows the packet gets no
// other.
func (r *Responder) putOff() conn.Drop {
	r.nakSent, r.nakForGap, r.firstGap = true, true, r.epsn
	r.out.nak(rocev2.NAKSequence, r.epsn, r.msn)
	return conn.DropRdAtomic
}

// accepted moves on behind the expected packet of a SEND or WRITE, and
// acknowledges it if the packet asks for that (AckReq, IBTA 9.7.5.1).
func (r *Responder) accepted(p *rocev2.Packet) conn.Drop {
	moveOn(r, 1)
	if p.BTH.AckReq {
		r.c.Stats.AcksMerged += uint64(r.out.ack(r.lastAck, r.msn))
	}
	return conn.DropNone
}

// moveOn moves on behind n packets of a SEND or WRITE, of which none waits for
// its acknowledgement yet.
func moveOn(r *Responder, n int) {
	if !r.unacked {
		r.unacked, r.firstUnacked = true, r.epsn
	}
	r.lastAck, r.acked = r.epsn.Add(n-1), true
	r.epsn = r.epsn.Add(n)
}
