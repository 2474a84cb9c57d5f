package hca

import (
	"context"
	"slices"
	"sync"
)

// CompChannel is a completion channel: it tells a sleeping program which of
// its armed completion queues has got work.
type CompChannel struct {
	owner *Context

	mu     sync.Mutex
	ready  []*CQ // each at most once
	closed bool

	parker parker
}

// CreateCompChannel makes a completion channel.
func (o *Context) CreateCompChannel() (*CompChannel, error) {
	ch := &CompChannel{owner: o}
	ch.parker.init(o.dev)
	if err := o.adopt(ch, kindChannel); err != nil {
		return nil, err
	}
	return ch, nil
}

// add lists cq. The caller signals the parker.
func (ch *CompChannel) add(cq *CQ) {
	ch.mu.Lock()
	if !ch.closed && !slices.Contains(ch.ready, cq) {
		ch.ready = append(ch.ready, cq)
	}
	ch.mu.Unlock()
}

func (ch *CompChannel) forget(cq *CQ) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if i := slices.Index(ch.ready, cq); i >= 0 {
		ch.ready = slices.Delete(ch.ready, i, i+1)
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
	return len(ch.ready) > 0, nil
}

func (ch *CompChannel) take() (*CQ, error) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.closed {
		return nil, ErrClosed
	}
	if len(ch.ready) == 0 {
		return nil, nil
	}
	cq := ch.ready[0]
	ch.ready = slices.Delete(ch.ready, 0, 1)
	if len(ch.ready) > 0 {
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
	ch.ready = nil
	ch.mu.Unlock()
	ch.parker.close()
	ch.owner.release(ch, kindChannel)
	return nil
}
