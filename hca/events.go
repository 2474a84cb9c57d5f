package hca

import (
	"context"
	"sync"

	"github.com/gosoftroce/rocev2/hca/task"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/transport"
)

// maxEvents is how many events are kept for a program that does not read them.
const maxEvents = 4096

// event is an asynchronous event of an object; nil is an unaffiliated one, of
// the device or its port.
type event struct {
	kind   ib.Event
	object any
}

// eventQueue keeps events for a program that reads them, in a ring. It is
// bounded: while they are not read, the oldest are dropped and counted. It
// refers to nothing but objects that are open: closing one takes its events
// out, as destroying an object does in the kernel, and a slot that was read is
// cleared.
type eventQueue struct {
	mu      sync.Mutex
	ring    []event // a power of two, at most maxEvents
	head    int     // of the oldest
	n       int
	dropped uint64
	closed  bool
	handler func(event) // takes them at once; nil: they are kept
	wake    chan struct{}
	done    chan struct{}

	driven *Driven       // nil without a driver
	asleep task.Sleepers // with one
}

func newEventQueue() *eventQueue {
	return &eventQueue{wake: make(chan struct{}, 1), done: make(chan struct{})}
}

func (q *eventQueue) push(e event) {
	q.mu.Lock()
	if q.handler != nil {
		if !q.closed {
			q.handler(e)
		}
		q.mu.Unlock()
		return
	}
	if !q.closed {
		if q.n == maxEvents {
			q.take()
			q.dropped++
		}
		q.put(e)
	}
	q.mu.Unlock()
	q.signal()
}

// put adds an event after the others.
func (q *eventQueue) put(e event) {
	if q.n == len(q.ring) {
		ring := make([]event, max(2*len(q.ring), 16))
		for i := range q.n {
			ring[i] = q.ring[(q.head+i)&(len(q.ring)-1)]
		}
		q.ring, q.head = ring, 0
	}
	q.ring[(q.head+q.n)&(len(q.ring)-1)] = e
	q.n++
}

// take removes the oldest event.
func (q *eventQueue) take() event {
	e := q.ring[q.head]
	q.ring[q.head] = event{}
	q.head = (q.head + 1) & (len(q.ring) - 1)
	q.n--
	return e
}

// forget drops the events of an object, which is closed and raises no more.
func (q *eventQueue) forget(object any) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for range q.n {
		if e := q.take(); e.object != object {
			q.put(e)
		}
	}
}

func (q *eventQueue) signal() {
	q.asleep.Wake()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *eventQueue) get(ctx context.Context) (event, error) {
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
		closed := q.closed
		q.mu.Unlock()
		if q.driven != nil && !closed {
			if err := q.asleep.Sleep(ctx, q.driven.driver, 0); err != nil {
				return event{}, err
			}
			continue
		}
		select {
		case <-q.wake:
		case <-q.done:
			return event{}, ErrClosed
		case <-ctx.Done():
			return event{}, ctx.Err()
		}
	}
}

// lost returns how many events were not read in time.
func (q *eventQueue) lost() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.dropped
}

func (q *eventQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		q.closed = true
		q.ring, q.n = nil, 0
		close(q.done)
		q.asleep.Wake()
	}
}

// eventHub knows the event queues of all contexts of a device. An event of an
// object goes to the context that has made it, an unaffiliated one to all of
// them (IBTA 11.6.3.1, 11.6.3.2).
type eventHub struct {
	mu     sync.Mutex
	queues map[*eventQueue]struct{}
	driven *Driven // of the device; nil without a driver
	past   uint64  // events that closed queues have lost
	later  func()  // does what handlers of events have left for later
}

func newEventHub() *eventHub { return &eventHub{queues: map[*eventQueue]struct{}{}} }

// add makes a queue.
func (h *eventHub) add() *eventQueue {
	h.mu.Lock()
	defer h.mu.Unlock()
	q := newEventQueue()
	q.driven = h.driven
	h.queues[q] = struct{}{}
	return q
}

// remove closes a queue.
func (h *eventHub) remove(q *eventQueue) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, there := h.queues[q]; there {
		delete(h.queues, q)
		h.past += q.lost()
	}
	q.close()
}

// broadcast raises an unaffiliated event.
func (h *eventHub) broadcast(k ib.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for q := range h.queues {
		q.push(event{kind: k})
	}
}

// lost returns how many events were not read in time.
func (h *eventHub) lost() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.past
	for q := range h.queues {
		n += q.lost()
	}
	return n
}

// portChanged raises the event for what has changed at the port. No lock may be
// given up for long after it.
func (h *eventHub) portChanged(c transport.PortChange) {
	switch c {
	case transport.PortWentDown:
		h.broadcast(ib.EventPortError)
	case transport.PortCameUp:
		h.broadcast(ib.EventPortActive)
	case transport.PortAddrChanged:
		h.broadcast(ib.EventGIDChange)
	}
	h.later()
}
