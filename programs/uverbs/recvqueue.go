//go:build linux

package uverbs

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/programs/uverbs/ring"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
)

// recvQueue is where a queue pair completes its receives, and, unless it has a
// shared receive queue, takes them from: a ring. The ID that the queue pair
// knows is then the position there. Everything happens under the lock of the
// queue pair's shard.
type recvQueue struct {
	owner *Queues
	qpn   rocev2.QPN
	cq    *CompQueue
	sl    uint8
	srq   *SharedRecvQueue // or nil, and then:

	pd   *memreg.PD
	sge  int
	ring ring.Consumer
	elem []byte      // a copy of one
	ids  []uint64    // by slot: the program's
	bad  uint64      // position after an impossible receive; 0: none
	pass atomic.Bool // the queue pair is on its way to ERR, which flushes such a receive
}

func (r *recvQueue) init(q *Queues, o *ownedQP, sl uint8) error {
	r.owner, r.cq, r.sl = q, o.recv.core, sl
	if o.srq != nil {
		r.srq = o.srq.core
		return nil
	}
	r.pd, r.sge = o.pd.core.Core(), int(o.cap.MaxRecvSge)
	r.elem, r.ids = make([]byte, o.rq.shape.Elem), make([]uint64, o.rq.shape.Slots)
	return r.ring.Init(o.rq.mem, o.rq.shape)
}

// Next implements qp.RecvSource. An impossible receive is an error of the
// queue pair: it comes as soon as that is in ERR, and completes with its own
// status.
func (r *recvQueue) Next(w *qp.Recv) bool {
	n, err := r.ring.Waiting()
	if n == 0 {
		if err != nil && !r.pass.Load() {
			r.owner.fail()
		}
		return false
	}
	pos := r.ring.Take(r.elem)
	id, ok := receive(w, r.elem, r.sge)
	if !ok {
		r.bad = pos + 1
		if !r.pass.Load() {
			r.ring.Return(pos)
			r.owner.fail()
			return false
		}
	}
	r.ids[pos&uint64(len(r.ids)-1)] = id
	w.ID, w.PD = pos, r.pd
	return true
}

// receive reads a receive into w, and returns the program's ID of it. ok is
// false, and the list empty, if it cannot be.
func receive(w *qp.Recv, e []byte, sge int) (id uint64, ok bool) {
	id, list, status := ring.DecodeRecv(e, sge, w.SGList)
	ok = status == ib.StatusSuccess && ib.TotalLength(list) <= math.MaxUint32
	if !ok {
		list = list[:0]
	}
	w.SGList = list
	return id, ok
}

// Clear implements queue.Clearer.
func (r *recvQueue) Clear() {
	r.ring.Clear()
	r.bad = 0
	r.pass.Store(false)
}

// Complete implements qp.CompletionSink. As in the send queue, the element goes
// back first.
func (r *recvQueue) Complete(c *ib.WC) bool {
	if r.srq != nil && c.Status == ib.StatusSuccess {
		return r.cq.complete(c, c.ID, r.sl)
	}
	id := c.ID
	if c.Status != ib.StatusSuccess && !r.owner.late.Swap(true) {
		r.owner.kick() // there may be more than are flushed at once
	}
	if r.srq == nil {
		id = r.ids[c.ID&uint64(len(r.ids)-1)]
		r.ring.Release(c.ID + 1)
		if r.bad == c.ID+1 && c.Status == ib.StatusWRFlushErr {
			r.bad = 0
			wc := *c
			wc.Status = ib.StatusLocQPOpErr
			return r.cq.complete(&wc, id, r.sl)
		}
	}
	return r.cq.complete(c, id, r.sl)
}

// SharedRecvQueue is a shared receive queue in a ring that the program fills.
// Queue pairs of any shard take from it, so it has a lock of its own. An
// element goes back as soon as it was taken.
type SharedRecvQueue struct {
	pd                 *memreg.PD
	sge                int
	onLimit, onFailure func()

	mu     sync.Mutex
	ring   *ring.Consumer
	elem   []byte
	limit  int
	failed bool
	closed bool
}

// newSharedRecvQueue makes an empty queue. Its memory is in use until Close
// returns.
//
// limit is called once for each SetLimit, when a message has asked for a
// receive and fewer than the limit are left; failed once, when the ring cannot
// be used any more. Both must not wait.
func newSharedRecvQueue(mem *ringSpace, sge int, pd *memreg.PD, limit, failed func()) (*SharedRecvQueue, error) {
	s := &SharedRecvQueue{pd: pd, sge: sge, onLimit: limit, onFailure: failed, ring: new(ring.Consumer), elem: make([]byte, mem.shape.Elem)}
	return s, s.ring.Init(mem.mem, mem.shape)
}

// Next implements qp.RecvSource. A receive that cannot be ends the queue pair
// that gets it.
func (s *SharedRecvQueue) Next(w *qp.Recv) bool {
	r, ours := w.CQ.(*recvQueue)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.failed || ours && r.owner.fatal.Load() { // then it takes no more
		return false
	}
	n, err := s.ring.Waiting()
	if err != nil {
		s.failed = true
		s.onFailure()
		return false
	}
	if s.limit > max(n-1, 0) {
		s.limit = 0
		s.onLimit()
	}
	if n == 0 {
		return false
	}
	s.ring.Release(s.ring.Take(s.elem) + 1)
	var ok bool
	w.PD = s.pd
	if w.ID, ok = receive(w, s.elem, s.sge); ok {
		return true
	}
	if ours {
		r.Complete(&ib.WC{ID: w.ID, Status: ib.StatusLocQPOpErr, Opcode: ib.WCRecv, QPN: r.qpn})
		r.owner.fail()
	}
	return false
}

// SetLimit arms the limit; 0 disarms it.
func (s *SharedRecvQueue) SetLimit(n int) {
	s.mu.Lock()
	s.limit = n
	s.mu.Unlock()
}

// Attr returns how many receives the queue holds and has, and the armed limit.
func (s *SharedRecvQueue) Attr() (most, posted, limit int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, 0, 0
	}
	n, _ := s.ring.Waiting() // of a ring that lies: 0
	return s.ring.Shape().Cap(), n, s.limit
}

// Resize moves the queue to another ring. It is refused, and nothing changes,
// if that does not hold what is in the queue. The program must not post
// meanwhile. The memory before is free when it returns.
func (s *SharedRecvQueue) Resize(to *ringSpace) error {
	next := new(ring.Consumer)
	if err := next.Init(to.mem, to.shape); err != nil {
		return err
	}
	var first, at uint64
	var err error
	begun := false
	inSteps(&s.mu, func() (more bool) {
		if s.closed {
			err = errClosed
			return false
		}
		if !begun {
			begun, first, at = true, s.ring.Taken(), s.ring.Taken()
		}
		if at, more, err = s.ring.CopyTo(next, first, at); err == nil && !more {
			s.ring = next
		}
		return more
	})
	return err
}

// Close ends the queue: its memory is no longer touched, and it gives no more
// receives.
func (s *SharedRecvQueue) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
}
