package qp

import (
	"encoding/binary"

	"github.com/gosoftroce/rocev2/clock"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
)

// Places of a packet in its message.
const (
	placeMiddle = 0
	placeFirst  = 1
	placeLast   = 2
	placeOnly   = placeFirst | placeLast
)

// wireOpcodes has the opcode of each packet of a request by its place.
var wireOpcodes = [ib.NumOpcodes][4]rocev2.Opcode{
	ib.OpSend:     {rocev2.RCSendMiddle, rocev2.RCSendFirst, rocev2.RCSendLast, rocev2.RCSendOnly},
	ib.OpSendImm:  {rocev2.RCSendMiddle, rocev2.RCSendFirst, rocev2.RCSendLastImm, rocev2.RCSendOnlyImm},
	ib.OpSendInv:  {rocev2.RCSendMiddle, rocev2.RCSendFirst, rocev2.RCSendLastInv, rocev2.RCSendOnlyInv},
	ib.OpWrite:    {rocev2.RCWriteMiddle, rocev2.RCWriteFirst, rocev2.RCWriteLast, rocev2.RCWriteOnly},
	ib.OpWriteImm: {rocev2.RCWriteMiddle, rocev2.RCWriteFirst, rocev2.RCWriteLastImm, rocev2.RCWriteOnlyImm},
	ib.OpRead: {rocev2.RCReadRequest, rocev2.RCReadRequest, rocev2.RCReadRequest,
		rocev2.RCReadRequest},
	ib.OpCompareSwap: {placeOnly: rocev2.RCCompareSwap},
	ib.OpFetchAdd:    {placeOnly: rocev2.RCFetchAdd},
}

// request is a request packet to be: PSNs and bytes of the message from number rel and byte off on.
type request struct {
	w    *sendWQE
	rel  uint32
	off  uint32
	psns uint32 // PSNs that the packet takes: more than one for a READ
	n    uint32 // bytes that it carries or asks for
	cost uint64
	ack  bool // AckReq
}

// pollRequest writes the packet at the cursor, if it may be sent now.
func (q *QP) pollRequest(now clock.Time, buf []byte) int {
	r := &q.req
	if r.repair.left > 0 && !r.rnr.waiting && !r.paging {
		if n := q.pollRepair(now, buf); n > 0 {
			return n
		}
	}
	if r.cur == r.queue.tail || r.allowance <= 0 || r.rnr.waiting || r.paging || (q.state == ib.StateSQD && r.cur == r.started) {
		return 0
	}
	w := r.queue.at(r.cur)
	if r.cur == r.started {
		w.first, w.pos, w.psns = r.max, r.posNxt, max(1, (w.length+uint32(q.mtu)-1)>>q.mtuShift)
		w.ssn = r.ssn.Add(int(r.messages(w)))
	}
	rq := q.requestAt(w)
	if w.status != ib.StatusSuccess || !q.mayStart(&rq) {
		return 0
	}
	n, fault := q.buildRequest(&rq, buf)
	if fault == ib.FaultNotPresent {
		return 0
	}
	if fault != ib.FaultNone {
		q.localFault(w, ib.StatusLocProtErr, faultDetail(fault))
		return 0
	}
	q.sent(now, &rq)
	return n
}

// messages is how many messages a request is to the peer: a READ may be several.
func (r *requester) messages(w *sendWQE) uint32 {
	if w.opcode != ib.OpRead {
		return 1
	}
	return (w.psns + r.chunk - 1) / r.chunk
}

func (q *QP) requestAt(w *sendWQE) request {
	r := &q.req
	rq := request{w: w, rel: ahead(r.nxt, w.first), psns: 1}
	rq.off = rq.rel << q.mtuShift
	rq.n = w.length - rq.off
	if w.opcode == ib.OpRead {
		end := r.chunkEnd(w, rq.rel)
		rq.psns = end - rq.rel
		if end < w.psns {
			rq.n = rq.psns << q.mtuShift
		}
	} else {
		rq.n = min(rq.n, uint32(q.mtu))
	}
	rq.cost = uint64(rq.n) + uint64(rq.psns)*PacketOverhead
	return rq
}

// NextCost returns the bytes that the request at the cursor counts in the window, for a READ those that it asks for; 0 if
// there is none.
func (q *QP) NextCost() int {
	r := &q.req
	if r.cur == r.queue.tail {
		return 0
	}
	w := r.queue.at(r.cur)
	n, begun := uint64(w.length), r.cur != r.started
	if begun {
		n -= uint64(ahead(r.nxt, w.first)) << q.mtuShift
	}
	psns := uint64(1)
	switch {
	case w.opcode == ib.OpRead && begun:
		psns = uint64(r.chunkEnd(w, ahead(r.nxt, w.first)) - ahead(r.nxt, w.first))
	case w.opcode == ib.OpRead:
		psns = min(uint64(q.psnsFor(w.length)), uint64(r.chunk))
	}
	return int(min(min(n, psns<<q.mtuShift)+psns*PacketOverhead, mostCounted))
}

// mayStart checks the window, the depth of READs and atomics, fences and credits.
func (q *QP) mayStart(rq *request) bool {
	r, w := &q.req, rq.w
	inFlight := ahead(r.nxt, r.una)
	if !r.window.admits(r.posNxt-r.posUna, inFlight, rq.cost, rq.psns) {
		return false
	}
	if w.answered() {
		if q.attr.MaxRdAtomic == 0 { // lowered in SQD after the request was posted
			q.localFault(w, ib.StatusLocQPOpErr, 0)
			return false
		}
		if r.rd >= uint32(q.attr.MaxRdAtomic) {
			return false
		}
	}
	if rq.rel == 0 && w.flags&flagFence != 0 && r.rd > 0 {
		return false
	}
	return !r.credit.limited || q.mayProbe(rq, inFlight)
}

// mayProbe decides for a message beyond the peer's credits: its first packet may be sent when nothing else is in flight,
// and the rest once that is acknowledged (IBTA 9.7.7.2).
func (q *QP) mayProbe(rq *request, inFlight uint32) bool {
	r, w := &q.req, rq.w
	if !w.consumesRecv() || r.credit.allows(w.ssn) || inFlight == 0 || (r.head == r.cur && r.una != w.first) {
		r.stalled = false
		return true
	}
	if !r.stalled {
		r.stalled = true
		q.stats.CreditStalls++
	}
	return false
}

// localFault fails a request for a reason on this side: at once if it is the oldest, or when those before it are done.
func (q *QP) localFault(w *sendWQE, s ib.Status, vendor uint32) {
	r := &q.req
	if r.cur == r.head {
		q.failHead(s, vendor)
		return
	}
	w.status, w.vendor, r.fault = s, vendor, true
}

// buildRequest writes the packet and returns its length.
func (q *QP) buildRequest(rq *request, buf []byte) (int, ib.Fault) {
	w := rq.w
	place := placeMiddle
	if rq.rel == 0 {
		place = placeFirst
	}
	if rq.rel+rq.psns == w.psns {
		place |= placeLast
	}
	h := rocev2.BTH{
		Opcode: wireOpcodes[w.opcode][place], PKey: rocev2.DefaultPKey, DestQPN: q.attr.DestQPN, PSN: q.req.nxt,
		Solicited: place&placeLast != 0 && w.flags&flagSolicited != 0,
	}
	rq.ack = place&placeLast != 0 || w.opcode == ib.OpRead || q.wantAck(rq)
	h.AckReq = rq.ack
	carries := w.opcode.Is(ib.OpCarries)
	if carries {
		h.PadCount = rocev2.PadCount(int(rq.n))
	}
	b := h.AppendTo(buf[:0])
	switch {
	case w.opcode.Is(ib.OpAtomic):
		a := rocev2.AtomicETH{VA: w.remote, RKey: w.rkey, SwapAdd: w.swap, Compare: w.compareAdd}
		if w.opcode == ib.OpFetchAdd {
			a.SwapAdd, a.Compare = w.compareAdd, 0
		}
		return len(a.AppendTo(b)), ib.FaultNone
	case w.opcode == ib.OpRead:
		e := rocev2.RETH{VA: w.remote + uint64(rq.off), RKey: w.rkey, Length: rq.n}
		return len(e.AppendTo(b)), ib.FaultNone
	case w.opcode.Is(ib.OpRemote) && place&placeFirst != 0:
		e := rocev2.RETH{VA: w.remote, RKey: w.rkey, Length: w.length}
		b = e.AppendTo(b)
	}
	if place&placeLast != 0 && w.opcode.Is(ib.OpArgument) {
		b = binary.BigEndian.AppendUint32(b, w.arg)
	}
	if rq.n == 0 {
		return len(b), ib.FaultNone
	}
	return q.appendPayload(rq, b)
}

// appendPayload reads a packet's part of the message from memory.
func (q *QP) appendPayload(rq *request, b []byte) (int, ib.Fault) {
	r := &q.req
	at, end := len(b), len(b)+int(rq.n)
	b = b[:end+int(rocev2.PadCount(int(rq.n)))]
	clear(b[end:])
	if rq.w.flags&flagInline != 0 {
		copy(b[at:end], r.queue.data(r.cur)[rq.off:])
		return len(b), ib.FaultNone
	}
	list := r.queue.list(r.cur, rq.w)
	f := q.cfg.Memory.Gather(q.cfg.PD, list, uint64(rq.off), b[at:end])
	if f == ib.FaultNotPresent {
		q.await(waitPayload, q.cfg.Memory.MissingLocal(q.cfg.PD, list, uint64(rq.off), uint64(rq.n), 0))
	}
	return len(b), f
}

// wantAck asks for an acknowledgement inside a message: every quarter of the window, with the packet that fills it, with
// the last one that the driver lets go, and with a probe beyond the credits.
func (q *QP) wantAck(rq *request) bool {
	r := &q.req
	if r.sinceAck+1 >= r.window.ackInterval(q.packet()) || r.repair.left == 1 || uint64(max(r.allowance, 0)) <= rq.cost {
		return true
	}
	if rq.rel == 0 && rq.w.consumesRecv() && !r.credit.allows(rq.w.ssn) {
		return true
	}
	next := q.packet()
	return !r.window.admits(r.posNxt-r.posUna+rq.cost, ahead(r.nxt, r.una)+1, uint64(next), 1)
}

// sent moves the cursor behind a packet.
func (q *QP) sent(now clock.Time, rq *request) {
	r, w := &q.req, rq.w
	if r.nxt != r.max {
		q.stats.Retransmits++
	} else if rq.ack {
		r.rtt.start(now, r.nxt)
	}
	if w.opcode.Is(ib.OpCarries) {
		q.stats.TxBytes += uint64(rq.n)
	}
	if w.answered() {
		r.rd++
	}
	newest := r.cur == r.started
	grows := ahead(r.nxt, r.una)+rq.psns > ahead(r.max, r.una)
	r.nxt = r.nxt.Add(int(rq.psns))
	r.posNxt += rq.cost
	r.allowance -= int(min(rq.cost, mostCounted))
	if grows {
		r.max = r.nxt
	}
	if newest {
		r.started++
		r.ssn = w.ssn
	}
	r.sinceAck++
	if rq.ack {
		r.sinceAck = 0
	}
	if rq.rel+rq.psns == w.psns {
		r.cur++
	}
	if !r.retry.armed {
		r.retry.start(now)
		r.rtt.arm(now)
	}
}
