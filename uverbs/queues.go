package uverbs

import (
	"sync/atomic"

	"github.com/gosoftroce/rocev2/hca"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/uverbs/quota"
	"github.com/gosoftroce/rocev2/uverbs/ring"
)

// QueuesConfig is what the queues of a queue pair are made with.
type QueuesConfig struct {
	Type      ib.QPType
	Domain    *hca.PD
	SignalAll bool

	Send       []byte     // memory of the ring of send requests
	SendShape  ring.Shape // of elements of ring.SendElem(MaxSendSGE, MaxInline) bytes
	MaxSendSGE int
	MaxInline  int // bytes

	Recv       []byte     // memory of the ring of receives; not looked at with SRQ
	RecvShape  ring.Shape // of elements of ring.RecvElem(MaxRecvSGE) bytes
	MaxRecvSGE int
	SRQ        *SharedRecvQueue // where receives come from instead; or nil

	SendCQ, RecvCQ *CompQueue

	// IPv4 says that the device's address is one. Datagrams then complete
	// with a service level of 2: so hardware says that they came as RoCEv2
	// over IPv4, and UCX drops those of which nobody says so.
	IPv4 bool

	// Handle returns the address handle with a number, nil if there is
	// none. For datagrams.
	Handle func(number uint32) *ib.AddressHandle

	// Account is whose address handles those are that the queues make for
	// requests that name none; or nil.
	Account *quota.Account

	// Bulk takes note of what completes; or nil.
	Bulk *Bulk

	// Kick has Drain called soon. It is called with a shard locked, and
	// must not wait.
	Kick func()
}

// Queues are the send queue and the receive queue of a queue pair, in rings
// that the program fills. What the program does wrong there ends this queue
// pair, and nothing else.
//
// Their memory is in use until the queue pair is closed. Calls of Drain and
// Modify may come from any goroutine.
type Queues struct {
	qp   *hca.QP
	kick func()
	bulk *Bulk

	send sendQueue
	recv recvQueue

	// What Drain is to do. The sinks and the source say so, which must not
	// call back into the queue pair.
	fatal atomic.Bool // the receives, or an index, end it
	late  atomic.Bool // it may be in ERR, where receives that come are flushed

	posted atomic.Bool // requests were, since somebody has asked
}

// NewQueues makes the queues of a queue pair that is to be made with Config.
func NewQueues(c QueuesConfig) (*Queues, error) {
	q := &Queues{kick: c.Kick, bulk: c.Bulk}
	if q.bulk == nil {
		q.bulk = new(Bulk)
	}
	var sl uint8
	if c.IPv4 && c.Type.Service() == rocev2.ServiceUD {
		sl = 2
	}
	if err := q.send.init(q, &c, sl); err != nil {
		return nil, err
	}
	if err := q.recv.init(q, &c, sl); err != nil {
		return nil, err
	}
	return q, nil
}

// Config returns what the queue pair is to be made with.
func (q *Queues) Config() qp.Config {
	c := qp.Config{Type: q.send.typ, PD: q.send.domain.Core(), SendCQ: &q.send, RecvCQ: &q.recv, RecvSource: &q.recv, OwnSource: true,
		MaxSendWR: min(q.send.ring.Shape().Cap(), mostPosted), MaxSendSGE: q.send.limits.SGE, MaxInline: q.send.limits.Inline,
		MaxRecvWR: q.recv.ring.Shape().Cap(), MaxRecvSGE: q.recv.sge,
		SignalAll: true} // the ring gets every element back; the program sees what it has asked for
	if q.recv.srq != nil {
		c.RecvSource, c.OwnSource, c.MaxRecvWR, c.MaxRecvSGE = q.recv.srq, false, 0, q.recv.srq.sge
	}
	return c
}

// Start says which queue pair was made with Config. It comes before packets
// and before all other calls.
func (q *Queues) Start(h *hca.QP) { q.qp, q.recv.qpn = h, h.QPN() }

// Modify is Modify of the queue pair. RESET empties the queues, and takes what
// the queue pair has completed from the completion queues, as the libraries of
// hardware do: the flushed requests of before are none of the next connection.
// What waits in the send queue is posted when it can be.
func (q *Queues) Modify(a *ib.Attr, mask ib.AttrMask) error {
	err := q.modify(a, mask)
	if err == nil && mask&ib.AttrState != 0 && a.State == ib.StateReset {
		// Without the lock: the goroutine that posts for all programs
		// waits for it.
		q.send.cq.forget(uint32(q.qp.QPN()))
		q.recv.cq.forget(uint32(q.qp.QPN()))
	}
	return err
}

func (q *Queues) modify(a *ib.Attr, mask ib.AttrMask) error {
	q.send.mu.Lock()
	defer q.send.mu.Unlock()
	if err := q.qp.Modify(a, mask); err != nil {
		return err
	}
	if mask&ib.AttrState != 0 {
		if a.State == ib.StateReset {
			q.send.reset()
			q.fatal.Store(false)
		}
		q.late.Store(a.State == ib.StateErr)
		q.kick()
	}
	return nil
}

// Drain posts what waits in the send queue, at most so many requests. It
// reports whether there is more that can be posted now: then it is to be called
// again, after those of others.
func (q *Queues) Drain(most int) (more bool) {
	q.send.mu.Lock()
	defer q.send.mu.Unlock()
	if q.fatal.Load() {
		q.end()
		q.fatal.Store(false)
	}
	before := q.send.ring.Taken()
	more = q.send.drain(most)
	if q.send.ring.Taken() != before {
		q.posted.Store(true)
	}
	if q.late.Load() && q.qp.DrainReceives() {
		q.posted.Store(true) // a ring for that counts as one that posts
		return true
	}
	return more
}

// end takes the queue pair to the error state. The caller holds the lock of the
// send queue.
func (q *Queues) end() {
	q.late.Store(true)
	q.recv.pass.Store(true)
	if q.qp.Modify(&ib.Attr{State: ib.StateErr}, ib.AttrState) != nil { // it is in RESET, or closed
		q.recv.pass.Store(false)
	}
}

// Close gives back what the queues have made. The queue pair is closed.
func (q *Queues) Close() {
	q.send.mu.Lock()
	defer q.send.mu.Unlock()
	q.send.forget()
	q.send.abandon()
}

// fail has the queue pair ended soon. It may be called with a shard locked.
func (q *Queues) fail() {
	q.fatal.Store(true)
	q.kick()
}
