package requester

import (
	"encoding/binary"

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

// encoder makes packets of requests. It knows neither what was sent nor what
// is in flight.
type encoder struct {
	c    *conn.Conn
	ring *queue.SendRing
}

// packet writes a packet and returns its length: BTH, the extended headers of
// its opcode (IBTA 9.2.1), payload and pad.
func (e encoder) packet(rq *request, buf []byte) (int, ib.Fault) {
	w := rq.w
	place := placeMiddle
	if rq.rel == 0 {
		place = placeFirst
	}
	if rq.ends() {
		place |= placeLast
	}
	op := wireOpcodes[w.Opcode][place]
	split := w.Flags&queue.Split != 0 && w.Kind&ib.OpReads == 0
	if split {
		op = rocev2.RCWriteOnly
	}
	h := e.c.BTH(op, rq.psn)
	h.Solicited = place&placeLast != 0 && w.Flags&queue.Solicited != 0
	h.AckReq = rq.ack
	if w.Kind&ib.OpCarries != 0 {
		h.PadCount = rocev2.PadCount(int(rq.n))
	}
	b := h.AppendTo(buf[:0])
	if e.c.XRC() {
		b = binary.BigEndian.AppendUint32(b, w.SRQN) // XRCETH (IBTA A14)
	}
	switch {
	case w.Kind&ib.OpAtomic != 0:
		o := e.ring.Operands(rq.i)
		a := rocev2.AtomicETH{VA: w.Remote, RKey: w.RKey, SwapAdd: o.Swap, Compare: o.CompareAdd}
		if w.Opcode == ib.OpFetchAdd {
			a.SwapAdd, a.Compare = o.CompareAdd, 0
		}
		return len(a.AppendTo(b)), ib.FaultNone
	case w.Kind&ib.OpReads != 0:
		return len(rq.reth(b)), ib.FaultNone
	case split:
		b = rq.reth(b)
	case w.Opcode == ib.OpFlush:
		f := rocev2.FETH{Type: w.FlushType, Level: w.FlushLevel}
		r := rocev2.RETH{VA: w.Remote, RKey: w.RKey, Length: w.Arg}
		return len(r.AppendTo(f.AppendTo(b))), ib.FaultNone
	case w.Kind&ib.OpRemote != 0 && place&placeFirst != 0:
		r := rocev2.RETH{VA: w.Remote, RKey: w.RKey, Length: w.Length}
		b = r.AppendTo(b)
	}
	if place&placeLast != 0 && w.Kind&ib.OpArgument != 0 {
		b = binary.BigEndian.AppendUint32(b, w.Arg)
	}
	if rq.n == 0 {
		return len(b), ib.FaultNone
	}
	return e.payload(rq, b)
}

// reth appends the RETH of a packet that is a message of its own.
func (rq *request) reth(b []byte) []byte {
	r := rocev2.RETH{VA: rq.w.Remote + uint64(rq.off), RKey: rq.w.RKey, Length: rq.n}
	return r.AppendTo(b)
}

// payload reads a packet's part of the message from memory.
func (e encoder) payload(rq *request, b []byte) (int, ib.Fault) {
	at, end := len(b), len(b)+int(rq.n)
	b = b[:end+int(rocev2.PadCount(int(rq.n)))]
	clear(b[end:])
	if rq.w.Flags&queue.Inline == 0 {
		return len(b), e.c.Memory.Gather(e.c.PD, e.ring.List(rq.i, rq.w), uint64(rq.off), b[at:end])
	}
	if rq.w.Opcode == ib.OpAtomicWrite {
		binary.NativeEndian.PutUint64(b[at:end], e.ring.Operands(rq.i).Swap)
	} else {
		copy(b[at:end], e.ring.Data(rq.i)[rq.off:])
	}
	return len(b), ib.FaultNone
}

// run writes up to n packets in the middle of a message, of memory in one
// piece, and returns how many.
func (e encoder) run(rq *request, n int, out *conn.Output) int {
	w := rq.w
	v, f := e.c.Memory.ResolveLocal(e.c.PD, e.ring.List(rq.i, w)[0], 0)
	if f != ib.FaultNone {
		return 0
	}
	run := conn.Run{Op: wireOpcodes[w.Opcode][placeMiddle], PSN: rq.psn, N: n, View: v, Off: uint64(rq.off),
		XRCETH: e.c.XRC(), SRQN: w.SRQN}
	if w.Flags&queue.Split != 0 {
		run.Op, run.RETH, run.VA, run.RKey = rocev2.RCWriteOnly, true, w.Remote+uint64(rq.off), w.RKey
	}
	n = e.c.WriteRun(out, &run)
	v.Release()
	return n
}

// flushICRC is how FLUSHes are sealed. Linux (rxe, 6.12) computes their ICRC in
// a way of its own, and drops those that have the standard's in silence; others
// drop those of Linux. Nothing says in advance what a peer is. So a FLUSH goes
// as the standard has it first. The oldest one that is not answered goes in the
// other way each time that it is sent again, and those after it as it does. A
// way is kept when a FLUSH was answered that was sent only once.
type flushICRC struct {
	linux bool
	known bool // and that is what the peer takes
}

// again records that a FLUSH is sent again.
func (f *flushICRC) again(oldest bool) {
	if oldest && !f.known {
		f.linux = !f.linux
	}
}

// answered takes the answer to a request.
func (f *flushICRC) answered(w *queue.Send) {
	if w.Opcode == ib.OpFlush && w.Flags&queue.Resumed == 0 {
		f.known = true
	}
}
