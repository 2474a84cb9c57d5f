package qp

import (
	"fmt"

	"github.com/gosoftroce/rocev2/clock"
	"github.com/gosoftroce/rocev2/ib"
)

const (
	opPostSend = "post send"
	opPostRecv = "post receive"
)

// The errors of posting are made once: a caller that polls a full queue must not allocate.
var (
	sendErrors = map[error]*PostError{}
	recvErrors = map[error]*PostError{}
	stateErrs  [2][ib.NumStates]*PostError
)

func init() {
	for _, e := range []error{ib.ErrQueueFull, ib.ErrTooLong, ib.ErrNoRdAtomic, ib.ErrShared, ib.ErrRemote, ib.ErrNoOpcode} {
		sendErrors[e] = &PostError{Op: opPostSend, Err: e}
		recvErrors[e] = &PostError{Op: opPostRecv, Err: e}
	}
	for s := range ib.NumStates {
		stateErrs[0][s] = &PostError{Op: opPostSend, State: s, Err: ib.ErrState}
		stateErrs[1][s] = &PostError{Op: opPostRecv, State: s, Err: ib.ErrState}
	}
}

// PostSend queues a send request. The error is a *PostError, and then nothing was queued. States RTS and SQD take
// requests (SQD sends them once back in RTS); ERR completes them at once with WR_FLUSH_ERR; the others refuse.
//
// Keys and addresses of the scatter list are not looked at here: they become a completion status.
func (q *QP) PostSend(_ clock.Time, wr *ib.SendWR) error {
	switch q.state {
	case ib.StateRTS, ib.StateSQD, ib.StateErr:
	default:
		return stateErrs[0][q.state]
	}
	length, err := q.checkSend(wr)
	if err != nil {
		return q.refuseSend(wr, err)
	}
	q.stats.SendPosted++
	if q.state == ib.StateErr {
		q.sendWC(wr.ID, wr.Opcode, ib.StatusWRFlushErr, 0)
		return nil
	}
	s := &q.req.queue
	i := s.tail
	w := s.at(i)
	*w = sendWQE{id: wr.ID, opcode: wr.Opcode, length: uint32(length), remote: wr.Remote.Addr,
		rkey: uint32(wr.Remote.RKey), compareAdd: wr.CompareAdd, swap: wr.Swap, arg: wr.Imm}
	if wr.Opcode == ib.OpSendInv {
		w.arg = uint32(wr.InvalidateKey)
	}
	if wr.Signaled || q.cfg.SignalAll {
		w.flags |= flagSignaled
	}
	if wr.Solicited && w.consumesRecv() {
		w.flags |= flagSolicited
	}
	if wr.Fence {
		w.flags |= flagFence
	}
	if wr.Inline != nil {
		w.flags |= flagInline
		copy(s.data(i), wr.Inline)
	} else {
		w.nsge = uint8(len(wr.SGList))
		copy(s.list(i, w), wr.SGList)
	}
	s.tail++
	return nil
}

// checkSend returns the length of the message, or what is wrong with the request.
func (q *QP) checkSend(wr *ib.SendWR) (length uint64, err error) {
	s := &q.req.queue
	switch {
	case q.state != ib.StateErr && s.tail-q.req.head >= s.depth:
		return 0, ib.ErrQueueFull
	case !wr.Opcode.Known():
		if wr.Opcode == 0 {
			return 0, ib.ErrNoOpcode
		}
		return 0, ib.ErrOpcode
	case wr.Opcode.Is(ib.OpRemote) && wr.Remote == ib.OutsideRemote:
		return 0, ib.ErrRemote
	case wr.Inline != nil:
		if !wr.Opcode.Is(ib.OpCarries) {
			return 0, ib.ErrInline
		}
		if len(wr.Inline) > int(s.bytes) {
			return 0, ib.ErrInlineTooLong
		}
		return uint64(len(wr.Inline)), nil
	case len(wr.SGList) > int(s.sge):
		return 0, ib.ErrTooManySGE
	}
	length = ib.TotalLength(wr.SGList)
	if length > ib.MaxMessage {
		return 0, ib.ErrTooLong
	}
	if wr.Opcode.Is(ib.OpAnswered) {
		if q.attr.MaxRdAtomic == 0 {
			return 0, ib.ErrNoRdAtomic
		}
		if wr.Opcode.Is(ib.OpAtomic) && length != 8 {
			return 0, ib.ErrAtomicLength
		}
	}
	return length, nil
}

// refuseSend adds to err, of checkSend, the figures that it is about.
func (q *QP) refuseSend(wr *ib.SendWR, err error) error {
	s := &q.req.queue
	switch err {
	case ib.ErrTooLong:
		return tooLong(opPostSend, wr.SGList, sendErrors[err])
	case ib.ErrOpcode:
		err = fmt.Errorf("%w %d", err, wr.Opcode)
	case ib.ErrInlineTooLong:
		err = fmt.Errorf("%w: %d bytes; the queue pair was made for %d (MaxInline)", err, len(wr.Inline), s.bytes)
	case ib.ErrInline:
		err = fmt.Errorf("%w: %v; only SEND and WRITE can", err, wr.Opcode)
	case ib.ErrTooManySGE:
		err = fmt.Errorf("%w: %d; the queue pair was made for %d (MaxSendSGE)", err, len(wr.SGList), s.sge)
	case ib.ErrAtomicLength:
		err = fmt.Errorf("%w: SGList has %d", err, ib.TotalLength(wr.SGList))
	default:
		return sendErrors[err]
	}
	return &PostError{Op: opPostSend, Err: err}
}

// tooLong returns the error for a list that is too long: an entry that stands for no memory makes it so.
func tooLong(op string, sg []ib.SGE, otherwise error) error {
	for i := range sg {
		if err := sg[i].Err(); err != nil {
			return &PostError{Op: op, Err: fmt.Errorf("scatter/gather entry %d: %w", i, err)}
		}
	}
	return otherwise
}

// PostRecv queues a receive, from state INIT on. In ERR it completes at once with WR_FLUSH_ERR. The error is a *PostError,
// and then nothing was queued.
func (q *QP) PostRecv(_ clock.Time, wr *ib.RecvWR) error {
	switch {
	case q.cfg.RecvSource != nil:
		return recvErrors[ib.ErrShared]
	case q.state == ib.StateReset:
		return stateErrs[1][q.state]
	case len(wr.SGList) > q.cfg.MaxRecvSGE:
		return &PostError{Op: opPostRecv, Err: fmt.Errorf("%w: %d; the queue pair was made for %d (MaxRecvSGE)",
			ib.ErrTooManySGE, len(wr.SGList), q.cfg.MaxRecvSGE)}
	case ib.TotalLength(wr.SGList) >= 1<<32-1: // as an invalid entry is
		if err := tooLong(opPostRecv, wr.SGList, nil); err != nil {
			return err
		}
		if ib.TotalLength(wr.SGList) > 1<<32-1 {
			return recvErrors[ib.ErrTooLong]
		}
	}
	if q.state == ib.StateErr {
		q.stats.RecvPosted++
		q.wc = ib.WC{ID: wr.ID, Opcode: ib.WCRecv, Status: ib.StatusWRFlushErr}
		q.recvWC()
		return nil
	}
	if !q.resp.queue.push(wr) {
		return recvErrors[ib.ErrQueueFull]
	}
	q.stats.RecvPosted++
	return nil
}
