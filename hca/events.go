package hca

import (
	"context"
	"sync"

	"github.com/gosoftroce/rocev2/ib"
)

// AsyncEvent tells of something that happened to an object and that no
// completion reports. QP or CQ is set, as the kind says.
type AsyncEvent struct {
	Kind ib.Event
	QP   *QP
	CQ   *CQ
}

// eventQueue keeps events for a program that reads them, in a ring. It is
// bounded: when nobody reads, the oldest are dropped and counted. It refers to
// nothing but objects that are open: closing one takes its events out, as
// destroying an object does in the kernel, and a slot that was read is cleared.
type eventQueue struct {
	mu      sync.Mutex
	ring    []AsyncEvent // a power of two, at most asyncEventCap
	head    int          // of the oldest
	n       int
	dropped uint64
	closed  bool
	wake    chan struct{}
	done    chan struct{}
}

func newEventQueue() eventQueue {
	return eventQueue{wake: make(chan struct{}, 1), done: make(chan struct{})}
}

func (q *eventQueue) push(e AsyncEvent) {
	q.mu.Lock()
	if !q.closed {
		if q.n == asyncEventCap {
			q.take()
			q.dropped++
		}
		q.put(e)
	}
	q.mu.Unlock()
	q.signal()
}

// put adds an event behind the others.
func (q *eventQueue) put(e AsyncEvent) {
	if q.n == len(q.ring) {
		ring := make([]AsyncEvent, max(2*len(q.ring), 16))
		for i := range q.n {
			ring[i] = q.ring[(q.head+i)&(len(q.ring)-1)]
		}
		q.ring, q.head = ring, 0
	}
	q.ring[(q.head+q.n)&(len(q.ring)-1)] = e
	q.n++
}

// take removes the oldest event.
func (q *eventQueue) take() AsyncEvent {
	e := q.ring[q.head]
	q.ring[q.head] = AsyncEvent{}
	q.head = (q.head + 1) & (len(q.ring) - 1)
	q.n--
	return e
}

// forget drops the events of an object, which is closed and raises no more. The
// other argument is nil.
func (q *eventQueue) forget(qp *QP, cq *CQ) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for range q.n {
		if e := q.take(); qp != nil && e.QP != qp || cq != nil && e.CQ != cq {
			q.put(e)
		}
	}
}

func (q *eventQueue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *eventQueue) get(ctx context.Context) (AsyncEvent, error) {
	for {
		q.mu.Lock()
		if q.n > 0 {
			e := q.take()
			if q.n > 0 {
				q.signal()
			}
			q.mu.Unlock()
			return e, nil
		}
		q.mu.Unlock()
		select {
		case <-q.wake:
		case <-q.done:
			return AsyncEvent{}, ErrClosed
		case <-ctx.Done():
			return AsyncEvent{}, ctx.Err()
		}
	}
}

func (q *eventQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		q.closed = true
		q.ring, q.n = nil, 0
		close(q.done)
	}
}

// AsyncEvent waits for the next event of the device. Events of objects that have
// been closed meanwhile are not among them.
func (d *Device) AsyncEvent(ctx context.Context) (AsyncEvent, error) { return d.events.get(ctx) }
