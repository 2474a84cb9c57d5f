package qp

import (
	"math"
	"math/bits"
	"net/netip"

	"github.com/gosoftroce/rocev2/clock"
	"github.com/gosoftroce/rocev2/ib"
)

// Modify changes the state and the attributes that mask selects, or nothing if it returns an error, which is a
// *ModifyError. It is ibv_modify_qp with the state table of Linux; a mask without AttrState keeps the state.
//
// The way to ERR flushes both queues before it returns, the way to RESET drops what is in them. Leaving SQD for RTS needs a
// drained queue (EventSQDrained).
func (q *QP) Modify(now clock.Time, a *ib.Attr, mask ib.AttrMask) error {
	to := q.state
	if mask&ib.AttrState != 0 {
		to = a.State
	}
	if err := checkTransition(q.state, to, q.cfg.Service, mask); err != nil {
		return err
	}
	refuse := func(attr ib.AttrMask, detail string, kind error) error {
		return &ib.ModifyError{From: q.state, To: to, Service: q.cfg.Service, Attr: attr, Detail: detail, Err: kind}
	}
	if mask&ib.AttrCurState != 0 && a.CurState != q.state {
		return refuse(ib.AttrCurState, a.CurState.String(), ib.ErrCurState)
	}
	if bad, why := checkAttr(a, mask); bad != 0 {
		return refuse(bad, why, ib.ErrAttrValue)
	}
	if q.state == ib.StateSQD && to == ib.StateRTS && !q.drained() {
		return refuse(0, "", ib.ErrNotDrained)
	}
	if mask&ib.AttrMaxDestRdAtomic != 0 && q.state >= ib.StateRTR && !q.resp.out.empty() {
		return refuse(ib.AttrMaxDestRdAtomic, "answers to READs are waiting", ib.ErrNotDrained)
	}
	assignAttr(&q.attr, a, mask)
	q.transit(now, to, a.EnableSQDNotify && mask&ib.AttrEnableSQDNotify != 0)
	q.apply(mask)
	return nil
}

// transit does what a change of state means.
func (q *QP) transit(now clock.Time, to ib.State, notify bool) {
	from := q.state
	switch to {
	case ib.StateReset:
		q.reset()
		return
	case ib.StateErr:
		q.enterError(false)
		return
	}
	q.state = to
	switch {
	case from == ib.StateInit && to == ib.StateRTR:
		q.startResponder()
	case from == ib.StateRTR && to == ib.StateRTS:
		q.startRequester()
	case from == ib.StateRTS && to == ib.StateSQD:
		q.notify = notify
		q.checkDrained()
	}
}

// apply brings changed attributes to where they are used.
func (q *QP) apply(mask ib.AttrMask) {
	if mask&ib.AttrAV != 0 {
		q.peer = q.attr.AV.DGID.Unmap().WithZone("")
	}
	if mask&(ib.AttrTimeout|ib.AttrRetryCount) != 0 {
		armed := q.req.retry.armed
		q.req.retry.configure(q.attr.Timeout, q.attr.RetryCount)
		q.req.retry.armed = armed
	}
	if mask&ib.AttrRNRRetry != 0 {
		q.req.rnr.configure(q.attr.RNRRetry)
	}
	if mask&ib.AttrMaxDestRdAtomic != 0 {
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
	q.state = ib.StateReset
	q.attr = ib.Attr{}
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
func (q *QP) Close(clock.Time) {
	q.reset()
	*q = QP{cfg: Config{QPN: q.cfg.QPN, Service: q.cfg.Service}, stats: q.stats}
}
