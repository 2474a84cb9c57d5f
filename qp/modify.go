package qp

import (
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/conn"
)

// Modify changes the state and the attributes that mask selects, or nothing if
// it returns an error, which is a *ModifyError. It is ibv_modify_qp with the
// state table of Linux; a mask without AttrState keeps the state.
//
// The way to ERR flushes both queues before it returns, the way to RESET drops
// what is in them. Leaving SQD for RTS needs a drained queue (EventSQDrained).
func (q *QP) Modify(a *ib.Attr, mask ib.AttrMask) error {
	to := q.conn.State
	if mask&ib.AttrState != 0 {
		to = a.State
	}
	if err := checkTransition(q.conn.State, to, q.halves.typ, mask); err != nil {
		return err
	}
	refuse := func(attr ib.AttrMask, detail string, kind error) error {
		return &ib.ModifyError{From: q.conn.State, To: to, Type: q.halves.typ, Attr: attr, Detail: detail, Err: kind}
	}
	if mask&ib.AttrCurState != 0 && a.CurState != q.conn.State {
		return refuse(ib.AttrCurState, a.CurState.String(), ib.ErrCurState)
	}
	if bad, why := checkAttr(a, mask); bad != 0 {
		return refuse(bad, why, ib.ErrAttrValue)
	}
	if q.conn.State == ib.StateSQD && to == ib.StateRTS && !q.send.Drained() {
		return refuse(0, "", ib.ErrNotDrained)
	}
	if mask&ib.AttrMaxDestRdAtomic != 0 && q.conn.State >= ib.StateRTR && q.halves.resp != nil && q.halves.resp.Waiting() {
		return refuse(ib.AttrMaxDestRdAtomic, "answers to READs are waiting", ib.ErrNotDrained)
	}
	assignAttr(&q.conn.Attr, a, mask)
	q.transit(to, a.EnableSQDNotify && mask&ib.AttrEnableSQDNotify != 0)
	q.apply(mask)
	return nil
}

// transit does what a change of state means.
func (q *QP) transit(to ib.State, notify bool) {
	from := q.conn.State
	switch to {
	case ib.StateReset:
		q.reset()
		return
	case ib.StateErr:
		q.conn.Fail(conn.EndLocal)
		q.flush()
		return
	}
	q.conn.SetState(to)
	switch {
	case from == ib.StateInit && to == ib.StateRTR:
		if q.Connected() {
			q.conn.SetMTU(q.conn.Attr.PathMTU)
		}
		q.recv.ReadyToReceive(q.conn.Attr.RQPSN)
		q.send.ReadyToReceive()
	case from == ib.StateRTR && to == ib.StateRTS:
		q.send.ReadyToSend(q.conn.Attr.SQPSN)
	case from == ib.StateRTS && to == ib.StateSQD:
		q.send.NotifyDrained(notify)
	}
}

// apply brings changed attributes to where they are used.
func (q *QP) apply(mask ib.AttrMask) {
	if mask&ib.AttrAV != 0 {
		q.conn.Peer = q.conn.Attr.AV.DGID.Unmap().WithZone("")
	}
	q.send.Configure(mask)
	if mask&ib.AttrMaxDestRdAtomic != 0 && q.halves.resp != nil {
		q.halves.resp.Resize(int(q.conn.Attr.MaxDestRdAtomic))
	}
}

// flush completes the way to ERR, if a half has just ended the connection.
func (q *QP) flush() {
	if !q.conn.Failed() {
		return
	}
	q.notices.forget()
	if q.dgram != nil {
		q.dgram.Flush()
	} else {
		q.halves.flush()
	}
}

// reset drops everything but the counters and the memory of the queues.
func (q *QP) reset() {
	q.notices.reset()
	q.conn.SetState(ib.StateReset)
	q.conn.Reset()
	q.send.Reset()
	q.recv.Reset()
}

// Close ends the queue pair without completing anything, and releases its
// queues, its sinks and its domain: a reference to it keeps a few hundred bytes
// alive. It holds no pins on memory between calls. Only State, QPN, Attr and
// Stats may be called from now on.
func (q *QP) Close() {
	q.reset()
	*q = QP{halves: Halves{typ: q.halves.typ, service: q.halves.service}, conn: conn.Conn{QPN: q.conn.QPN, Stats: q.conn.Stats}}
}
