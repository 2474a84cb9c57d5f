package responder

import (
	"fmt"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/qp/queue"
)

// receives is where a responder has its receives from.
type receives struct {
	c      *conn.Conn
	own    queue.RecvRing // unless it is shared
	source queue.RecvSource
	shared bool
	held   bool       // there is one in hand:
	recv   queue.Recv // this
	space  uint64     // of so many bytes
}

// errReset is made once: a caller may post in vain again and again.
var errReset = fmt.Errorf("%w: %v: receives are posted from INIT on", ib.ErrState, ib.StateReset)

// Post queues a receive in the own ring, from INIT on. In ERR it completes at
// once with WR_FLUSH_ERR (IBTA 10.3.1). On an error nothing was queued.
func (r *receives) Post(wr *ib.RecvWR) error {
	switch length := ib.TotalLength(wr.SGList); {
	case r.shared:
		return ib.ErrShared
	case r.c.State == ib.StateReset:
		return errReset
	case len(wr.SGList) > r.own.MaxSGE():
		return fmt.Errorf("%w: %d; the queue pair was made for %d (MaxRecvSGE)", ib.ErrTooManySGE, len(wr.SGList), r.own.MaxSGE())
	case length >= 1<<32-1: // as an entry that stands for no memory has
		if err := ib.BadSGE(wr.SGList); err != nil {
			return err
		}
		if length > 1<<32-1 {
			return ib.ErrTooLong
		}
	}
	if r.c.Failed() {
		r.c.Stats.RecvPosted++
		wc := r.recvWC(wr.ID, ib.WCRecv)
		wc.Status = ib.StatusWRFlushErr
		r.c.Complete(r.own.CQ(), wc)
		return nil
	}
	if !r.own.Push(wr) {
		return ib.ErrQueueFull
	}
	r.c.Stats.RecvPosted++
	return nil
}

// takeReceive gets a receive for the message, unless one is in hand. It reports
// whether there is one.
func (r *receives) takeReceive() bool {
	if r.held {
		return true
	}
	r.held = r.source.Next(&r.recv)
	if r.held {
		r.space = ib.TotalLength(r.recv.SGList)
	}
	return r.held
}

// recvWC returns the completion of a receive.
func (r *receives) recvWC(id uint64, op ib.WCOpcode) *ib.WC {
	wc := r.c.WC()
	wc.ID, wc.Opcode, wc.SrcQPN = id, op, r.c.Attr.DestQPN
	return wc
}

// failRecv completes the receive in hand with an error.
func (r *receives) failRecv(s ib.Status, vendor uint32) {
	r.held = false
	wc := r.recvWC(r.recv.ID, ib.WCRecv)
	wc.Status, wc.VendorErr = s, vendor
	r.c.Complete(r.recv.CQ, wc)
}
