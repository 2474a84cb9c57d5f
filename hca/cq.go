package hca

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/gosoftroce/rocev2/qp"
)

// CQ is a completion queue: a ring that queue pairs fill and a program empties.
// Its methods may be called from any goroutine.
type CQ struct {
	dev   *Device
	owner *Owner

	userData any // the layer above's; set once, before the queue is used

	mu       sync.Mutex
	ring     []qp.WC // a power of two
	head     uint32  // next to take
	tail     uint32  // next to fill
	cap      uint32
	armed    armState
	channel  *CompChannel
	waiting  int  // goroutines parked in Wait
	overrun  bool // an entry was lost: the queue is in error
	closed   bool
	reported bool // the overrun has raised its event

	wake chan struct{} // a token for one parked waiter
	done chan struct{} // closed with the queue

	// pending mirrors tail-head, so that an empty poll takes no lock.
	pending atomic.Uint32
}

type armState uint8

const (
	notArmed armState = iota
	armedSolicited
	armedAny
)

// CreateCQ makes a completion queue of at least n entries. ch may be nil.
func (o *Owner) CreateCQ(n int, ch *CompChannel) (*CQ, error) {
	if err := checkRange("completion queue size", n, 1, MaxCQE); err != nil {
		return nil, err
	}
	size := 1
	for size < n {
		size <<= 1
	}
	cq := &CQ{
		dev: o.dev, owner: o, channel: ch,
		ring: make([]qp.WC, size), cap: uint32(size),
		wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
	if err := o.adopt(cq, &o.cqs, MaxCQ, "completion queues"); err != nil {
		return nil, err
	}
	return cq, nil
}

// SetUserData attaches a value of the layer above, once, before any other use.
func (cq *CQ) SetUserData(v any) { cq.userData = v }

// UserData returns what SetUserData attached.
func (cq *CQ) UserData() any { return cq.userData }

// Device returns the device of the queue.
func (cq *CQ) Device() *Device { return cq.dev }

// Progress handles what the queue's device has received; see Device.Progress.
func (cq *CQ) Progress() bool { return cq.dev.Progress() }

// Cap returns the number of entries that the queue holds.
func (cq *CQ) Cap() int { return int(cq.cap) }

// Complete implements qp.CompletionSink. It is called with a shard locked.
func (cq *CQ) Complete(c *qp.WC) bool {
	cq.mu.Lock()
	if cq.closed || cq.tail-cq.head == cq.cap {
		report := !cq.closed && !cq.reported
		cq.overrun, cq.reported = true, true
		cq.mu.Unlock()
		if report {
			cq.dev.events.push(AsyncEvent{Kind: EventCQError, CQ: cq})
		}
		return false
	}
	cq.ring[cq.tail&(cq.cap-1)] = *c
	cq.tail++
	cq.pending.Store(cq.tail - cq.head)
	notify := cq.armed == armedAny || cq.armed == armedSolicited && (c.Solicited || c.Status != qp.StatusSuccess)
	if notify {
		cq.armed = notArmed
	}
	wake := cq.waiting > 0
	ch := cq.channel
	cq.mu.Unlock()
	if wake {
		cq.signal()
	}
	if notify && ch != nil {
		ch.push(cq)
	}
	return true
}

func (cq *CQ) signal() {
	select {
	case cq.wake <- struct{}{}:
	default:
	}
}

// Poll takes up to len(wc) completions and returns how many it took. It never
// waits.
func (cq *CQ) Poll(wc []qp.WC) int {
	if cq.pending.Load() == 0 {
		return 0
	}
	cq.mu.Lock()
	n := min(uint32(len(wc)), cq.tail-cq.head)
	for i := range n {
		wc[i] = cq.ring[(cq.head+i)&(cq.cap-1)]
	}
	cq.head += n
	left := cq.tail - cq.head
	cq.pending.Store(left)
	again := left > 0 && cq.waiting > 0
	cq.mu.Unlock()
	if again {
		cq.signal()
	}
	return int(n)
}

// Wait takes at least one completion, waiting for it as long as ctx allows.
func (cq *CQ) Wait(ctx context.Context, wc []qp.WC) (int, error) {
	if len(wc) == 0 {
		return 0, nil
	}
	for {
		if n := cq.pollSpinning(wc); n > 0 {
			return n, nil
		}
		if n, err := cq.park(ctx, wc); n > 0 || err != nil {
			return n, err
		}
	}
}

// pollSpinning polls for a short while, handling what the link has received on
// this goroutine: that saves the wake-up of two goroutines.
func (cq *CQ) pollSpinning(wc []qp.WC) int {
	for i := 0; ; i++ {
		if n := cq.Poll(wc); n > 0 || i >= cq.dev.spin {
			return n
		}
		if !cq.dev.Progress() {
			runtime.Gosched()
		}
	}
}

// park waits for a wake-up. It returns 0 and no error after a spurious one.
func (cq *CQ) park(ctx context.Context, wc []qp.WC) (int, error) {
	cq.mu.Lock()
	if cq.closed {
		cq.mu.Unlock()
		return 0, ErrClosed
	}
	cq.waiting++
	empty := cq.tail == cq.head
	cq.mu.Unlock()
	var err error
	if empty {
		select {
		case <-cq.wake:
		case <-cq.done:
			err = ErrClosed
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	cq.mu.Lock()
	cq.waiting--
	cq.mu.Unlock()
	n := cq.Poll(wc)
	if n > 0 {
		err = nil
	}
	return n, err
}

// Arm asks for one notification on the completion channel: for the next
// completion, or, with solicitedOnly, for the next receive whose sender
// solicited an event and for the next error (IBTA 11.4.2.2). Completions that
// are already there raise none, so poll after arming.
func (cq *CQ) Arm(solicitedOnly bool) {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	if !solicitedOnly {
		cq.armed = armedAny
	} else if cq.armed == notArmed {
		cq.armed = armedSolicited
	}
}

// Close ends the queue. Goroutines in Wait return ErrClosed; a queue pair that
// still completes into it goes to the error state.
func (cq *CQ) Close() error {
	cq.mu.Lock()
	if cq.closed {
		cq.mu.Unlock()
		return nil
	}
	cq.closed = true
	ch := cq.channel
	cq.mu.Unlock()
	close(cq.done)
	if ch != nil {
		ch.forget(cq)
	}
	cq.owner.release(cq, &cq.owner.cqs)
	return nil
}
