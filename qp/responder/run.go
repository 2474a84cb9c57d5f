package responder

import (
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/rocev2"
)

// Middle returns where the payloads of the next packets of the message under
// way go, from the one of PSN psn on, of which n have arrived: whole packets,
// of a WRITE without the last one. The view is pinned unless there is nothing.
func Middle(r *Responder, op rocev2.Opcode, psn rocev2.PSN, n int) memreg.View {
	switch {
	case crossesAge(psn, uint32(n)):
		return memreg.View{}
	case op == rocev2.RCWriteMiddle:
		return Place(r, psn, 0)
	case psn != r.epsn || r.message != rocev2.OpSend || busyOtherwise(r):
		return memreg.View{}
	}
	v := r.c.Memory.PlaceLocal(r.receives.Recv.PD, r.receives.Recv.SGList, uint64(r.done))
	return v.Part(0, min(v.Len(), ib.MaxMessage-uint64(r.done)))
}

// busyOtherwise reports whether there is something to do with the next packet
// of the message under way but to execute it.
func busyOtherwise(r *Responder) bool {
	return r.out.full() || r.flushing > 0 || r.reorder.Len() > 0
}

// HandleRun takes n packets whose payloads lie where Middle has said.
func HandleRun(r *Responder, n int) {
	size := uint32(n) << r.c.Shift
	r.nakSent = false
	if r.message == rocev2.OpWrite {
		r.va += uint64(size)
		r.left -= size
	}
	r.done += size
	moveOn(r, n)
}
