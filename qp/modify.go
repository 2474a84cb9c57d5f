package qp

import (
	"math"
	"math/bits"
	"net/netip"
)

// Modify changes the state and the attributes that mask selects, or nothing if it returns an error, which is a
// *ModifyError. It is ibv_modify_qp with the state table of Linux; a mask without AttrState keeps the state.
//
// The way to ERR flushes both queues before it returns, the way to RESET drops what is in them. Leaving SQD for RTS needs a
// drained queue (EventSQDrained).
func (q *QP) Modify(now Time, a *Attr, mask AttrMask) error {
	to := q.state
	if mask&AttrState != 0 {
		to = a.State
	}
	if err := checkTransition(q.state, to, q.cfg.Service, mask); err != nil {
		return err
	}
	refuse := func(attr AttrMask, detail string, kind error) error {
		return &ModifyError{From: q.state, To: to, Service: q.cfg.Service, Attr: attr, Detail: detail, Err: kind}
	}
	if mask&AttrCurState != 0 && a.CurState != q.state {
		return refuse(AttrCurState, a.CurState.String(), ErrCurState)
	}
	if bad, why := a.value(mask); bad != 0 {
		return refuse(bad, why, ErrAttrValue)
	}
	if q.state == StateSQD && to == StateRTS && !q.drained() {
		return refuse(0, "", ErrNotDrained)
	}
	if mask&AttrMaxDestRdAtomic != 0 && q.state >= StateRTR && !q.resp.out.empty() {
		return refuse(AttrMaxDestRdAtomic, "answers to READs are waiting", ErrNotDrained)
	}
	q.attr.assign(a, mask)
	q.transit(now, to, a.EnableSQDNotify && mask&AttrEnableSQDNotify != 0)
	q.apply(mask)
	return nil
}

// transit does what a change of state means.
func (q *QP) transit(now Time, to State, notify bool) {
	from := q.state
	switch to {
	case StateReset:
		q.reset()
		return
	case StateErr:
		q.enterError(false)
		return
	}
	q.state = to
	switch {
	case from == StateInit && to == StateRTR:
		q.startResponder()
	case from == StateRTR && to == StateRTS:
		q.startRequester()
	case from == StateRTS && to == StateSQD:
		q.notify = notify
		q.checkDrained()
	}
}

// apply brings changed attributes to where they are used.
func (q *QP) apply(mask AttrMask) {
	if mask&AttrAV != 0 {
		q.peer = q.attr.AV.DGID.Unmap().WithZone("")
	}
	if mask&(AttrTimeout|AttrRetryCount) != 0 {
		armed := q.req.retry.armed
		q.req.retry.configure(q.attr.Timeout, q.attr.RetryCount)
		q.req.retry.armed = armed
	}
	if mask&AttrRNRRetry != 0 {
		q.req.rnr.configure(q.attr.RNRRetry)
	}
	if mask&AttrMaxDestRdAtomic != 0 {
		q.resp.res.resize(int(q.attr.MaxDestRdAtomic))
		q.resp.out.resize(q.resp.res.depth)
	}
}

func (q *QP) startResponder() {
	q.mtu = q.attr.PathMTU.Bytes()
	q.mtuShift = uint8(bits.TrailingZeros(uint(q.mtu)))
	r := &q.resp
	r.epsn, r.msn = q.attr.RQPSN, 0
	q.req.chunk = maxChunk
	if c := q.cfg.ReadChunk; c > 0 {
		q.req.chunk = max(1, min(uint32(c>>q.mtuShift), maxChunk))
	}
}

func (q *QP) startRequester() {
	r := &q.req
	r.una, r.nxt, r.max = q.attr.SQPSN, q.attr.SQPSN, q.attr.SQPSN
	r.window.reset()
}

// reset drops everything but the counters and the memory of the queues.
func (q *QP) reset() {
	q.state = StateReset
	q.attr = Attr{}
	q.peer = netip.Addr{}
	q.events, q.notify, q.notice = 0, false, notice{}
	q.discardKept()
	q.absent = nil
	r := &q.req
	*r = requester{queue: r.queue, window: r.window, allowance: math.MaxInt}
	r.rtt.init(q.cfg.MinProbe)
	r.queue.tail = 0
	r.window.reset()
	p := &q.resp
	*p = responder{queue: p.queue, recv: RecvWQE{SGList: p.recv.SGList[:0]}}
	p.queue.clear()
}

// Close ends the queue pair without completing anything, and lets go of its queues, its sinks and its domain: whoever
// still holds it holds a few hundred bytes. It holds no pins on memory between calls. Only State, QPN, Attr and Stats may
// be called from now on.
func (q *QP) Close(Time) {
	q.reset()
	*q = QP{cfg: Config{QPN: q.cfg.QPN, Service: q.cfg.Service}, stats: q.stats}
}
