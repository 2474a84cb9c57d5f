package hca

import (
	"context"
	"sync"

	"github.com/gosoftroce/rocev2/internal/list"
)

// CompChannel is a completion channel: it tells a sleeping program which of
// its armed completion queues has got work. Queues come in the order in which
// they were notified, each once until it is armed again: so none starves after
// others that are busy.
type CompChannel struct {
	owner *Context

	mu       sync.Mutex
	notified list.List[CQ] // those with a notification
	closed   bool

	parker parker
}

// CreateCompChannel makes a completion channel. A goroutine that waits on one
// that is aside does not receive for the device.
func (c *Context) CreateCompChannel(aside bool) (*CompChannel, error) {
	ch := &CompChannel{owner: c}
	ch.parker.init(c.dev, nil)
	if aside {
		ch.parker.receiver = nil
	}
	if err := c.adopt(ch, kindChannel); err != nil {
		return nil, err
	}
	return ch, nil
}

// add lists cq after the others. The caller signals the parker.
func (ch *CompChannel) add(cq *CQ) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.closed || cq.notified.In() {
		return
	}
	ch.notified.PushBack(&cq.notified)
}

func (ch *CompChannel) forget(cq *CQ) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.remove(cq)
}

// remove takes cq out of the list, if it is there. The caller holds mu.
func (ch *CompChannel) remove(cq *CQ) {
	if cq.notified.In() {
		ch.notified.Remove(&cq.notified)
	}
}

// Get waits for a notification and returns the queue that it is about. The
// queue must be armed again, and then polled, to get the next one.
func (ch *CompChannel) Get(ctx context.Context) (*CQ, error) {
	for {
		if cq, err := ch.take(); cq != nil || err != nil {
			return cq, err
		}
		if err := ch.parker.park(ctx, ch); err != nil {
			return nil, err
		}
	}
}

// available implements waitable.
func (ch *CompChannel) available() (bool, error) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.closed {
		return false, ErrClosed
	}
	return ch.notified.Len() > 0, nil
}

func (ch *CompChannel) take() (*CQ, error) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.closed {
		return nil, ErrClosed
	}
	if ch.notified.Len() == 0 {
		return nil, nil
	}
	cq := ch.notified.PopFront()
	if ch.notified.Len() > 0 {
		ch.parker.signal() // another waiter may be parked
	}
	return cq, nil
}

// Close ends the channel; goroutines in Get return ErrClosed. Queues attached
// to it live on without notifications.
func (ch *CompChannel) Close() error {
	ch.mu.Lock()
	if ch.closed {
		ch.mu.Unlock()
		return nil
	}
	ch.closed = true
	for ch.notified.Len() > 0 {
		ch.notified.PopFront()
	}
	ch.mu.Unlock()
	ch.parker.close()
	ch.owner.release(ch, kindChannel)
	return nil
}
