package hca

import (
	"context"

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
		cq.parker.wakeOne()
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

// awaitTask is Await for a device that has a driver.
func (cq *CQ) awaitTask(ctx context.Context, w gate) error {
	for {
		ok, err := w.available()
		switch {
		case ok:
			<-w.ready
			return nil
		case err != nil:
			return err
		}
		if err := cq.parker.parkTask(ctx, w); err != nil {
			return err
		}
	}
}
