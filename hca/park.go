package hca

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/gosoftroce/rocev2/hca/wake"
)

// waitable is what goroutines wait for.
type waitable interface {
	// available reports whether there is something to take; false and no
	// error mean to wait.
	available() (bool, error)
}

// parker lets goroutines wait until something is there for them. One that waits
// receives for its device meanwhile, if no other does.
type parker struct {
	dev       *Device
	receiver  *receiver   // in whose link to wait; nil: in none
	followers             // goroutines that wait and are not the owner; their w is guarded by mu
	inWait    atomic.Bool // the owner is about to sleep in the link, or does

	// Few of many objects are ever waited for. So the first goroutine that
	// waits makes the rest.
	mu     sync.Mutex
	closed bool
}

// init makes a parker whose waiters receive for s. It may be nil: then they do
// so for the only shard of the device, if it has one. A goroutine can wait for
// one link; the receivers of the other shards wait for theirs.
func (p *parker) init(d *Device, s *shard) {
	if len(d.shards) == 1 {
		s = d.shards[0]
	}
	if p.dev = d; s != nil {
		p.receiver = &s.receiver
	}
}

// prepare makes what a goroutine needs to wait.
func (p *parker) prepare() *waiting {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.makeWaiting()
	return p.w
}

// makeWaiting is prepare with mu held.
func (p *parker) makeWaiting() {
	if p.w == nil {
		p.w = &waiting{wake: make(chan struct{}, 1), done: make(chan struct{})}
		if p.closed {
			close(p.w.done)
		}
	}
}

// signal wakes a waiter, if there is one. The caller holds no shard's lock.
func (p *parker) signal() {
	p.signalLocked()
	if p.dev.wakers.any.Load() {
		p.dev.wakers.run()
	}
}

// signalLocked is signal inside a shard's lock: the owner is woken when that
// is given up.
func (p *parker) signalLocked() {
	p.wakeOne()
	if p.inWait.Load() {
		p.receiver.waker.later()
	}
}

// interrupt ends the owner's sleep in the link.
func (p *parker) interrupt() {
	if p.inWait.Load() {
		p.receiver.link.Wake()
	}
}

// close wakes all waiters for good; available must fail from before on. A
// context that lives on does not keep the object.
func (p *parker) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	if p.w != nil {
		close(p.w.done)
		p.w.asleep.Wake()
		p.interrupt()
		p.stopWatching()
	}
}

// park waits once. It may return without anything being available.
func (p *parker) park(ctx context.Context, w waitable) error {
	if p.dev.driven != nil {
		return p.parkTask(ctx, w)
	}
	r := p.receiver
	if r != nil {
		if len(p.dev.shards) > 1 {
			p.dev.Settle()
		}
		if r.side.on(wake.Waits)&wake.Own != 0 {
			return p.own(ctx, r, w)
		}
	}
	p.dev.Settle()
	wait := p.prepare()
	p.count.Add(1) // wake is there before
	defer p.count.Add(-1)
	if r != nil {
		if r.side.joins(&p.followers) {
			return p.own(ctx, r, w)
		}
		defer r.side.parts(&p.followers)
	}
	if ok, err := w.available(); ok || err != nil {
		return err
	}
	select {
	case <-wait.wake:
		return nil
	case <-wait.done:
		return ErrClosed
	case <-p.dev.broken:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// own waits as the owner of the receive side.
func (p *parker) own(ctx context.Context, r *receiver, w waitable) error {
	err := p.parkAsOwner(ctx, r, w)
	r.side.on(wake.Leaves)
	return err
}

// parkAsOwner waits in the link and receives until something is available.
func (p *parker) parkAsOwner(ctx context.Context, r *receiver, w waitable) error {
	p.watch(ctx)
	over := func() bool {
		ok, err := w.available()
		return ok || err != nil || ctx.Err() != nil
	}
	for {
		r.in.out.transmitDelayed()
		r.lookLonger(false, over)
		p.inWait.Store(true)
		act := r.side.on(wake.Blocks)
		ok, err := w.available()
		if err == nil {
			err = ctx.Err()
		}
		if !ok && err == nil && act&wake.SendFirst == 0 {
			if r.waitLink() != nil {
				err = ErrClosed
			}
		}
		r.side.on(wake.Unblocks)
		p.inWait.Store(false)
		if ok || err != nil {
			return err
		}
		r.in.receiveAs(true, true)
		if ok, err := w.available(); ok || err != nil {
			return err
		}
	}
}

// watch has ctx interrupt the owner.
func (p *parker) watch(ctx context.Context) {
	done := ctx.Done()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.makeWaiting()
	if done == p.w.watched || p.closed {
		return
	}
	p.stopWatching()
	p.w.watched = done
	if done != nil {
		p.w.unwatch = context.AfterFunc(ctx, p.interrupt)
	}
}

func (p *parker) stopWatching() {
	if p.w.unwatch != nil {
		p.w.unwatch()
	}
	p.w.watched, p.w.unwatch = nil, nil
}

// parkTask is park for a device that has a driver.
func (p *parker) parkTask(ctx context.Context, w waitable) error {
	if ok, err := w.available(); ok || err != nil {
		return err
	}
	wait := p.prepare()
	p.count.Add(1)
	defer p.count.Add(-1)
	return wait.asleep.Sleep(ctx, p.dev.driver, 0)
}
