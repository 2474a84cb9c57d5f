package requester

import (
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/qp/queue"
)

// Local operations (IBTA 10.6.5, 10.6.7 and 11.4.1.1) stand in the send queue
// among the requests, and send nothing. One takes no PSN, and it is carried out
// once, when it is started: going back passes it over. So neither the cursor
// nor the head of the queue is ever at one that was carried out. It completes
// when the requests before it have.
//
// The order (IBTA 10.8.3.3): requests behind a local operation are started
// after it was carried out. A bind and a registration are carried out when all
// before them are started, and with the fence when the READs and atomics among
// these have completed. LOCAL_INV is carried out when all before it have
// completed, as if its fence were always set: what the key stands for may be
// what they are made of, and they may have to be sent again.

// after returns the request behind i, which was started: where the cursor goes
// from there.
func (r *work) after(i uint32) uint32 {
	for i++; i != r.started && r.queue.At(i).Is(ib.OpLocal); i++ {
	}
	return i
}

// pollLocal carries out the local operation at the cursor. It returns false if
// that must wait, or fails.
func (r *sender) pollLocal() bool {
	w := r.queue.At(r.cur)
	switch {
	case r.c.State != ib.StateRTS || w.Status != ib.StatusSuccess:
		return false
	case w.Flags&queue.Fence != 0 && r.rd > 0:
		return false
	case w.Is(ib.OpInvalidates) && r.cur != r.queue.Head:
		return false
	}
	if f := r.c.ExecuteLocal(&r.queue, r.cur); f != ib.FaultNone {
		r.localFault(w, conn.LocalStatus(w.Opcode), conn.VendorErr(f))
		return false
	}
	w.First, w.Pos, w.PSNs, w.SSN = r.max, r.posNxt, 0, r.ssn
	r.started++
	r.cur++
	if r.queue.Head+1 == r.cur {
		return r.completeHead()
	}
	return true
}

// finishRead completes the oldest request, a READ whose data is there, and ends
// the key that goes with it.
func (r *work) finishRead(w *queue.Send) {
	if w.Is(ib.OpInvalidates) {
		if f := r.c.ExecuteLocal(&r.queue, r.queue.Head); f != ib.FaultNone {
			r.failHead(ib.StatusLocQPOpErr, conn.VendorErr(f))
			return
		}
	}
	r.completeHead()
}
