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
)

var eventNames = map[EventKind]string{
	EventCQError:         "CQ_ERR",
	EventQPFatal:         "QP_FATAL",
	EventQPRequestError:  "QP_REQ_ERR",
	EventQPAccessError:   "QP_ACCESS_ERR",
	EventCommEstablished: "COMM_EST",
	EventSQDrained:       "SQ_DRAINED",
	EventLastWQEReached:  "QP_LAST_WQE_REACHED",
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

// eventQueue keeps events for a program that reads them. It is bounded: when
// nobody reads, the oldest are dropped and counted.
type eventQueue struct {
	mu      sync.Mutex
	items   []AsyncEvent
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
		if len(q.items) == asyncEventCap {
			q.items = append(q.items[:0], q.items[1:]...)
			q.dropped++
		}
		q.items = append(q.items, e)
	}
	q.mu.Unlock()
	q.signal()
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
		if len(q.items) > 0 {
			e := q.items[0]
			q.items = append(q.items[:0], q.items[1:]...)
			if len(q.items) > 0 {
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
		q.items = nil
		close(q.done)
	}
}

// AsyncEvent waits for the next event of the device.
func (d *Device) AsyncEvent(ctx context.Context) (AsyncEvent, error) { return d.events.get(ctx) }
