package hca

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/gosoftroce/rocev2/ib"
)

// CQ is a completion queue: a ring that queue pairs fill and a program empties.
// Its methods may be called from any goroutine.
type CQ struct {
	dev   *Device
	owner *Context

	userData any // the layer above's; set once, before the queue is used

	mu      sync.Mutex
	ring    []ib.WC // a power of two
	head    uint32  // next to take
	tail    uint32  // next to fill
	cap     uint32
	armed   armState
	channel *CompChannel
	overrun bool // an entry was lost: the queue is in error, which raised its event
	closed  bool

	parker parker
	spin   atomic.Int32 // polls before parking: what has been worth while

	// pending mirrors tail-head, so that an empty poll takes no lock.
	pending atomic.Uint32
}

type armState uint8

const (
	notArmed armState = iota
	armedSolicited
	armedAny
)

// CreateCQ makes a completion queue of at least n entries. ch may be nil; else
// it is open and of the same device.
func (o *Context) CreateCQ(n int, ch *CompChannel) (*CQ, error) {
	if err := checkRange("completion queue size", n, 1, ib.MaxCQE); err != nil {
		return nil, err
	}
	if ch != nil {
		if ch.owner.dev != o.dev {
			return nil, fmt.Errorf("completion channel: %w", ErrOtherDevice)
		}
		if _, err := ch.available(); err != nil {
			return nil, fmt.Errorf("completion channel: %w", err)
		}
	}
	size := 1
	for size < n {
		size <<= 1
	}
	cq := &CQ{
		dev: o.dev, owner: o, channel: ch,
		ring: make([]ib.WC, size), cap: uint32(size),
	}
	cq.parker.init(o.dev)
	cq.spin.Store(int32(o.dev.spin))
	if err := o.adopt(cq, kindCQ); err != nil {
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

// usable reports what keeps queue pairs of d from completing into the queue.
func (cq *CQ) usable(d *Device) error {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	switch {
	case cq.dev != d:
		return ErrOtherDevice
	case cq.closed:
		return ErrClosed
	}
	return nil
}

// Cap returns the number of entries that the queue holds.
func (cq *CQ) Cap() int { return int(cq.cap) }

// Complete implements qp.CompletionSink. It is called with a shard locked.
func (cq *CQ) Complete(c *ib.WC) bool {
	cq.mu.Lock()
	if cq.closed || cq.tail-cq.head == cq.cap {
		if !cq.closed && !cq.overrun {
			cq.overrun = true
			cq.dev.events.push(event{ib.EventCQError, cq}) // before Close takes it out
		}
		cq.mu.Unlock()
		return false
	}
	cq.ring[cq.tail&(cq.cap-1)] = *c
	cq.tail++
	cq.pending.Store(cq.tail - cq.head)
	notify := cq.armed == armedAny || cq.armed == armedSolicited && (c.Solicited || c.Status != ib.StatusSuccess)
	if notify {
		cq.armed = notArmed
	}
	ch := cq.channel
	if notify = notify && ch != nil; notify {
		ch.add(cq) // before Close takes it out
	}
	cq.mu.Unlock()
	cq.parker.signalLocked()
	if notify {
		ch.parker.signalLocked()
	}
	return true
}

// Poll takes up to len(wc) completions and returns how many it took. It never
// waits.
func (cq *CQ) Poll(wc []ib.WC) int {
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
	cq.mu.Unlock()
	if left > 0 {
		cq.parker.signal() // another waiter may have gone to sleep over these
	}
	return int(n)
}

// PollProgress is Poll that first handles what the device has received, on the
// caller's goroutine, when the queue is empty.
func (cq *CQ) PollProgress(wc []ib.WC) int {
	n, _ := cq.pollProgress(wc)
	return n
}

// pollProgress is PollProgress that also says whether the device had anything.
func (cq *CQ) pollProgress(wc []ib.WC) (n int, progress bool) {
	if n := cq.Poll(wc); n > 0 {
		return n, true
	}
	if !cq.dev.Progress() {
		return 0, false
	}
	return cq.Poll(wc), true
}

// Wait takes at least one completion, waiting for it as long as ctx allows. It
// returns ErrNoRoom if wc is empty.
func (cq *CQ) Wait(ctx context.Context, wc []ib.WC) (int, error) {
	if len(wc) == 0 {
		return 0, ErrNoRoom
	}
	n := cq.pollSpinning(ctx, wc)
	for n == 0 {
		err := cq.parker.park(ctx, cq)
		if n = cq.Poll(wc); n == 0 && err != nil {
			return 0, err
		}
	}
	return n, nil
}

// pollSpinning polls for a short while, which saves going to sleep and being
// woken. How long it does so follows what came of it; in the middle of a bulk
// transfer it is longer.
func (cq *CQ) pollSpinning(ctx context.Context, wc []ib.WC) int {
	most := int32(cq.dev.spin)
	budget := cq.spin.Load()
	for i := int32(0); i <= budget || i <= lingerPolls && cq.dev.inBulk(); i++ {
		n, progress := cq.pollProgress(wc)
		if i > 0 && progress {
			budget = min(2*budget, most)
			cq.spin.Store(budget)
		}
		if n > 0 {
			return n
		}
		if progress {
			if ctx.Err() != nil {
				break
			}
			i = 0 // it is on its way
		}
		runtime.Gosched()
	}
	cq.spin.Store(max(budget/2, min(1, most)))
	return 0
}

// available implements waitable.
func (cq *CQ) available() (bool, error) {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	if cq.tail != cq.head {
		return true, nil
	}
	if cq.closed {
		return false, ErrClosed
	}
	return false, nil
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

// Close ends the queue and drops what is in it. Goroutines in Wait return
// ErrClosed; a queue pair that still completes into it goes to the error state.
// Its memory is free also while queue pairs or the program still hold it.
func (cq *CQ) Close() error {
	cq.mu.Lock()
	if cq.closed {
		cq.mu.Unlock()
		return nil
	}
	cq.closed = true
	cq.ring, cq.head, cq.tail = nil, 0, 0
	cq.pending.Store(0)
	ch, overrun := cq.channel, cq.overrun
	cq.channel = nil
	cq.mu.Unlock()
	cq.parker.close()
	if ch != nil {
		ch.forget(cq)
	}
	if overrun {
		cq.dev.events.forget(cq)
	}
	cq.owner.release(cq, kindCQ)
	return nil
}
