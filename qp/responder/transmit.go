package responder

import (
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp/cc"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// transmitter writes the answers: it takes them from the queue, and the data of
// READs from memory. The rate is for that data alone.
type transmitter struct {
	answers *answers
	exec    *executor
	fetch   conn.Fetches
	ticket  uint32 // of the last FLUSH that was begun
	paced   bool   // the answer to a READ waits for Limit.NotBefore
	yields  bool   // READs have had the last burst: the next one is for requests, if there are any
}

// acknowledged says that all was acknowledged that was executed.
func (t *transmitter) acknowledged() { t.answers.acknowledged(t.answers.epsn.Add(-1)) }

// first returns where the request begins that the first answer is to.
func (t *transmitter) first() rocev2.PSN { return t.answers.of(t.answers.first()).first }

// next writes the next answer: one packet, or a run of a READ's. It returns
// false if nothing can be sent. A fault ends the connection.
func (t *transmitter) next(now clock.Time, buf []byte, out *conn.Output) (wrote bool, f ib.Fault) {
	for !t.answers.queue.empty() {
		e := t.answers.first()
		switch e.kind {
		case responseAck, responseNAK, responseAtomic, responseEmpty:
			out.Commit(t.writeShort(e, buf), nil, conn.OrdinaryPacket)
			return true, ib.FaultNone
		case responseRead:
			wrote, f = t.writeData(now, e, buf, out)
			if wrote {
				return true, ib.FaultNone
			}
		case responseFlush:
			f = t.persist(e)
		default:
			t.answers.sent(0)
			continue
		}
		if f == ib.FaultNone || f == ib.FaultNotPresent {
			return false, ib.FaultNone
		}
		if !t.answers.fail(refuseFault(f).syndrome) {
			return false, f
		}
	}
	return false, ib.FaultNone
}

// writeShort writes the first answer, which is one packet without a payload.
func (t *transmitter) writeShort(e *response, buf []byte) int {
	t.answers.sent(1)
	if e.kind == responseNAK {
		t.answers.acknowledged(e.psn.Add(-1))
		countNAK(&t.exec.c.Stats, e.syndrome)
		return t.writeAck(buf, rocev2.RCAcknowledge, e.psn, rocev2.AETH{Syndrome: e.syndrome, MSN: e.msn})
	}
	t.answers.acknowledged(e.psn)
	a := t.exec.credits(e.msn)
	switch e.kind {
	case responseAck:
		t.exec.c.Stats.AcksSent++
		return t.writeAck(buf, rocev2.RCAcknowledge, e.psn, a)
	case responseEmpty:
		return t.writeAck(buf, rocev2.RCReadResponseOnly, e.psn, a)
	}
	n := t.writeAck(buf, rocev2.RCAtomicAcknowledge, e.psn, a)
	ack := rocev2.AtomicAckETH{Original: t.answers.of(e).value}
	return len(ack.AppendTo(buf[:n]))
}

// writeAck writes BTH and AETH.
func (t *transmitter) writeAck(buf []byte, op rocev2.Opcode, psn rocev2.PSN, a rocev2.AETH) int {
	h := t.exec.c.BTH(op, psn)
	return len(a.AppendTo(h.AppendTo(buf[:0])))
}

// countNAK counts a NAK under its code.
func countNAK(tally *conn.Tally, s rocev2.Syndrome) {
	st := tally.Rare()
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

// writeData writes what it may of the answer to a READ: a run of packets, or
// the next one. It writes none while that has to wait, or if there is a fault.
func (t *transmitter) writeData(now clock.Time, e *response, buf []byte, out *conn.Output) (wrote bool, f ib.Fault) {
	if t.exec.c.CC.Limit.Burst > 0 && t.holdsBack(now) {
		return false, ib.FaultNone
	}
	if n := t.runLength(e, out); n > 1 {
		if n = t.writeRun(e, n, out); n > 0 {
			t.spent(now, n)
			return true, ib.FaultNone
		}
	}
	n, f := t.writeResponse(e, buf)
	switch f {
	case ib.FaultNone:
		out.Commit(n, nil, conn.OrdinaryPacket)
		t.spent(now, 1)
		return true, ib.FaultNone
	case ib.FaultNotPresent:
		t.awaitPage(e)
	}
	return false, f
}

// holdsBack reports whether the answer to a READ has to wait for the rate, or
// for the requests, whose turn it is.
func (t *transmitter) holdsBack(now clock.Time) bool {
	t.paced = t.exec.c.Waits(now, t.paced)
	return t.paced || t.yields
}

// spent tells congestion control of so many packets of a READ's answer, where
// it asks for that. When they have used up the burst, the next one is for
// requests.
func (t *transmitter) spent(now clock.Time, packets int) {
	if c := t.exec.c; c.CC.Limit.Burst > 0 {
		c.Spent(now, packets*(c.MTU+cc.PacketOverhead), packets)
		t.yields = c.CC.Limit.NotBefore > now
	}
}

// runLength returns how many packets of a READ's answer may be written at once;
// 1 or less is no run.
func (t *transmitter) runLength(e *response, out *conn.Output) int {
	if e.psn == e.start {
		return 1
	}
	c := t.exec.c
	n := min(out.Left(), int(e.left)-1)
	if burst := c.CC.Limit.Burst; burst > 0 {
		n = min(n, burst/(c.MTU+cc.PacketOverhead))
	}
	return n
}

// data returns n bytes of the memory that an answer reads, from its next packet
// on. The key is looked up again each time: the region may be gone.
func (t *transmitter) data(e *response, n uint64) (memreg.View, ib.Fault) {
	res := t.answers.of(e)
	off := uint64(e.psn.Ahead(res.first)) << t.exec.c.Shift
	return t.exec.data(res.srqn, ib.Key(res.rkey), res.va+off, n)
}

// left returns how many bytes of an answer are left, and those of its next
// packet.
func (t *transmitter) left(e *response) (bytes, next uint32) {
	bytes = e.end - e.psn.Ahead(t.answers.of(e).first)<<t.exec.c.Shift
	return bytes, min(bytes, uint32(t.exec.c.MTU))
}

// writeRun writes up to n packets in the middle of the answer to a READ, and
// returns how many. What is asked for each packet is asked once for all.
func (t *transmitter) writeRun(e *response, n int, out *conn.Output) int {
	c := t.exec.c
	v, f := t.data(e, uint64(n)<<c.Shift)
	if f != ib.FaultNone {
		return 0
	}
	n = c.WriteRun(out, &conn.Run{Op: rocev2.RCReadResponseMiddle, PSN: e.psn, N: n, View: v})
	v.Release()
	c.Stats.TxBytes += uint64(n) << c.Shift
	t.answers.sent(n)
	return n
}

// writeResponse writes the next packet of a READ's answer. The first and the
// last packet have an AETH (IBTA 9.2.1).
func (t *transmitter) writeResponse(e *response, buf []byte) (int, ib.Fault) {
	_, n := t.left(e)
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
	h := t.exec.c.BTH(op, e.psn)
	h.PadCount = rocev2.PadCount(int(n))
	b := h.AppendTo(buf[:0])
	if first || last {
		a := t.exec.credits(e.msn)
		b = a.AppendTo(b)
	}
	if n > 0 {
		at, end := len(b), len(b)+int(n)
		b = b[:end+int(h.PadCount)]
		clear(b[end:])
		v, f := t.data(e, uint64(n))
		if f != ib.FaultNone {
			return 0, f
		}
		f = v.CopyOut(b[at:end], 0)
		v.Release()
		if f != ib.FaultNone {
			return 0, f
		}
	}
	t.exec.c.Stats.TxBytes += uint64(n)
	t.answers.acknowledged(e.psn)
	t.answers.sent(1)
	return len(b), ib.FaultNone
}

// handleTimeout looks whether the rate lets answers go on.
func (t *transmitter) handleTimeout(now clock.Time) {
	t.paced = t.paced && now < t.exec.c.CC.Limit.NotBefore
}

// resume has the answers to READs go on after requests.
func (t *transmitter) resume() { t.yields = false }

// stop waits for no memory and no rate any more.
func (t *transmitter) stop() { t.fetch, t.paced, t.yields = conn.Fetches{}, false, false }
