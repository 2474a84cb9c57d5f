package requester

import (
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/queue"
)

// flushICRC is how FLUSHes are sealed. Linux (rxe, 6.12) computes their ICRC in
// a way of its own, and drops those that have the standard's in silence; others
// drop those of Linux. Nothing says in advance what a peer is. So a FLUSH goes
// as the standard has it first. The oldest one that is not answered goes in the
// other way each time that it is sent again, and those behind it as it does. A
// way is kept when a FLUSH was answered that was sent only once.
type flushICRC struct {
	linux bool
	known bool // and that is what the peer takes
}

// sealsAsLinux reports how to seal the FLUSH that is sent now. A native peer
// takes both ways.
func (r *sender) sealsAsLinux(w *queue.Send) bool {
	if r.c.Pool != nil || r.c.XRC() { // Linux has no XRC
		return false
	}
	f := &r.flush
	if r.nxt != r.max {
		w.Flags |= queue.Resumed
		if r.nxt == r.una && !f.known {
			f.linux = !f.linux
		}
	}
	return f.linux
}

// answered takes note of the answer to a request.
func (f *flushICRC) answered(w *queue.Send) {
	if w.Opcode == ib.OpFlush && w.Flags&queue.Resumed == 0 {
		f.known = true
	}
}
