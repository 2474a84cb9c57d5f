package datagram

import (
	"encoding/binary"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/cc"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/qp/queue"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// Places of a packet in its message.
const (
	placeMiddle = 0
	placeFirst  = 1
	placeLast   = 2
	placeOnly   = placeFirst | placeLast
)

// opcodeTable has the opcode of each packet of a request by its place (IBTA
// 9.2.1). 0, an opcode of RC, is none.
type opcodeTable = [ib.NumOpcodes][4]rocev2.Opcode

var (
	ucOpcodes = opcodeTable{
		ib.OpSend:     {rocev2.UCSendMiddle, rocev2.UCSendFirst, rocev2.UCSendLast, rocev2.UCSendOnly},
		ib.OpSendImm:  {rocev2.UCSendMiddle, rocev2.UCSendFirst, rocev2.UCSendLastImm, rocev2.UCSendOnlyImm},
		ib.OpWrite:    {rocev2.UCWriteMiddle, rocev2.UCWriteFirst, rocev2.UCWriteLast, rocev2.UCWriteOnly},
		ib.OpWriteImm: {rocev2.UCWriteMiddle, rocev2.UCWriteFirst, rocev2.UCWriteLastImm, rocev2.UCWriteOnlyImm},
	}
	udOpcodes = opcodeTable{
		ib.OpSend:    {placeOnly: rocev2.UDSendOnly},
		ib.OpSendImm: {placeOnly: rocev2.UDSendOnlyImm},
	}
)

// wireOpcodes returns the opcodes of the service.
func (s *Sender) wireOpcodes() *opcodeTable {
	if s.datagrams() {
		return &udOpcodes
	}
	return &ucOpcodes
}

// Poll writes packets until out takes no more or nothing may be sent now.
func (s *Sender) Poll(now clock.Time, out *conn.Output) {
	s.paced = false
	for s.mayGoOn() {
		if s.rate.On() && s.waitsForRate(now) {
			return
		}
		buf := out.Room()
		bytes, packets := s.c.Stats.TxBytes, out.Packets
		if buf == nil || !s.pollNext(buf, out) {
			return
		}
		if s.rate.On() {
			s.rate.Sent(now, int(s.c.Stats.TxBytes-bytes), out.Packets-packets)
		}
	}
}

// waitsForRate reports whether nothing may be sent yet.
func (s *Sender) waitsForRate(now clock.Time) bool {
	_, at := s.rate.Next()
	s.paced = now < at
	return s.paced
}

// runLength returns how many packets in the middle of a message may be written
// at once.
func (s *Sender) runLength(w *queue.Send, most int) int {
	n := min(most, int(w.PSNs-s.sent)-1)
	if s.rate.On() {
		room, _ := s.rate.Next()
		n = min(n, room/(s.c.MTU+cc.WireOverhead))
	}
	return n
}

// mayGoOn reports whether there is a request that waits neither for memory nor
// for RTS.
func (s *Sender) mayGoOn() bool {
	return s.queue.Head != s.queue.Tail && !s.fetch.Pending(conn.NeedPayload) &&
		(s.c.State == ib.StateRTS || s.c.State == ib.StateSQD && s.sent > 0)
}

// pollNext writes the next packet, or a run of them in the middle of a message.
// It returns false if it cannot.
func (s *Sender) pollNext(buf []byte, out *conn.Output) bool {
	w := s.queue.At(s.queue.Head)
	if w.Kind&ib.OpLocal != 0 {
		return s.executeLocal(w)
	}
	if s.sent == 0 {
		w.PSNs = s.c.PSNs(w.Length)
	} else if n := s.runLength(w, out.Left()); n > 1 && w.NumSGE == 1 {
		if n = s.writeRun(w, n, out); n > 0 {
			s.advance(w, n, n<<s.c.Shift)
			return true
		}
	}
	off := s.sent << s.c.Shift
	n := min(w.Length-off, uint32(s.c.MTU))
	size, fault := s.build(w, off, n, buf)
	switch fault {
	case ib.FaultNone:
	case ib.FaultNotPresent:
		s.fetch.Add(s.c, conn.NeedPayload, s.c.Memory.MissingLocal(s.c.PD, s.queue.List(s.queue.Head, w), uint64(off), uint64(n), 0))
		return false
	default:
		s.fail(ib.StatusLocProtErr, conn.VendorErr(fault))
		return false
	}
	var to *ib.AddressVector // nil: to the peer of UC
	if s.datagrams() {
		to = s.to.of(s.queue.Head).av
	}
	out.Commit(size, to, conn.OrdinaryPacket)
	s.advance(w, 1, int(n))
	return true
}

// executeLocal carries out the oldest request, which sends nothing. All before
// it have left, and none of them will be sent again.
func (s *Sender) executeLocal(w *queue.Send) bool {
	if f := s.c.ExecuteLocal(&s.queue, s.queue.Head); f != ib.FaultNone {
		s.fail(conn.LocalStatus(w.Opcode), conn.VendorErr(f))
		return false
	}
	s.complete(w)
	return true
}

// writeRun writes up to n packets in the middle of a message, and returns how
// many. What is asked for each packet is asked once for all.
func (s *Sender) writeRun(w *queue.Send, n int, out *conn.Output) int {
	v, f := s.c.Memory.ResolveLocal(s.c.PD, s.queue.List(s.queue.Head, w)[0], 0)
	if f != ib.FaultNone {
		return 0
	}
	n = s.c.WriteRun(out, &conn.Run{Op: ucOpcodes[w.Opcode][placeMiddle], PSN: s.nxt, N: n, View: v, Off: uint64(s.sent) << s.c.Shift})
	v.Release()
	return n
}

// advance moves on after n packets of the oldest request, which completes with
// the last one.
func (s *Sender) advance(w *queue.Send, n, bytes int) {
	s.nxt = s.nxt.Add(n)
	s.c.Stats.TxBytes += uint64(bytes)
	if s.sent += uint32(n); s.sent == w.PSNs {
		s.complete(w)
	}
}

// build writes the packet with n bytes of the oldest request from byte off on,
// and returns its length: BTH, the extended headers of its opcode (IBTA 9.2.1),
// payload and pad. AckReq is never set (IBTA 9.8.1).
func (s *Sender) build(w *queue.Send, off, n uint32, buf []byte) (int, ib.Fault) {
	place := placeMiddle
	if s.sent == 0 {
		place = placeFirst
	}
	if s.sent+1 == w.PSNs {
		place |= placeLast
	}
	h := s.c.BTH(s.wireOpcodes()[w.Opcode][place], s.nxt)
	h.Solicited = place&placeLast != 0 && w.Flags&queue.Solicited != 0
	h.PadCount = rocev2.PadCount(int(n))
	var b []byte
	if s.datagrams() {
		to := s.to.of(s.queue.Head)
		h.DestQPN = to.qpn
		e := rocev2.DETH{QKey: to.qkey, SrcQPN: s.c.QPN}
		if to.qkey&privileged != 0 || s.typ == ib.GSI {
			e.QKey = s.c.Attr.QKey
		}
		b = e.AppendTo(h.AppendTo(buf[:0]))
	} else {
		b = h.AppendTo(buf[:0])
		if w.Kind&ib.OpRemote != 0 && place&placeFirst != 0 {
			e := rocev2.RETH{VA: w.Remote, RKey: w.RKey, Length: w.Length}
			b = e.AppendTo(b)
		}
	}
	if place&placeLast != 0 && w.Kind&ib.OpArgument != 0 {
		b = binary.BigEndian.AppendUint32(b, w.Arg)
	}
	at, end := len(b), len(b)+int(n)
	b = b[:end+int(h.PadCount)]
	clear(b[end:])
	switch {
	case n == 0:
		return len(b), ib.FaultNone
	case w.Flags&queue.Inline != 0:
		copy(b[at:end], s.queue.Data(s.queue.Head)[off:])
		return len(b), ib.FaultNone
	}
	return len(b), s.c.Memory.Gather(s.c.PD, s.queue.List(s.queue.Head, w), uint64(off), b[at:end])
}
