package qp

import (
	"encoding/binary"

	"github.com/gosoftroce/rocev2/clock"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/rocev2"
)

// PacketWriter takes packets one after the other.
type PacketWriter interface {
	// Room returns at least rocev2.MaxPacketLen bytes to write the next packet to, or nil when it takes no more.
	Room() []byte
	// Commit says that Room holds a packet of n bytes, BTH to pad, without ICRC.
	Commit(n int)
}

// PollBurst is PollTransmit for the middle of a long message, of which most packets are: it writes at most limit of them
// and returns how many. They differ in PSN and payload only, so that what PollTransmit asks for each packet is asked once
// for all of them. Whatever is special, the first and the last packet, one that asks for an acknowledgement, a
// retransmission, a fault, is left to PollTransmit, as are all other packets: 0 means no more than that it is its turn.
func (q *QP) PollBurst(now clock.Time, limit int, out PacketWriter) int {
	if q.notice.due {
		return 0
	}
	if q.resp.out.head != q.resp.out.tail && !q.AckDelayed() {
		return q.burstResponse(limit, out)
	}
	return q.burstRequest(now, limit, out)
}

// burstLeast is from how many packets on a burst is worth its preparation.
const burstLeast = 2

// train is packets that differ in PSN and payload only, all of them of the path MTU.
type train struct {
	op   rocev2.Opcode
	psn  rocev2.PSN
	n    int
	view memreg.View
	off  uint64 // of the first payload in the view
}

// burstRequest writes the middle packets of a SEND or WRITE.
func (q *QP) burstRequest(now clock.Time, limit int, out PacketWriter) int {
	r := &q.req
	if q.state != ib.StateRTS || r.cur == r.started || r.nxt != r.max || r.repair.left > 0 || r.rnr.waiting || r.paging {
		return 0
	}
	w := r.queue.at(r.cur)
	rel := ahead(r.nxt, w.first)
	if !w.opcode.Is(ib.OpCarries) || w.status != ib.StatusSuccess || rel == 0 || w.flags&flagInline != 0 || w.nsge != 1 {
		return 0
	}
	if w.consumesRecv() && !r.credit.allows(w.ssn) {
		return 0
	}
	// The last one that the window or the driver admits asks for an acknowledgement, and so does one now and then.
	size := q.packet()
	n := min(limit, int(w.psns-rel)-1, r.window.room(r.posNxt-r.posUna, ahead(r.nxt, r.una), size)-1,
		int(r.window.ackInterval(size))-1-int(r.sinceAck), (r.allowance-1)/size)
	if n < burstLeast {
		return 0
	}
	sge := r.queue.list(r.cur, w)[0]
	v, f := q.cfg.Memory.ResolveLocal(q.cfg.PD, sge, 0)
	if f != ib.FaultNone {
		return 0
	}
	n = q.writeBurst(out, train{op: wireOpcodes[w.opcode][placeMiddle], psn: r.nxt, n: n, view: v, off: uint64(rel) << q.mtuShift})
	v.Release()
	r.nxt = r.nxt.Add(n)
	r.max = r.nxt
	r.posNxt += uint64(n * size)
	r.allowance -= n * size
	r.sinceAck += uint32(n)
	r.stalled = r.stalled && (n == 0 || !r.credit.limited)
	if n > 0 && !r.retry.armed {
		r.retry.start(now)
		r.rtt.arm(now)
	}
	return n
}

// burstResponse writes the middle packets of the answer to a READ.
func (q *QP) burstResponse(limit int, out PacketWriter) int {
	r := &q.resp
	if r.out.empty() {
		return 0
	}
	e := r.out.at(r.out.head)
	if e.kind != responseRead || e.psn == e.start {
		return 0
	}
	n := min(limit, int(e.left)-1)
	if n < burstLeast {
		return 0
	}
	res := r.res.at(e.res)
	off := uint64(ahead(e.psn, res.first)) << q.mtuShift
	v, f := q.cfg.Memory.Resolve(q.cfg.PD, q.cfg.QPN, ib.Key(res.rkey), res.va+off, uint64(n)<<q.mtuShift, ib.RemoteRead)
	if f != ib.FaultNone {
		return 0
	}
	n = q.writeBurst(out, train{op: rocev2.RCReadResponseMiddle, psn: e.psn, n: n, view: v})
	v.Release()
	e.psn = e.psn.Add(n)
	e.left -= uint32(n)
	return n
}

// writeBurst writes packets until there are enough, no more room, or a fault, and returns how many.
func (q *QP) writeBurst(out PacketWriter, t train) int {
	h := rocev2.BTH{Opcode: t.op, PKey: rocev2.DefaultPKey, DestQPN: q.attr.DestQPN}
	var head [rocev2.BTHLen]byte
	h.AppendTo(head[:0])
	end := rocev2.BTHLen + q.mtu
	n := 0
	for ; n < t.n; n++ {
		buf := out.Room()
		if buf == nil {
			break
		}
		copy(buf, head[:])
		binary.BigEndian.PutUint32(buf[psnOffset:], uint32(t.psn.Add(n)))
		if t.view.CopyOut(buf[rocev2.BTHLen:end], t.off+uint64(n)<<q.mtuShift) != ib.FaultNone {
			break
		}
		out.Commit(end)
	}
	q.stats.TxPackets += uint64(n)
	q.stats.TxBytes += uint64(n) << q.mtuShift
	return n
}

// psnOffset is where the word with AckReq, 0 here, and the PSN begins in a BTH.
const psnOffset = 8
