package qp

import (
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
)

// sendWC delivers a completion of the send queue. It returns false if the sink refused.
func (q *QP) sendWC(id uint64, op ib.Opcode, s ib.Status, vendor uint32) bool {
	q.wc = ib.WC{ID: id, Status: s, Opcode: op.Completion(), QPN: q.cfg.QPN, VendorErr: vendor}
	return q.deliver(q.cfg.SendCQ)
}

// recvWC delivers the completion in q.wc to the receive queue's sink.
func (q *QP) recvWC() bool {
	q.wc.QPN, q.wc.SrcQPN = q.cfg.QPN, q.attr.DestQPN
	return q.deliver(q.cfg.RecvCQ)
}

func (q *QP) deliver(sink CompletionSink) bool {
	if sink.Complete(&q.wc) {
		return true
	}
	q.stats.Overflows++
	q.events.raise(ib.EventQPFatal)
	return false
}

// completeHead completes the oldest request with success. It returns false if that failed the queue pair.
func (q *QP) completeHead() bool {
	r := &q.req
	w := r.queue.at(r.head)
	r.head++
	q.stats.SendDone++
	if w.flags&flagSignaled == 0 {
		return true
	}
	q.wc = ib.WC{ID: w.id, Opcode: w.opcode.Completion(), ByteLen: w.length, QPN: q.cfg.QPN}
	if q.deliver(q.cfg.SendCQ) {
		return true
	}
	if q.resp.endAnswers(q.resp.epsn, rocev2.NAKRemoteOperational) {
		q.resp.tellFatal()
	}
	q.enterError(true)
	return false
}

// failHead completes the oldest request with an error, which ends the connection.
func (q *QP) failHead(s ib.Status, vendor uint32) {
	r := &q.req
	if q.state == ib.StateErr {
		return
	}
	if r.head != r.queue.tail {
		w := r.queue.at(r.head)
		r.head++
		q.sendWC(w.id, w.opcode, s, vendor)
	}
	q.enterError(false)
}

// enterError goes to ERR and flushes both queues in order. Of the answers that wait only the acknowledgement of what was
// executed is left, unless endAnswers has left what may still be sent.
func (q *QP) enterError(keepAnswers bool) {
	if q.state == ib.StateErr {
		return
	}
	q.state = ib.StateErr
	r, p := &q.req, &q.resp
	r.retry.stop()
	r.rnr.waiting = false
	q.notice.due = false
	q.discardKept()
	q.absent, r.paging = nil, false
	if !keepAnswers {
		q.condense()
		p.fatal.left = 0
	}
	for ; r.head != r.queue.tail; r.head++ {
		w := r.queue.at(r.head)
		q.sendWC(w.id, w.opcode, ib.StatusWRFlushErr, 0)
	}
	r.cur, r.started = r.head, r.head
	if p.held {
		q.failRecv(ib.StatusWRFlushErr, 0)
	}
	if q.cfg.RecvSource != nil {
		q.events.raise(ib.EventLastWQEReached)
		return
	}
	for p.queue.NextRecv(&p.recv) {
		q.failRecv(ib.StatusWRFlushErr, 0)
	}
}

// failRecv completes the receive in hand with an error.
func (q *QP) failRecv(s ib.Status, vendor uint32) {
	q.resp.held = false
	q.wc = ib.WC{ID: q.resp.recv.ID, Status: s, Opcode: ib.WCRecv, VendorErr: vendor}
	q.recvWC()
}

// faultDetail is what WC.VendorErr says about a memory fault.
func faultDetail(f ib.Fault) uint32 {
	if f == ib.FaultNone {
		return 0
	}
	return ib.VendorFault | uint32(f)
}

// drained reports that no message is under way: everything that was started has completed.
func (q *QP) drained() bool { return q.req.head == q.req.started }

func (q *QP) checkDrained() {
	if q.notify && q.drained() {
		q.notify = false
		q.events.raise(ib.EventSQDrained)
	}
}
