package responder

import (
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/rocev2"
)

// Packets in the middle of a message may be received where their payloads go,
// and taken as a run, without being looked at one by one.

// Place returns where the payloads of the next packets of the message under way
// go, from the one of PSN psn on: whole packets, of a WRITE without the last
// one. Before that one, ahead packets of a WRITE were received and are not
// executed. The view is pinned unless there is nothing.
func (r *Responder) Place(op rocev2.Opcode, psn rocev2.PSN, ahead int) memreg.View {
	if psn != r.answers.epsn.Add(ahead) || r.answers.full() || r.answers.flushing > 0 || r.gap.holds() {
		return memreg.View{}
	}
	if op == rocev2.RCWriteMiddle {
		return r.exec.placeWrite(ahead)
	}
	return r.exec.placeSend()
}

// Middle is Place for n packets of the message under way that have arrived.
func (r *Responder) Middle(op rocev2.Opcode, psn rocev2.PSN, n int) memreg.View {
	if crossesAge(psn, uint32(n)) {
		return memreg.View{}
	}
	return r.Place(op, psn, 0)
}

// HandleRun takes n packets whose payloads lie where Middle has said.
func (r *Responder) HandleRun(n int) {
	r.gap.close()
	r.exec.placed(n)
	r.answers.moveOn(n, false)
}

// placeWrite returns memory of the rest of the range of the WRITE under way,
// which is checked as a whole. Nothing of it was written before, because
// packets are executed in order, and all of it is written before the WRITE is
// complete.
func (x *executor) placeWrite(ahead int) memreg.View {
	left, skip := uint64(x.left), uint64(ahead)<<x.c.Shift
	if x.message != rocev2.OpWrite || x.c.Attr.Access&ib.RemoteWrite == 0 || left <= skip {
		return memreg.View{}
	}
	v, f := x.c.Memory.Resolve(x.c.PD, x.c.QPN, x.rkey, x.va, left, ib.RemoteWrite)
	if f != ib.FaultNone {
		return memreg.View{}
	}
	n := (left - skip - 1) >> x.c.Shift << x.c.Shift
	if n == 0 || !v.Placeable() {
		v.Release()
		return memreg.View{}
	}
	return v.Part(skip, n)
}

// placeSend returns memory of the receive of the SEND under way.
func (x *executor) placeSend() memreg.View {
	if x.message != rocev2.OpSend {
		return memreg.View{}
	}
	v := x.c.Memory.PlaceLocal(x.receives.Recv.PD, x.receives.Recv.SGList, uint64(x.done))
	return v.Part(0, min(v.Len(), ib.MaxMessage-uint64(x.done)))
}

// placed takes n packets of the message under way, whose payloads are there.
func (x *executor) placed(n int) {
	size := uint32(n) << x.c.Shift
	if x.message == rocev2.OpWrite {
		x.va += uint64(size)
		x.left -= size
	}
	x.done += size
}
