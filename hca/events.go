package hca

import (
	"context"
	"fmt"
	"sync"
)

// EventKind names an asynchronous event.
type EventKind uint8

// The asynchronous events, named as verbs do.
const (
	EventCQError         EventKind = iota + 1 // a completion was lost: the queue was full or closed
	EventQPFatal                              // a queue pair met an error that no completion tells of
	EventQPRequestError                       // the peer sent an invalid request; the queue pair is in ERR
	EventQPAccessError                        // the peer violated access rights; the queue pair is in ERR
	EventCommEstablished                      // the first packet arrived while the queue pair was in RTR
	EventSQDrained                            // a queue pair in SQD has finished what it had begun
	EventLastWQEReached                       // a queue pair in ERR takes no more from its shared receive queue
	EventPortError                            // the link fails to receive; the device goes on trying
	EventPortActive                           // the link receives again after EventPortError
	EventPathMTU                              // an MTU on the way to the peer has become too small for a queue pair's packets
)

var eventNames = map[EventKind]string{
	EventCQError:         "CQ_ERR",
	EventQPFatal:         "QP_FATAL",
	EventQPRequestError:  "QP_REQ_ERR",
	EventQPAccessError:   "QP_ACCESS_ERR",
	EventCommEstablished: "COMM_EST",
	EventSQDrained:       "SQ_DRAINED",
	EventLastWQEReached:  "QP_LAST_WQE_REACHED",
	EventPortError:       "PORT_ERR",
	EventPortActive:      "PORT_ACTIVE",
	EventPathMTU:         "PATH_MTU",
}

func (k EventKind) String() string {
	if s, ok := eventNames[k]; ok {
		return s
	}
	return fmt.Sprintf("EVENT_%d", uint8(k))
}

// AsyncEvent tells of something that happened to an object and that no
// completion reports. QP or CQ is set, as the kind says.
type AsyncEvent struct {
	Kind EventKind
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
