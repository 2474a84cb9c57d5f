package requester

import (
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/qp/queue"
)

// completeHead completes the oldest request with success, and the local
// operations behind it that were carried out meanwhile. It returns false if
// that failed the connection.
func (r *work) completeHead() bool {
	for ok := true; ok; {
		if !r.completeOne() {
			return false
		}
		ok = r.queue.Head != r.started && r.queue.At(r.queue.Head).Is(ib.OpLocal)
	}
	return true
}

// completeOne completes the oldest request with success.
func (r *work) completeOne() bool {
	w := r.queue.At(r.queue.Head)
	r.queue.Head++
	r.c.Stats.SendDone++
	if w.PSNs > 1 || w.Opcode == ib.OpSendInv {
		r.wrote(w)
	}
	if w.Flags&queue.Signaled == 0 {
		return true
	}
	wc := r.c.WC()
	wc.ID, wc.Opcode, wc.ByteLen = w.ID, w.Opcode.Completion(), w.Length
	if r.c.Complete(r.sink, wc) {
		return true
	}
	r.c.Fail(conn.EndOverflow)
	return false
}

// completeError delivers the completion of a request that has failed.
func (r *work) completeError(id uint64, op ib.Opcode, s ib.Status, vendor uint32) {
	wc := r.c.WC()
	wc.ID, wc.Status, wc.Opcode, wc.VendorErr = id, s, op.Completion(), vendor
	r.c.Complete(r.sink, wc)
}

// failHead completes the oldest request with an error, which ends the
// connection.
func (r *work) failHead(s ib.Status, vendor uint32) {
	if r.c.Failed() {
		return
	}
	if r.queue.Head != r.queue.Tail {
		w := r.queue.At(r.queue.Head)
		r.queue.Head++
		r.completeError(w.ID, w.Opcode, s, vendor)
	}
	r.c.Fail(conn.EndLocal)
}

// flushRequests completes every request with WR_FLUSH_ERR, in order (IBTA
// 10.3.1).
func (r *work) flushRequests() {
	for ; r.queue.Head != r.queue.Tail; r.queue.Head++ {
		w := r.queue.At(r.queue.Head)
		r.completeError(w.ID, w.Opcode, ib.StatusWRFlushErr, 0)
	}
	r.cur, r.started = r.queue.Head, r.queue.Head
}
