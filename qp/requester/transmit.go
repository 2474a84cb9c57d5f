package requester

import (
	"encoding/binary"

	"github.com/gosoftroce/rocev2/clock"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/qp/queue"
	"github.com/gosoftroce/rocev2/rocev2"
)

// Places of a packet in its message.
const (
	placeMiddle = 0
	placeFirst  = 1
	placeLast   = 2
	placeOnly   = placeFirst | placeLast
)

// wireOpcodes has the opcode of each packet of a request by its place (IBTA
// 9.2.1).
var wireOpcodes = [ib.NumOpcodes][4]rocev2.Opcode{
	ib.OpSend:     {rocev2.RCSendMiddle, rocev2.RCSendFirst, rocev2.RCSendLast, rocev2.RCSendOnly},
	ib.OpSendImm:  {rocev2.RCSendMiddle, rocev2.RCSendFirst, rocev2.RCSendLastImm, rocev2.RCSendOnlyImm},
	ib.OpSendInv:  {rocev2.RCSendMiddle, rocev2.RCSendFirst, rocev2.RCSendLastInv, rocev2.RCSendOnlyInv},
	ib.OpWrite:    {rocev2.RCWriteMiddle, rocev2.RCWriteFirst, rocev2.RCWriteLast, rocev2.RCWriteOnly},
	ib.OpWriteImm: {rocev2.RCWriteMiddle, rocev2.RCWriteFirst, rocev2.RCWriteLastImm, rocev2.RCWriteOnlyImm},
	ib.OpRead: {rocev2.RCReadRequest, rocev2.RCReadRequest, rocev2.RCReadRequest,
		rocev2.RCReadRequest},
	ib.OpReadInv: {rocev2.RCReadRequest, rocev2.RCReadRequest, rocev2.RCReadRequest,
		rocev2.RCReadRequest},
	ib.OpCompareSwap: {placeOnly: rocev2.RCCompareSwap},
	ib.OpFetchAdd:    {placeOnly: rocev2.RCFetchAdd},
	ib.OpFlush:       {placeOnly: rocev2.RCFlush},
	ib.OpAtomicWrite: {placeOnly: rocev2.RCAtomicWrite},
}

// sender says what may be sent now, and makes its packets.
type sender struct {
	recovery
	credit    credit
	allowance int // bytes of requests that the driver lets go in this Poll
}

// Poll writes request packets (IBTA 9.7.2) until out takes no more, nothing may
// be sent now, or there are no bytes left: while there are some a request may
// go. It returns the bytes that it has sent, as they count in flight, and
// whether it has stopped only because there were no bytes left.
func (r *sender) Poll(now clock.Time, bytes int, out *conn.Output) (sent int, blocked bool) {
	r.allowance = bytes
	for {
		buf := out.Room()
		if buf == nil || !r.pollNext(now, buf, out) {
			return bytes - r.allowance, r.blocked()
		}
	}
}

// blocked reports whether the driver's bound alone stops the requester, as far
// as is known without asking fences, credits and the like.
func (r *sender) blocked() bool {
	return r.allowance <= 0 && r.mayGoOn() && !r.paced &&
		(r.una == r.nxt || r.c.CC.Limit.Room(r.pipe(), r.nxt.Ahead(r.una), 1) > 0)
}

// mayGoOn reports whether there is a request at the cursor that waits neither
// for the peer to be ready, nor for memory, nor for RTS.
func (r *sender) mayGoOn() bool {
	return r.cur != r.queue.Tail && !r.rnr.waiting && !r.paging &&
		(r.c.State == ib.StateRTS || r.c.State == ib.StateSQD && r.cur != r.started)
}

// pollNext writes what comes next: a packet that is sent again, or those at the
// cursor. It returns false if there is nothing that may be sent now.
func (r *sender) pollNext(now clock.Time, buf []byte, out *conn.Output) bool {
	if r.c.CC.Limit.Burst > 0 && r.waitsForRate(now) {
		return false
	}
	if n := r.pollAgain(now, buf); n > 0 {
		out.Commit(n)
		return true
	}
	if r.cur != r.queue.Tail && r.queue.At(r.cur).Is(ib.OpLocal) {
		return r.pollLocal()
	}
	if r.cur == r.queue.Tail || r.allowance <= 0 || r.rnr.waiting || r.paging || r.cur == r.started && r.c.State == ib.StateSQD {
		return false
	}
	w := r.queue.At(r.cur)
	if r.cur == r.started {
		w.First, w.Pos, w.PSNs = r.max, r.posNxt, r.c.PSNs(w.Length)
		r.split(w)
		r.splitRead(w)
		r.lengthenRead(w)
		w.SSN = r.ssn.Add(int(r.messages(w)))
	}
	var rq request
	r.requestAt(&rq, w)
	if w.Status != ib.StatusSuccess || !r.mayStart(&rq) {
		return false
	}
	if rq.rel > 0 || w.Flags&queue.Split != 0 {
		if n := r.runLength(&rq, out.Left()); n > 1 {
			if n = r.writeRun(&rq, n, out); n > 0 {
				r.sent(now, &rq, n)
				return true
			}
		}
	}
	n, fault := r.buildRequest(&rq, buf)
	if fault == ib.FaultNotPresent {
		return false
	}
	if fault != ib.FaultNone {
		r.localFault(w, ib.StatusLocProtErr, conn.VendorErr(fault))
		return false
	}
	if w.Opcode == ib.OpFlush && r.sealsAsLinux(w) {
		out.CommitFlush(n)
	} else {
		out.Commit(n)
	}
	r.sent(now, &rq, 1)
	return true
}

// pollAgain writes the next packet that is sent again while sending goes on; 0
// if there is none.
func (r *sender) pollAgain(now clock.Time, buf []byte) (n int) {
	if r.rnr.waiting || r.paging {
		return 0
	}
	if r.sel.waits() {
		n = r.pollHole(now, buf)
	}
	if n == 0 && r.repair.left > 0 {
		n = r.pollRepair(now, buf)
	}
	return n
}

// waitsForRate reports whether nothing may be sent yet, of what there is to
// send.
func (r *sender) waitsForRate(now clock.Time) bool {
	r.paced = (r.repair.left > 0 || r.sel.waits() || r.mayGoOn()) && r.c.Waits(now, r.paced)
	return r.paced
}

// runLength returns how many packets of the path MTU, in the middle of a
// message, may be written at once, so that what is asked for each packet is
// asked once for all of them: of memory in one piece, without one that asks for
// an acknowledgement. 1 or less is no run.
func (r *sender) runLength(rq *request, most int) int {
	w := rq.w
	if !w.Is(ib.OpCarries) || w.NumSGE != 1 || r.repair.left > 0 {
		return 1
	}
	if w.ConsumesRecv() && !r.credit.allows(w.SSN) {
		return 1
	}
	// The last one that the limit or the driver admits asks for an
	// acknowledgement, and so does one now and then.
	size := r.packet()
	n := min(most, int(w.PSNs-rq.rel)-1, r.c.CC.Limit.Room(r.pipe(), r.nxt.Ahead(r.una), size)-1,
		int(r.c.CC.Limit.AckInterval(size))-1-int(r.sinceAck), (r.allowance-1)/size)
	if r.nxt != r.max {
		n = min(n, int(r.max.Ahead(r.nxt)))
	}
	if r.c.CC.Limit.Burst > 0 {
		n = min(n, r.c.CC.Limit.Burst/size)
	}
	return n
}

// writeRun writes up to n packets in the middle of a message, and returns how
// many.
func (r *sender) writeRun(rq *request, n int, out *conn.Output) int {
	v, f := r.c.Memory.ResolveLocal(r.c.PD, r.queue.List(r.cur, rq.w)[0], 0)
	if f != ib.FaultNone {
		return 0
	}
	run := conn.Run{Op: wireOpcodes[rq.w.Opcode][placeMiddle], PSN: r.nxt, N: n, View: v, Off: uint64(rq.off),
		XRCETH: r.c.XRC(), SRQN: rq.w.SRQN}
	if rq.w.Flags&queue.Split != 0 {
		run.Op, run.RETH, run.VA, run.RKey = rocev2.RCWriteOnly, true, rq.w.Remote+uint64(rq.off), rq.w.RKey
	}
	n = r.c.WriteRun(out, &run)
	v.Release()
	return n
}

// mayStart checks the window, the depth of READs and atomics (IBTA 9.7.3),
// fences (IBTA 10.8.3.3) and credits (IBTA 9.7.7.2).
func (r *sender) mayStart(rq *request) bool {
	w := rq.w
	inFlight := r.nxt.Ahead(r.una)
	if !r.c.CC.Limit.Admits(r.pipe(), inFlight, rq.cost, rq.psns) {
		return false
	}
	if w.Is(ib.OpReads) && (r.reorder.Len() > 0 || r.sel != nil && r.sel.reads != nil) && int(inFlight+rq.psns) > r.c.Pool.Share(r.c.MTU) {
		return false // while something is missing there is no room for what comes
	}
	if w.Answered() {
		if r.c.Attr.MaxRdAtomic == 0 { // lowered in SQD after the request was posted
			r.localFault(w, ib.StatusLocQPOpErr, 0)
			return false
		}
		if r.rd >= uint32(r.c.Attr.MaxRdAtomic) {
			return false
		}
	}
	if rq.rel == 0 && r.rd > 0 && (w.Flags&queue.Fence != 0 || r.spoilsReads(w)) {
		return false
	}
	return !r.credit.limited || r.mayProbe(rq, inFlight)
}

// mayProbe decides for a message beyond the peer's credits: its first packet
// may be sent when nothing else is in flight, and the rest once that is
// acknowledged (IBTA 9.7.7.2).
func (r *sender) mayProbe(rq *request, inFlight uint32) bool {
	w := rq.w
	if !w.ConsumesRecv() || r.credit.allows(w.SSN) || inFlight == 0 || (r.queue.Head == r.cur && r.una != w.First) {
		r.credit.stalled = false
		return true
	}
	if !r.credit.stalled {
		r.credit.stalled = true
		r.c.Stats.Rare().CreditStalls++
	}
	return false
}

// localFault fails a request for a reason on this side: at once if it is the
// oldest, or when those before it are done.
func (r *sender) localFault(w *queue.Send, s ib.Status, vendor uint32) {
	if r.cur == r.queue.Head {
		r.failHead(s, vendor)
		return
	}
	w.Status, w.Vendor, r.fault = s, uint16(vendor), true
}

// buildRequest writes the packet and returns its length: BTH, the extended
// headers of its opcode (IBTA 9.2.1), payload and pad.
func (r *sender) buildRequest(rq *request, buf []byte) (int, ib.Fault) {
	w := rq.w
	place := placeMiddle
	if rq.rel == 0 {
		place = placeFirst
	}
	if rq.rel+rq.psns == w.PSNs {
		place |= placeLast
	}
	h := r.c.BTH(wireOpcodes[w.Opcode][place], r.nxt)
	split := w.Flags&queue.Split != 0 && !w.Is(ib.OpReads)
	if split {
		h = r.c.BTH(rocev2.RCWriteOnly, r.nxt)
	}
	h.Solicited = place&placeLast != 0 && w.Flags&queue.Solicited != 0
	rq.ack = place&placeLast != 0 || w.Is(ib.OpReads) || r.wantAck(rq)
	h.AckReq = rq.ack
	carries := w.Is(ib.OpCarries)
	if carries {
		h.PadCount = rocev2.PadCount(int(rq.n))
	}
	b := h.AppendTo(buf[:0])
	if r.c.XRC() {
		b = binary.BigEndian.AppendUint32(b, w.SRQN) // XRCETH (IBTA A14)
	}
	switch {
	case w.Is(ib.OpAtomic):
		o := r.queue.Operands(r.cur)
		a := rocev2.AtomicETH{VA: w.Remote, RKey: w.RKey, SwapAdd: o.Swap, Compare: o.CompareAdd}
		if w.Opcode == ib.OpFetchAdd {
			a.SwapAdd, a.Compare = o.CompareAdd, 0
		}
		return len(a.AppendTo(b)), ib.FaultNone
	case w.Is(ib.OpReads):
		e := rocev2.RETH{VA: w.Remote + uint64(rq.off), RKey: w.RKey, Length: rq.n}
		return len(e.AppendTo(b)), ib.FaultNone
	case split:
		e := rocev2.RETH{VA: w.Remote + uint64(rq.off), RKey: w.RKey, Length: rq.n}
		b = e.AppendTo(b)
	case w.Opcode == ib.OpFlush:
		f := rocev2.FETH{Type: w.FlushType, Level: w.FlushLevel}
		e := rocev2.RETH{VA: w.Remote, RKey: w.RKey, Length: w.Arg}
		return len(e.AppendTo(f.AppendTo(b))), ib.FaultNone
	case w.Is(ib.OpRemote) && place&placeFirst != 0:
		e := rocev2.RETH{VA: w.Remote, RKey: w.RKey, Length: w.Length}
		b = e.AppendTo(b)
	}
	if place&placeLast != 0 && w.Is(ib.OpArgument) {
		b = binary.BigEndian.AppendUint32(b, w.Arg)
	}
	if rq.n == 0 {
		return len(b), ib.FaultNone
	}
	return r.appendPayload(rq, b)
}

// appendPayload reads a packet's part of the message from memory.
func (r *sender) appendPayload(rq *request, b []byte) (int, ib.Fault) {
	at, end := len(b), len(b)+int(rq.n)
	b = b[:end+int(rocev2.PadCount(int(rq.n)))]
	clear(b[end:])
	if rq.w.Flags&queue.Inline != 0 {
		if rq.w.Opcode == ib.OpAtomicWrite {
			binary.NativeEndian.PutUint64(b[at:end], r.queue.Operands(r.cur).Swap)
		} else {
			copy(b[at:end], r.queue.Data(r.cur)[rq.off:])
		}
		return len(b), ib.FaultNone
	}
	list := r.queue.List(r.cur, rq.w)
	f := r.c.Memory.Gather(r.c.PD, list, uint64(rq.off), b[at:end])
	if f == ib.FaultNotPresent {
		r.needPayload(rq, list)
	}
	return len(b), f
}

// wantAck asks for an acknowledgement inside a message: every quarter of the
// window, with the packet that fills it, with the last one that the driver lets
// go, or the rate before a long pause, and with a probe beyond the credits. So
// nothing stays unacknowledged in a pause, which would be taken for the peer's
// silence.
func (r *sender) wantAck(rq *request) bool {
	if r.sinceAck+1 >= r.c.CC.Limit.AckInterval(r.packet()) || r.repair.left == 1 || uint64(max(r.allowance, 0)) <= rq.cost {
		return true
	}
	if rq.rel == 0 && rq.w.ConsumesRecv() && !r.credit.allows(rq.w.SSN) {
		return true
	}
	if r.c.CC.Limit.Pauses(rq.cost) {
		return true
	}
	next := r.packet()
	return !r.c.CC.Limit.Admits(r.pipe()+rq.cost, r.nxt.Ahead(r.una)+1, uint64(next), 1)
}

// sent moves the cursor behind n packets: a run, or the one that rq is.
func (r *sender) sent(now clock.Time, rq *request, n int) {
	w := rq.w
	if r.nxt != r.max {
		r.c.Stats.Retransmits += uint64(n)
		r.askedAgain(rq, r.nxt)
		if rq.w.Is(ib.OpReads) {
			r.again = min(r.again+rq.psns, maxChunk)
		}
	} else {
		if rq.ack {
			r.rtt.start(now, r.nxt)
		}
		r.noteTwin(rq)
	}
	if w.Is(ib.OpCarries) {
		r.c.Stats.TxBytes += uint64(rq.n) * uint64(n)
	}
	if w.Answered() {
		r.rd++
	}
	psns, cost := rq.psns*uint32(n), rq.cost*uint64(n)
	newest := r.cur == r.started
	grows := r.nxt.Ahead(r.una)+psns > r.max.Ahead(r.una)
	r.nxt = r.nxt.Add(int(psns))
	r.posNxt += cost
	r.allowance -= int(min(cost, mostCounted))
	if grows {
		r.max = r.nxt
	}
	if newest {
		r.started++
		r.ssn = w.SSN
	}
	r.sinceAck += uint32(n)
	if rq.rel+psns == w.PSNs {
		r.cur = r.after(r.cur)
	}
	switch {
	case !r.retry.armed:
		r.retry.start(now)
		r.armProbe(now)
	case rq.ack && r.rtt.asked.Before(r.una):
		asksAnew(&r.recovery, now)
	case r.rtt.few && r.nxt.Ahead(r.una) >= fewInFlight:
		r.rtt.many(now)
	}
	if rq.ack {
		r.sinceAck, r.rtt.asked = 0, r.nxt.Add(-1)
	}
	if r.c.CC.Limit.Burst > 0 {
		r.spent(now, cost, psns)
	}
}

// askedAgain takes note of a request from psn on that is sent again. The peer
// answers a READ as often as it is asked.
func (r *sender) askedAgain(rq *request, psn rocev2.PSN) {
	if rq.w.Is(ib.OpReads) && r.sel != nil {
		r.sel.back.Again(psn.Add(int(rq.psns)))
	}
}

// spent tells a controller that works with rates what was sent.
func (r *sender) spent(now clock.Time, bytes uint64, packets uint32) {
	r.c.Spent(now, int(min(bytes, mostCounted)), int(packets))
}

// pollRepair writes the next packet of a repair.
func (r *sender) pollRepair(now clock.Time, buf []byte) int {
	p := &r.repair
	if p.nxt.Before(r.una) || p.nxt.Ahead(r.una) >= r.nxt.Ahead(r.una) {
		p.left = 0 // done meanwhile
		return 0
	}
	w := r.queue.At(p.cur)
	if w.Answered() && p.nxt != r.una {
		// A READ or an atomic is repaired when its turn comes. What is
		// acknowledged up to here says nothing about it.
		p.left, p.end, p.limit = 0, p.nxt, p.nxt
		return 0
	}
	cur, nxt, psn := r.cur, r.nxt, p.nxt
	r.cur, r.nxt = p.cur, psn
	var rq request
	r.requestAt(&rq, w)
	r.limitRepair(&rq)
	n, fault := r.buildRequest(&rq, buf)
	r.cur, r.nxt = cur, nxt
	if fault == ib.FaultNotPresent {
		return 0
	}
	if fault != ib.FaultNone {
		r.rewind() // meets the fault again, and handles it
		return 0
	}
	r.askedAgain(&rq, psn)
	p.left--
	if !w.Answered() {
		p.nxt = p.nxt.Next()
		if rq.rel+1 == w.PSNs {
			p.cur = r.after(p.cur)
		}
	}
	r.c.Stats.Retransmits++
	if w.Is(ib.OpCarries) {
		r.c.Stats.TxBytes += uint64(rq.n)
	}
	if r.rtt.known {
		r.retry.stop()
		r.rtt.discard()
	} else {
		r.rtt.discardOne(psn)
	}
	r.retry.start(now)
	r.armProbe(now)
	if r.c.CC.Limit.Burst > 0 {
		r.spent(now, rq.cost, rq.psns)
	}
	return n
}

// limitRepair cuts the request for a READ off behind the first response that is
// here already, which is asked for again so that it shows if those before it
// are lost once more.
func (r *sender) limitRepair(rq *request) {
	k := r.reorder.Lowest()
	if !rq.w.Is(ib.OpReads) || k == nil {
		return
	}
	if info, _ := k.BTH.Opcode.Info(); info.Operation != rocev2.OpReadResponse {
		return
	}
	if n := k.BTH.PSN.Ahead(r.una) + 1; n < rq.psns {
		rq.psns, rq.n = n, n<<r.c.Shift
	}
}
