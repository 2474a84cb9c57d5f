package responder

import (
	"github.com/gosoftroce/rocev2/clock"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp/cc"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/rocev2"
)

// answerer has what was executed, as far as the peer may ask for it again, and
// sends the answers.
type answerer struct {
	c        *conn.Conn
	receives conn.Receives
	xrc      *target // nil: not an XRC target
	fetch    conn.Fetches
	ticket   uint32 // of the last FLUSH that was begun
	paced    bool   // the answer to a READ waits for Limit.NotBefore
	yields   bool   // READs have had the last burst: the next one is for requests, if there are any
	answers
}

// answers is the state of an answerer, which a reset clears.
type answers struct {
	epsn         rocev2.PSN // expected
	msn          rocev2.PSN // messages completed
	lastAck      rocev2.PSN // the latest SEND or WRITE packet executed
	firstUnacked rocev2.PSN
	acked        bool       // lastAck is set
	unacked      bool       // nothing that was sent acknowledges what lies from firstUnacked to lastAck
	taken        bool       // a message since the last acknowledgement has taken a receive of the queue pair's own
	told         rocev2.PSN // the last message that the peer may send by the credits that it has

	res       resources
	out       responses
	addresses *addresses // of FLUSHes and ATOMIC WRITEs that were dropped, nil if none was
	flushing  uint32     // FLUSHes among what waits that are not done: nothing that writes may pass them
	fatal     fatalNAK
}

// Resize takes another max_dest_rd_atomic. No answer may wait.
func (r *answerer) Resize(depth int) {
	r.res.resize(depth)
	r.out.resize(int(r.res.depth))
}

// ExpectedPSN returns the PSN that is expected next.
func (r *answerer) ExpectedPSN() rocev2.PSN { return r.epsn }

// Waiting reports whether any answer waits to be sent.
func (r *answerer) Waiting() bool { return !r.out.empty() }

// Pressing reports whether an answer other than a lone acknowledgement waits to
// be sent.
func (r *answerer) Pressing() bool {
	n := r.out.tail - r.out.head
	return n > 1 || n == 1 && r.out.at(r.out.head).kind != responseAck
}

// AckDelayed reports whether all that waits is an acknowledgement, which waits
// on if delay is set, unless the peer can send nothing before it comes.
func (r *answerer) AckDelayed(delay bool) bool {
	return delay && !starving(r) && r.out.tail-r.out.head == 1 && r.out.at(r.out.head).kind == responseAck
}

// pollNext writes the next answer: one packet, or a run of a READ's. It returns
// false if nothing can be sent. The rate is for the data of READs alone.
func (r *answerer) pollNext(now clock.Time, buf []byte, out *conn.Output) bool {
	for !r.out.empty() {
		e := r.out.at(r.out.head)
		switch e.kind {
		case responseAck, responseNAK, responseAtomic, responseEmpty:
			r.out.head++
			out.Commit(r.buildShort(e, buf))
			return true
		case responseRead:
			if r.c.CC.Limit.Burst > 0 && holdsBack(r, now) {
				return false
			}
			if n := runLength(r, e, out); n > 1 {
				if n = r.writeRun(e, n, out); n > 0 {
					spent(r, now, n)
					return true
				}
			}
			n, f := r.buildReadResponse(e, buf)
			if f == ib.FaultNone {
				out.Commit(n)
				spent(r, now, 1)
				return true
			}
			if f == ib.FaultNotPresent {
				r.awaitAnswer(e)
				return false
			}
			r.refuseAnswer(e, f)
		case responseFlush:
			f := r.persist(e)
			if f == ib.FaultNotPresent {
				return false
			}
			r.refuseAnswer(e, f)
		default:
			r.out.head++
		}
	}
	return false
}

// runLength returns how many packets of a READ's answer may be written at once;
// 1 or less is no run.
func runLength(r *answerer, e *response, out *conn.Output) int {
	if e.psn == e.start {
		return 1
	}
	n := min(out.Left(), int(e.left)-1)
	if burst := r.c.CC.Limit.Burst; burst > 0 {
		n = min(n, burst/(r.c.MTU+cc.PacketOverhead))
	}
	return n
}

// holdsBack reports whether the answer to a READ has to wait for the rate, or
// for the requests, whose turn it is.
func holdsBack(r *answerer, now clock.Time) bool {
	r.paced = r.c.Waits(now, r.paced)
	return r.paced || r.yields
}

// spent tells congestion control of so many packets of a READ's answer, where
// it asks for that. When they have used up the burst, the next one is for
// requests.
func spent(r *answerer, now clock.Time, packets int) {
	if g := &r.c.CC; g.Limit.Burst > 0 {
		r.c.Spent(now, packets*(r.c.MTU+cc.PacketOverhead), packets)
		r.yields = g.Limit.NotBefore > now
	}
}

// buildShort writes an answer of one packet without a payload.
func (r *answerer) buildShort(e *response, buf []byte) int {
	switch e.kind {
	case responseAck:
		r.acknowledges(e.psn)
		r.c.Stats.AcksSent++
		return r.buildAck(buf, rocev2.RCAcknowledge, e.psn, r.ack(e.msn))
	case responseNAK:
		r.acknowledges(e.psn.Add(-1))
		r.countSentNAK(e.syndrome)
		return r.buildAck(buf, rocev2.RCAcknowledge, e.psn, rocev2.AETH{Syndrome: e.syndrome, MSN: e.msn})
	}
	res := r.res.at(e.res)
	res.pending = pendingNone
	r.acknowledges(e.psn)
	a := r.ack(e.msn)
	if e.kind == responseEmpty {
		return r.buildAck(buf, rocev2.RCReadResponseOnly, e.psn, a)
	}
	n := r.buildAck(buf, rocev2.RCAtomicAcknowledge, e.psn, a)
	ack := rocev2.AtomicAckETH{Original: res.value}
	return len(ack.AppendTo(buf[:n]))
}

// refuseAnswer ends the answer to a READ or FLUSH whose memory has a fault. If
// it is the first one, the connection ends; a duplicate gets a NAK in its turn.
func (r *answerer) refuseAnswer(e *response, f ib.Fault) {
	s, status := faultNAK(f)
	res := r.res.at(e.res)
	if res.pending == pendingFirst {
		r.refuseFrom(res.first, s, status, f)
		return
	}
	if !e.part {
		res.pending = pendingNone
	}
	*e = response{kind: responseNAK, syndrome: s, psn: e.psn, msn: e.msn}
}

// writeRun writes up to n packets in the middle of the answer to a READ, and
// returns how many. What is asked for each packet is asked once for all.
func (r *answerer) writeRun(e *response, n int, out *conn.Output) int {
	res := r.res.at(e.res)
	off := uint64(e.psn.Ahead(res.first)) << r.c.Shift
	v, f := r.c.Memory.Resolve(r.domainOf(res.srqn), r.c.QPN, ib.Key(res.rkey), res.va+off, uint64(n)<<r.c.Shift, ib.RemoteRead)
	if f != ib.FaultNone {
		return 0
	}
	n = r.c.WriteRun(out, &conn.Run{Op: rocev2.RCReadResponseMiddle, PSN: e.psn, N: n, View: v})
	v.Release()
	r.c.Stats.TxBytes += uint64(n) << r.c.Shift
	e.psn = e.psn.Add(n)
	e.left -= uint32(n)
	return n
}

// ack returns an acknowledgement of the messages before and up to msn, with the
// number of receives posted as credits, if that is known (IBTA 9.7.7.2). The
// receive of a message under way counts too: to the peer that message has the
// number MSN + 1.
func (r *answerer) ack(msn rocev2.PSN) rocev2.AETH {
	r.taken = false
	if r.receives.Shared {
		return rocev2.AETH{Syndrome: rocev2.ACKNoCredits, MSN: msn}
	}
	n := r.receives.Own.Len()
	if r.receives.Held {
		n++
	}
	a := rocev2.AETH{Syndrome: rocev2.SyndromeACK(rocev2.CreditCode(n)), MSN: msn}
	n, _ = a.Syndrome.Credits()
	r.told = msn.Add(n)
	return a
}

// starving reports whether the peer has taken all the receives that it knows
// of, and there are more.
func starving(r *answerer) bool {
	return r.taken && !r.msn.Before(r.told) && r.receives.Own.Len() > 0
}

// countSentNAK counts a NAK under its code.
func (r *answerer) countSentNAK(s rocev2.Syndrome) {
	st := r.c.Stats.Rare()
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
func (r *answerer) buildAck(buf []byte, op rocev2.Opcode, psn rocev2.PSN, a rocev2.AETH) int {
	h := r.c.BTH(op, psn)
	return len(a.AppendTo(h.AppendTo(buf[:0])))
}

// buildReadResponse writes the next packet of a READ's answer and moves on. The
// first and the last packet have an AETH (IBTA 9.2.1). The key is looked up
// again for each: the region may be gone.
func (r *answerer) buildReadResponse(e *response, buf []byte) (int, ib.Fault) {
	res := r.res.at(e.res)
	off := e.psn.Ahead(res.first) << r.c.Shift
	n := min(e.end-off, uint32(r.c.MTU))
	first, last := e.psn == e.start, e.left == 1
	op := rocev2.RCReadResponseMiddle
	switch {
	case first && last:
		op = rocev2.RCReadResponseOnly
	case first:
		op = rocev2.RCReadResponseFirst
	case last:
		op = rocev2.RCReadResponseLast
	}
	h := r.c.BTH(op, e.psn)
	h.PadCount = rocev2.PadCount(int(n))
	b := h.AppendTo(buf[:0])
	if first || last {
		a := r.ack(e.msn)
		b = a.AppendTo(b)
	}
	if n > 0 {
		at, end := len(b), len(b)+int(n)
		b = b[:end+int(h.PadCount)]
		clear(b[end:])
		v, f := r.c.Memory.Resolve(r.domainOf(res.srqn), r.c.QPN, ib.Key(res.rkey), res.va+uint64(off), uint64(n), ib.RemoteRead)
		if f != ib.FaultNone {
			return 0, f
		}
		f = v.CopyOut(b[at:end], 0)
		v.Release()
		if f != ib.FaultNone {
			return 0, f
		}
	}
	r.c.Stats.TxBytes += uint64(n)
	r.acknowledges(e.psn)
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

// checkRead checks the whole range of a READ. An empty one may have any key
// (IBTA 9.7.4.1.5).
func (r *answerer) checkRead(h *rocev2.RETH, pd *memreg.PD) ib.Fault {
	if h.Length == 0 {
		return ib.FaultNone
	}
	v, f := r.c.Memory.Resolve(pd, r.c.QPN, ib.Key(h.RKey), h.VA, uint64(h.Length), ib.RemoteRead)
	if f == ib.FaultNone {
		v.Release()
	}
	return f
}

// awaitAnswer has a READ's answer wait.
func (r *answerer) awaitAnswer(e *response) {
	if r.fetch.Pending(conn.NeedAnswer) {
		return
	}
	res := r.res.at(e.res)
	off := e.psn.Ahead(res.first) << r.c.Shift
	var m memreg.Missing
	v, f := r.c.Memory.Resolve(r.domainOf(res.srqn), r.c.QPN, ib.Key(res.rkey), res.va+uint64(off), uint64(e.end-off), ib.RemoteRead)
	if f == ib.FaultNone {
		m = v.Missing(0, uint64(min(e.end-off, uint32(r.c.MTU))), false)
		v.Release()
	}
	r.fetch.Add(conn.NeedAnswer, m)
}
