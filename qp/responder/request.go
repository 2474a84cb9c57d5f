package responder

import (
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// HandleRequest executes a request, and what was kept after it. In ERR it
// tells a peer again why.
func (r *Responder) HandleRequest(now clock.Time, a *conn.Arrival, info *rocev2.OpcodeInfo) conn.Drop {
	p := a.Packet
	if r.exec.c.Failed() {
		return r.answers.repeatFatal(p)
	}
	placing := info.Operation == rocev2.OpFlush || info.Operation == rocev2.OpAtomicWrite
	if placing && p.RETH.VA == 0 {
		r.dropped.recall(p, r.answers.epsn)
	}
	d := r.handle(p, info)
	if placing && d != conn.DropNone {
		r.dropped.remember(p, d)
	}
	if d == conn.DropOutOfOrder {
		psns := uint32(1)
		if info.Operation == rocev2.OpReadRequest {
			psns = r.exec.c.PSNs(p.RETH.Length)
		}
		d, ask := r.gap.take(now, p, psns, r.answers.epsn)
		if ask {
			r.ask(now, p.BTH.PSN)
		}
		return d
	}
	if r.gap.holds() && !r.exec.c.Failed() {
		if d == conn.DropNone {
			r.gap.late(p)
		}
		r.handleKept(now)
	}
	return d
}

// handle takes a request in the order of IBTA 9.7.4.1: PSN, opcode sequence,
// rights of the queue pair, receive, length, key, alignment. A PSN after the
// expected one is a gap. One before it is a duplicate, which is answered
// without being executed again (IBTA 9.7.5.1.4); but for a READ or FLUSH that
// is not kept any more.
func (r *Responder) handle(p *rocev2.Packet, info *rocev2.OpcodeInfo) conn.Drop {
	if r.answers.full() {
		return conn.DropBusy
	}
	psn := p.BTH.PSN
	if d := psn.Sub(r.answers.epsn); d > 0 {
		return conn.DropOutOfOrder
	} else if d < 0 {
		if r.answers.duplicate(p, info.Operation) {
			r.answers.addAgain(p, info.Operation, r.exec.executeAgain(p, info.Operation))
		}
		return conn.DropDuplicate
	}
	if crossesAge(psn, 1) && !r.age(1) {
		return r.fail(outcome{verdict: busy})
	}
	r.gap.close()
	if !r.exec.admits(p, info) {
		return r.fail(invalidRequest())
	}
	if r.answers.flushing > 0 && info.Operation != rocev2.OpFlush && info.Operation != rocev2.OpReadRequest {
		return r.fail(outcome{verdict: busy})
	}
	var o outcome
	switch info.Operation {
	case rocev2.OpSend:
		o = r.exec.send(p, info)
	case rocev2.OpWrite:
		o = r.exec.write(p, info)
	default:
		return r.answer(p, info.Operation)
	}
	if o.verdict > ended {
		return r.fail(o)
	}
	r.answers.moveOn(1, o.verdict == ended)
	if p.BTH.AckReq { // IBTA 9.7.5.1
		r.answers.acknowledge(psn)
	}
	return conn.DropNone
}

// answer executes a request that has an answer of its own: a READ, an atomic,
// an ATOMIC WRITE or a FLUSH.
func (r *Responder) answer(p *rocev2.Packet, op rocev2.Operation) conn.Drop {
	if r.answers.res.depth == 0 || !wellFormed(p, op) {
		return r.fail(invalidRequest())
	}
	psns := uint32(1)
	if op == rocev2.OpReadRequest {
		psns = r.exec.c.PSNs(p.RETH.Length)
	}
	if r.answers.busy() || crossesAge(p.BTH.PSN, psns) && !r.age(psns) {
		return r.fail(outcome{verdict: busy})
	}
	value, o := r.exec.execute(p, op)
	if o.verdict != executed {
		return r.fail(o)
	}
	r.answers.add(p, op, psns, value)
	return conn.DropNone
}

// fail takes a request that was not executed. What follows it on the wire gets
// no NAK of its own.
func (r *Responder) fail(o outcome) conn.Drop {
	switch o.verdict {
	case notReady: // the peer sends everything again later (RNR NAK, IBTA 9.7.5.2.8)
		r.gap.silence()
		r.answers.nak(rocev2.SyndromeRNR(r.exec.c.Attr.MinRNRTimer), false)
		return conn.DropRNR
	case notPresent: // it is asked for when the page is there
		r.gap.asked(r.answers.epsn)
		return conn.DropNotPresent
	case busy: // it is asked for after the answers that wait
		r.gap.asked(r.answers.epsn)
		r.answers.nak(rocev2.NAKSequence, false)
		return conn.DropRdAtomic
	}
	r.refuse(r.answers.epsn, o)
	return conn.DropInvalid
}

// refuse ends the connection because of the request that begins at psn: NAK,
// completion of the receive in hand, event, ERR.
func (r *Responder) refuse(psn rocev2.PSN, o outcome) {
	r.answers.end(psn, o.syndrome, true)
	r.exec.abort(o)
}

// age has what is kept by PSN forgotten in time, before the expected one moves
// on by n. It returns false if that may not be yet.
func (r *Responder) age(n uint32) bool {
	aged := r.answers.age(n)
	if aged {
		r.dropped.forget()
	}
	return aged
}

// handleKept goes on with what is kept after a gap, as far as it follows
// without another one. The next gap gets its NAK at once: the peer went back no
// further than to the last one.
func (r *Responder) handleKept(now clock.Time) {
	executed := false
	for !r.answers.full() {
		p, more := r.gap.next(r.answers.epsn)
		if !more {
			break
		}
		if p != nil {
			info, _ := p.BTH.Opcode.Info()
			if r.handle(p, info) == conn.DropRdAtomic {
				r.exec.c.Stats.Result(conn.DropRdAtomic)
			}
			executed = true
			if r.exec.c.Failed() {
				return
			}
		}
		r.gap.pop()
	}
	if psn, ask := r.gap.settle(executed, r.answers.epsn); ask && !r.answers.full() {
		r.ask(now, psn)
	}
}

// ask asks for the expected packet, because psn came. A native peer is asked
// twice: it sends so little again that nothing shows the loss of the NAK, and
// takes both for one. Nothing is asked for whose page is on its way.
func (r *Responder) ask(now clock.Time, psn rocev2.PSN) {
	if !r.exec.awaits(r.answers.epsn) && r.gap.asks(now, r.answers.epsn, psn) {
		r.answers.nak(rocev2.NAKSequence, r.gap.holds())
	}
}
