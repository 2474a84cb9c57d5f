package hca

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/gosoftroce/rocev2/hca/wake"
)

// WithHandler has f called when completions have come, and once when the queue
// is closed: open is then false. f runs on the goroutine that has received
// them, which wakes no other, holds no lock, and waits for f. Calls never
// overlap. f polls the queue until it is empty; what comes meanwhile makes one
// more call.
func WithHandler(f func(open bool)) CQOption {
	return func(c *cqOptions) { c.handler = f }
}

// handlers has what is to be called when the shard's lock is given up: the
// handlers of completion queues, and what Later has brought.
type handlers struct {
	any atomic.Bool
	ran atomic.Bool // a handler has run since the receiver has looked

	mu  sync.Mutex
	due []runner
}

// runner is a completion queue with a handler, or what Later has brought.
type runner interface{ run() }

// add has r run. The caller holds a shard's lock.
func (h *handlers) add(r runner) {
	h.mu.Lock()
	h.due = append(h.due, r)
	h.any.Store(true)
	h.mu.Unlock()
}

// handle has the handler of the queue called. The caller holds a shard's lock.
func (cq *CQ) handle() {
	if !cq.handlerDue.Swap(true) {
		cq.parker.dev.handlers.add(cq)
	}
}

// run implements runner.
func (cq *CQ) run() {
	cq.handlerDue.Store(false)
	cq.parker.dev.handlers.ran.Store(true)
	cq.callHandler()
}

// run calls what is due. The caller holds no lock.
func (h *handlers) run() {
	for h.any.Load() {
		h.mu.Lock()
		last := len(h.due) - 1
		if last < 0 {
			h.mu.Unlock()
			return
		}
		r := h.due[last]
		h.due[last], h.due = nil, h.due[:last]
		h.any.Store(last > 0)
		h.mu.Unlock()
		r.run()
	}
}

// letRun lets the goroutines run that a handler has woken. They run on the
// receiver's thread at once. Otherwise another thread would have to be woken
// for them, while this one goes to sleep in the link.
func (h *handlers) letRun() {
	if h.ran.Swap(false) {
		runtime.Gosched()
	}
}

// callHandler calls the handler, unless another goroutine is at it: that one
// then calls it once more.
func (cq *CQ) callHandler() {
	if cq.handlerCalls.Add(1) > 1 {
		return
	}
	for seen := int32(1); ; seen = cq.handlerCalls.Load() {
		if !cq.handlerOver {
			cq.handlerOver = cq.over()
			cq.config.handler(!cq.handlerOver)
		}
		if cq.handlerCalls.CompareAndSwap(seen, 0) {
			return
		}
	}
}

// over reports whether the queue is closed.
func (cq *CQ) over() bool {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	return cq.closed
}

// Await waits until ready has a token, and takes it. It is for a goroutine that
// waits for what the queue's handler will find: it receives for the device
// meanwhile, if no other goroutine does, as one in Wait would, so that the
// answer wakes it and no other. It is for short waits: those in Wait receive
// through it. The goroutine that puts the token calls Nudge afterwards. The
// error is ErrClosed, or that of ctx.
func (cq *CQ) Await(ctx context.Context, ready <-chan struct{}) error {
	p, w := &cq.parker, gate{cq, ready}
	if p.dev.driven != nil {
		return cq.awaitTask(ctx, w)
	}
	if r := p.receiver; r != nil && !r.side.now().Owned() && r.side.on(wake.Waits)&wake.Own != 0 {
		err := p.parkAsOwner(ctx, r, w)
		r.side.on(wake.Leaves)
		if err != nil {
			return err
		}
	}
	select {
	case <-ready:
		return nil
	case <-p.prepare().done:
		return ErrClosed
	case <-p.dev.broken:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Nudge has those in Await look at their tokens.
func (cq *CQ) Nudge() {
	if cq.parker.dev.driven != nil {
		cq.parker.wakeFollower()
		return
	}
	cq.parker.interrupt()
}

// gate is what Await waits for.
type gate struct {
	cq    *CQ
	ready <-chan struct{}
}

// available implements waitable.
func (g gate) available() (bool, error) {
	if len(g.ready) > 0 {
		return true, nil
	}
	if g.cq.over() {
		return false, ErrClosed
	}
	return false, nil
}

// Later has f called when the lock of a shard is given up, on the goroutine
// that held it. It may be called with any lock held. A goroutine that holds no
// shard's lock calls f itself instead.
func (d *Device) Later(f func()) { d.handlers.add(later(f)) }

type later func()

func (f later) run() { f() }
