//go:build linux

package uverbs

import (
	"sync/atomic"

	"github.com/gosoftroce/rocev2/hca"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
)

// Queues are the send queue and the receive queue of a queue pair, in rings
// that the program fills. What the program does wrong there ends this queue
// pair, and nothing else.
//
// Their memory is in use until Close. Calls of Serve and Modify may come from
// any goroutine.
type Queues struct {
	qp   *hca.QP
	kick func() // has Serve called soon; it may be called with a shard locked

	send sendQueue
	recv recvQueue

	// What Serve is to do. The sinks and the source say so, which must not
	// call back into the queue pair.
	most ib.Limits // of the device

	fatal atomic.Bool // the receives, or an index, end it
	late  atomic.Bool // it may be in ERR, where receives that come are flushed

	wanted atomic.Bool // Serve was called, and is not done
	kicked bool        // guarded by the deferred work
	closed bool        // guarded by the lock of the send queue
}

// newQueues makes the queues of a queue pair that is to be made with Config, in
// its rings.
//
// Where the device's address is one of IPv4, datagrams complete with a service
// level of 2: so hardware says that they came as RoCEv2 over IPv4, and UCX
// drops those of which nothing says so.
func newQueues(o *ownedQP) (*Queues, error) {
	q := &Queues{most: o.all.dev.Dev.Limits()}
	q.kick = func() { o.all.events.deferred.serve(q) }
	var sl uint8
	if o.typ == ib.UD && o.all.dev.Dev.Addr().Unmap().Is4() {
		sl = 2
	}
	if err := q.send.init(q, o, sl); err != nil {
		return nil, err
	}
	if err := q.recv.init(q, o, sl); err != nil {
		return nil, err
	}
	return q, nil
}

// Config returns what the queue pair is to be made with.
func (q *Queues) Config() qp.Config {
	c := qp.Config{Type: q.send.typ, PD: q.send.domain.Core(), SendCQ: &q.send, RecvCQ: &q.recv, RecvSource: &q.recv, OwnSource: true,
		MaxSendWR: min(q.send.ring.Shape().Cap(), mostPosted, q.most.WR), MaxSendSGE: q.send.limits.SGE, MaxInline: q.send.limits.Inline,
		MaxRecvWR: min(q.recv.ring.Shape().Cap(), q.most.WR), MaxRecvSGE: q.recv.sge,
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
		q.send.cq.forget(uint32(q.qp.QPN()))
		q.recv.cq.forget(uint32(q.qp.QPN()))
	}
	return err
}

func (q *Queues) modify(a *ib.Attr, mask ib.AttrMask) error {
	q.send.mu.Lock()
	defer q.unlock()
	if err := q.qp.Modify(a, mask); err != nil {
		return err
	}
	if mask&ib.AttrState != 0 {
		if a.State == ib.StateReset {
			q.send.reset()
			q.fatal.Store(false)
		}
		q.late.Store(a.State == ib.StateErr)
		q.wanted.Store(true)
	}
	return nil
}

// turnOf is how many requests are posted before it is looked what else there
// is to do.
const turnOf = 64

// Serve posts what waits in the send queue, as far as it can be posted now.
// Where another goroutine is at it, or this one has called here from below,
// that goes on in its place.
func (q *Queues) Serve() {
	q.wanted.Store(true)
	if q.send.mu.TryLock() {
		q.unlock()
	}
}

// unlock does what Serve was called for, and gives up the lock of the send
// queue.
func (q *Queues) unlock() {
	for {
		for q.wanted.Swap(false) {
			q.send.bell.revoke()
			for !q.closed && q.drain(turnOf) {
			}
		}
		if !q.closed {
			q.send.gather()
		}
		q.send.mu.Unlock()
		if !q.wanted.Load() || !q.send.mu.TryLock() { // the one that has it looks after us
			return
		}
	}
}

// drain posts at most the given number of requests. It reports whether there is
// more that can be posted now. The send queue is locked.
func (q *Queues) drain(most int) (more bool) {
	if q.fatal.Load() {
		q.end()
		q.fatal.Store(false)
	}
	more = q.send.drain(most)
	return q.late.Load() && q.qp.DrainReceives() || more
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
	q.closed = true
	q.send.bell.revoke()
	q.send.forget()
	q.send.cq.drop(&q.send)
	q.send.mu.Unlock()
}

// fail has the queue pair ended soon. It may be called with a shard locked.
func (q *Queues) fail() {
	q.fatal.Store(true)
	q.kick()
}
