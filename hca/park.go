package hca

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/gosoftroce/rocev2/hca/task"
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
	shard     *shard       // in whose link to wait; nil: in none
	followers atomic.Int32 // goroutines that wait and are not the poller
	inWait    atomic.Bool  // the poller is about to block in link.Wait, or does

	// Few of many objects are ever waited for. So the first goroutine that
	// waits makes the rest.
	mu     sync.Mutex
	closed bool
	w      *waiting
}

// waiting is what a parker needs when a goroutine waits.
type waiting struct {
	wake chan struct{} // a token for one follower
	done chan struct{} // closed with the object

	asleep task.Sleepers // with a driver, in place of both

	// The poller's context is watched by a callback, which stays for its
	// next wait with the same context, until the object is closed. Guarded
	// by the parker's mu.
	watched <-chan struct{}
	unwatch func() bool
}

// init makes a parker whose waiters receive for s. It may be nil: then they do
// so for the only shard of the device, if it has one. A goroutine can wait for
// one link; the receivers of the other shards wait for theirs.
func (p *parker) init(d *Device, s *shard) {
	if len(d.shards) == 1 {
		s = d.shards[0]
	}
	p.dev, p.shard = d, s
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
	p.dev.wakePoller()
}

// signalLocked is signal inside a shard's lock: the poller is woken when that
// is given up.
func (p *parker) signalLocked() {
	p.wakeFollower()
	if p.inWait.Load() {
		p.shard.wakeLink.Store(true)
		p.dev.wake.Store(true)
	}
}

// wakeFollower wakes a goroutine that waits and is not the poller.
func (p *parker) wakeFollower() {
	if p.followers.Load() > 0 {
		p.w.asleep.Wake()
		select {
		case p.w.wake <- struct{}{}:
		default:
		}
	}
}

// interrupt ends the poller's Wait.
func (p *parker) interrupt() {
	if p.inWait.Load() {
		p.shard.link.Wake()
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
	if s := p.shard; s != nil {
		if len(p.dev.shards) > 1 {
			p.dev.Settle()
		}
		s.poller.note()
		if s.poller.become() {
			err := p.parkAsPoller(ctx, s, w)
			s.poller.cease()
			return err
		}
	}
	p.dev.Settle()
	wait := p.prepare()
	p.followers.Add(1) // wake is there before
	defer p.followers.Add(-1)
	if s := p.shard; s != nil {
		s.poller.follow(p)
		defer s.poller.unfollow(p)
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

// parkAsPoller waits in the link and receives until something is available.
func (p *parker) parkAsPoller(ctx context.Context, s *shard, w waitable) error {
	p.watch(ctx)
	for {
		s.flushDelayed()
		over := func() bool {
			ok, err := w.available()
			return ok || err != nil || ctx.Err() != nil
		}
		lookLonger(s, false, over)
		p.inWait.Store(true)
		s.poller.blocked.Store(true)
		ok, err := w.available()
		if err == nil {
			err = ctx.Err()
		}
		if !ok && err == nil && !s.poller.delayed.Load() {
			if s.waitLink() != nil {
				err = ErrClosed
			}
		}
		s.poller.blocked.Store(false)
		p.inWait.Store(false)
		if ok || err != nil {
			return err
		}
		s.receiveAs(true, true)
		if ok, err := w.available(); ok || err != nil {
			return err
		}
	}
}

// watch has ctx interrupt the poller.
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
