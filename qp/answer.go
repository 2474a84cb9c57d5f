package qp

import (
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
)

// pollResponse writes the next answer.
func (q *QP) pollResponse(buf []byte) int {
	r := &q.resp
	for !r.out.empty() {
		e := r.out.at(r.out.head)
		switch e.kind {
		case responseAck:
			r.out.head++
			r.say(e.psn)
			q.stats.AcksSent++
			return q.buildAck(buf, rocev2.RCAcknowledge, e.psn, rocev2.AETH{Syndrome: q.ackSyndrome(), MSN: e.msn})
		case responseNAK:
			r.out.head++
			r.say(e.psn.Add(-1))
			q.countSentNAK(e.syndrome)
			return q.buildAck(buf, rocev2.RCAcknowledge, e.psn, rocev2.AETH{Syndrome: e.syndrome, MSN: e.msn})
		case responseAtomic:
			res := r.res.at(e.res)
			res.pending = pendingNone
			r.out.head++
			r.say(e.psn)
			n := q.buildAck(buf, rocev2.RCAtomicAcknowledge, e.psn, rocev2.AETH{Syndrome: q.ackSyndrome(), MSN: e.msn})
			ack := rocev2.AtomicAckETH{Original: res.value}
			return len(ack.AppendTo(buf[:n]))
		case responseRead:
			n, f := q.buildReadResponse(e, buf)
			if f == ib.FaultNone {
				return n
			}
			if f == ib.FaultNotPresent {
				q.awaitAnswer(e)
				return 0
			}
			s, status := faultNAK(f)
			if res := r.res.at(e.res); res.pending == pendingFirst {
				q.refuseFrom(res.first, s, status, f)
				continue
			} else if !e.part {
				res.pending = pendingNone
			}
			*e = response{kind: responseNAK, syndrome: s, psn: e.psn, msn: e.msn}
		default:
			r.out.head++
		}
	}
	return 0
}

// ackSyndrome is an ACK with the number of receives posted, if that is known: also those of a message under way count,
// which the peer numbers MSN + 1.
func (q *QP) ackSyndrome() rocev2.Syndrome {
	r := &q.resp
	if q.cfg.RecvSource != nil {
		return rocev2.ACKNoCredits
	}
	n := r.queue.len()
	if r.held {
		n++
	}
	return rocev2.SyndromeACK(rocev2.CreditCode(n))
}

func (q *QP) countSentNAK(s rocev2.Syndrome) {
	st := &q.stats
	switch {
	case s.IsRNR():
		st.RNRSent++
	case s == rocev2.NAKSequence:
		st.NAKSeqSent++
	case s == rocev2.NAKInvalidRequest:
		st.NAKInvalidSent++
	case s == rocev2.NAKRemoteAccess:
		st.NAKAccessSent++
	default:
		st.NAKOpSent++
	}
}

// buildAck writes BTH and AETH.
func (q *QP) buildAck(buf []byte, op rocev2.Opcode, psn rocev2.PSN, a rocev2.AETH) int {
	h := rocev2.BTH{Opcode: op, PKey: rocev2.DefaultPKey, DestQPN: q.attr.DestQPN, PSN: psn}
	return len(a.AppendTo(h.AppendTo(buf[:0])))
}

// buildReadResponse writes the next packet of a READ's answer and moves on. The key is looked up again for each: the
// region may be gone.
func (q *QP) buildReadResponse(e *response, buf []byte) (int, ib.Fault) {
	r := &q.resp
	res := r.res.at(e.res)
	off := ahead(e.psn, res.first) << q.mtuShift
	n := min(e.end-off, uint32(q.mtu))
	h := rocev2.BTH{PKey: rocev2.DefaultPKey, DestQPN: q.attr.DestQPN, PSN: e.psn, PadCount: rocev2.PadCount(int(n))}
	first, last := e.psn == e.start, e.left == 1
	switch {
	case first && last:
		h.Opcode = rocev2.RCReadResponseOnly
	case first:
		h.Opcode = rocev2.RCReadResponseFirst
	case last:
		h.Opcode = rocev2.RCReadResponseLast
	default:
		h.Opcode = rocev2.RCReadResponseMiddle
	}
	b := h.AppendTo(buf[:0])
	if first || last {
		a := rocev2.AETH{Syndrome: q.ackSyndrome(), MSN: e.msn}
		b = a.AppendTo(b)
	}
	if n > 0 {
		at, end := len(b), len(b)+int(n)
		b = b[:end+int(h.PadCount)]
		clear(b[end:])
		v, f := q.cfg.Memory.Resolve(q.cfg.PD, q.cfg.QPN, ib.Key(res.rkey), res.va+uint64(off), uint64(n), ib.RemoteRead)
		if f != ib.FaultNone {
			return 0, f
		}
		f = v.CopyOut(b[at:end], 0)
		v.Release()
		if f != ib.FaultNone {
			return 0, f
		}
	}
	q.stats.TxBytes += uint64(n)
	r.say(e.psn)
	e.psn = e.psn.Next()
	e.left--
	if last {
		if !e.part {
			res.pending = pendingNone
		}
		r.out.head++
	}
	return len(b), ib.FaultNone
}
