package requester

import (
	"cmp"
	"fmt"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/qp/queue"
)

// stateErrors are made once: a caller may post again and again.
var stateErrors = func() (errs [ib.NumStates]error) {
	for s := range ib.NumStates {
		errs[s] = fmt.Errorf("%w: %v: sends are posted from RTS on, when the queue pair is connected", ib.ErrState, s)
	}
	return errs
}()

// Post queues a send request. States RTS and SQD take requests (SQD sends them
// once back in RTS); ERR completes them at once with WR_FLUSH_ERR; the others
// refuse (IBTA 10.3.1). On an error nothing was queued.
func (r *Requester) Post(wr *ib.SendWR) error {
	s := &r.stream
	length, err := lengthOf(s.c, &s.ring, wr)
	if err != nil {
		return explain(&s.ring, wr, err)
	}
	s.c.Stats.SendPosted++
	if s.c.Failed() {
		s.completeError(wr.ID, wr.Opcode, ib.StatusWRFlushErr, 0)
		return nil
	}
	s.ring.Push(wr, uint32(length), wr.Signaled || s.signalAll)
	return nil
}

// PostAll queues all of the requests, or none if one of them is refused. Then
// it returns which one.
func (r *Requester) PostAll(wrs []ib.SendWR) (int, error) {
	s := &r.stream
	for i := range wrs {
		if _, err := lengthOf(s.c, &s.ring, &wrs[i]); err != nil {
			return i, explain(&s.ring, &wrs[i], err)
		}
	}
	if room := s.ring.Room(); len(wrs) > room && !s.c.Failed() { // else they complete at once
		return room, ib.ErrQueueFull
	}
	for i := range wrs {
		if err := r.Post(&wrs[i]); err != nil {
			return i, err
		}
	}
	return len(wrs), nil
}

// lengthOf returns the length of a message, or what is wrong with its request.
func lengthOf(c *conn.Conn, ring *queue.SendRing, wr *ib.SendWR) (length uint64, err error) {
	switch s := c.State; {
	case s != ib.StateRTS && s != ib.StateSQD && s != ib.StateErr:
		return 0, stateErrors[s]
	case ring.Full() && s != ib.StateErr:
		return 0, ib.ErrQueueFull
	case wr.Opcode == 0:
		return 0, ib.ErrNoOpcode
	case !wr.Opcode.Known():
		return 0, ib.ErrOpcode
	}
	kind := wr.Opcode.Flags()
	switch {
	case kind&ib.OpLocal != 0:
		return 0, conn.CheckLocal(wr)
	case kind&ib.OpRemote != 0 && wr.Remote == ib.OutsideRemote:
		return 0, ib.ErrRemote
	case c.XRC() && (wr.RemoteSRQN == 0 || wr.RemoteSRQN>>24 != 0):
		return 0, ib.ErrRemoteSRQN
	case wr.Inline != nil:
		if kind&ib.OpCarries == 0 {
			return 0, ib.ErrInline
		}
		if len(wr.Inline) > ring.MaxInline() && wr.Opcode != ib.OpAtomicWrite {
			return 0, ib.ErrInlineTooLong
		}
		length = uint64(len(wr.Inline))
	case len(wr.SGList) > ring.MaxSGE():
		return 0, ib.ErrTooManySGE
	default:
		length = ib.TotalLength(wr.SGList)
	}
	if length > ib.MaxMessage {
		return 0, ib.ErrTooLong
	}
	if kind&ib.OpAnswered != 0 {
		return length, checkAnswered(c, wr, length)
	}
	return length, nil
}

// checkAnswered returns what is wrong with a request that has a response of its
// own.
func checkAnswered(c *conn.Conn, wr *ib.SendWR, length uint64) error {
	switch {
	case c.Attr.MaxRdAtomic == 0:
		return ib.ErrNoRdAtomic
	case wr.Opcode.Is(ib.OpInvalidates) && wr.InvalidateKey == 0:
		return ib.ErrNoKey
	case wr.Opcode.Is(ib.OpAtomic) && length != 8:
		return ib.ErrAtomicLength
	case wr.Opcode == ib.OpAtomicWrite && length != 8:
		return ib.ErrAtomicWrite
	case wr.Opcode == ib.OpFlush && (length != 0 || !wr.FlushType.Valid() || !wr.FlushLevel.Valid()):
		return ib.ErrFlush
	}
	return nil
}

// explain adds to err, of lengthOf, the figures that it is about; nil is nil.
func explain(ring *queue.SendRing, wr *ib.SendWR, err error) error {
	switch err {
	case ib.ErrTooLong: // an entry that stands for no memory makes it so
		return cmp.Or(ib.BadSGE(wr.SGList), err)
	case ib.ErrOpcode:
		return fmt.Errorf("%w %d", err, wr.Opcode)
	case ib.ErrRemoteSRQN:
		return fmt.Errorf("%w: RemoteSRQN is %#x; the peer has the number (SRQ.Number), of 24 bits", err, wr.RemoteSRQN)
	case ib.ErrInlineTooLong:
		return fmt.Errorf("%w: %d bytes; the queue pair was made for %d (MaxInline)", err, len(wr.Inline), ring.MaxInline())
	case ib.ErrInline:
		return fmt.Errorf("%w: %v; only SEND, WRITE and ATOMIC WRITE can", err, wr.Opcode)
	case ib.ErrTooManySGE:
		return fmt.Errorf("%w: %d; the queue pair was made for %d (MaxSendSGE)", err, len(wr.SGList), ring.MaxSGE())
	case ib.ErrAtomicLength:
		return fmt.Errorf("%w: SGList has %d", err, ib.TotalLength(wr.SGList))
	case ib.ErrAtomicWrite:
		return fmt.Errorf("%w: this one has %d", err, uint64(len(wr.Inline))+ib.TotalLength(wr.SGList))
	case ib.ErrFlush:
		return fmt.Errorf("%w: %s", err, flushFault(wr))
	}
	return err
}

// flushFault says what is wrong with a FLUSH.
func flushFault(wr *ib.SendWR) string {
	switch {
	case !wr.FlushType.Valid():
		return fmt.Sprintf("FlushType %d is neither global visibility (1), nor persistence (2), nor both (3)", wr.FlushType)
	case !wr.FlushLevel.Valid():
		return fmt.Sprintf("FlushLevel %d is neither a range (0) nor the region (1)", wr.FlushLevel)
	}
	return fmt.Sprintf("it carries no data, and SGList has %d bytes; Length says how many bytes of the peer it is about",
		ib.TotalLength(wr.SGList))
}
