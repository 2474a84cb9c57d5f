package task

import (
	"context"
	"time"
)

// Runner starts tasks, has the time, and makes what tasks wait for. The zero
// Runner does so by goroutines.
type Runner struct {
	s      Scheduler
	bubble bool
}

// By returns the Runner of a scheduler; nil stands for goroutines.
func By(s Scheduler) Runner { return Runner{s: s} }

// InBubble returns the Runner of goroutines in a bubble of testing/synctest, on
// a simulated network: Go's own, whose time is virtual.
func InBubble() Runner { return Runner{bubble: true} }

// Simulated reports whether a scheduler runs the tasks: then they take no time,
// and to poll is worth nothing.
func (r Runner) Simulated() bool { return r.s != nil }

// Virtual reports whether the time is that of a simulated network, by a
// scheduler or in a bubble. No process ends there, so what goes on after a call
// may go on in the background. And programs may hold a lock while they call,
// which stops the time of a bubble where the call waits.
func (r Runner) Virtual() bool { return r.s != nil || r.bubble }

// epoch is where the time of schedulers begins.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// Now returns the time. That of a scheduler begins with the year 2000.
func (r Runner) Now() time.Time {
	if r.s == nil {
		return time.Now()
	}
	return epoch.Add(time.Duration(r.s.Now()))
}

// Since returns how long ago t was.
func (r Runner) Since(t time.Time) time.Duration { return r.Now().Sub(t) }

// Go starts a task.
func (r Runner) Go(f func()) {
	if r.s == nil {
		go f()
		return
	}
	r.s.Go(f)
}

// Sleep waits for a while. The error is the cause of ctx, ErrNoTask, or that of
// a scheduler that ends.
func (r Runner) Sleep(ctx context.Context, d time.Duration) error {
	if r.s == nil {
		if ctx.Done() == nil {
			time.Sleep(d) // which allocates nothing
			return nil
		}
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	t := r.s.Task()
	if t == nil {
		return ErrNoTask
	}
	for until := r.Now().Add(max(d, 0)); ; {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		left := until.Sub(r.Now())
		if left <= 0 {
			return nil
		}
		if err := t.Park(ctx, left); err != nil {
			return err
		}
	}
}

// Timer calls a function later, on a task of its own.
type Timer struct {
	real *time.Timer

	r    Runner
	f    func()
	turn *turn // that is to call it; nil: none is
}

// turn is a task that sleeps until a time.
type turn struct {
	asleep Sleepers
	off    bool
}

// AfterFunc is time.AfterFunc.
func (r Runner) AfterFunc(d time.Duration, f func()) *Timer {
	if r.s == nil {
		return &Timer{real: time.AfterFunc(d, f)}
	}
	t := &Timer{r: r, f: f}
	t.start(d)
	return t
}

// NewTimer returns a timer that is not set: Reset sets it.
func (r Runner) NewTimer(f func()) *Timer {
	if r.s == nil {
		t := &Timer{real: time.AfterFunc(time.Hour, f)}
		t.real.Stop()
		return t
	}
	return &Timer{r: r, f: f}
}

// Stop ends the timer, and reports whether it was set.
func (t *Timer) Stop() bool {
	if t.real != nil {
		return t.real.Stop()
	}
	if t.turn == nil {
		return false
	}
	t.turn.off = true
	t.turn.asleep.Wake()
	t.turn = nil
	return true
}

// Reset has the function called after d, and no more when it was to be called
// before.
func (t *Timer) Reset(d time.Duration) {
	if t.real != nil {
		t.real.Reset(d)
		return
	}
	t.Stop()
	t.start(d)
}

func (t *Timer) start(d time.Duration) {
	w := &turn{}
	t.turn = w
	until := t.r.Now().Add(max(d, 0))
	t.r.s.Go(func() {
		for !w.off {
			left := until.Sub(t.r.Now())
			if left <= 0 {
				t.turn = nil
				t.f()
				return
			}
			if w.asleep.Sleep(context.Background(), t.r.s, left) != nil {
				return // all ends
			}
		}
	})
}

// OnEnd is context.AfterFunc: it has f called when ctx has ended, on a task of
// its own, unless stop reports that it has prevented that.
func (r Runner) OnEnd(ctx context.Context, f func()) (stop func() bool) {
	if r.s == nil {
		return context.AfterFunc(ctx, f)
	}
	w, begun := &turn{}, false
	r.s.Go(func() {
		for !w.off && ctx.Err() == nil {
			if w.asleep.Sleep(ctx, r.s, 0) != nil && ctx.Err() == nil {
				return // all ends
			}
		}
		if !w.off {
			begun = true
			f()
		}
	})
	return func() bool {
		was := w.off || begun
		w.off = true
		w.asleep.Wake()
		return !was
	}
}

// WithTimeoutCause is context.WithTimeoutCause. Where a scheduler has the time,
// the context ends with the cause, and its Err is context.Canceled.
func (r Runner) WithTimeoutCause(ctx context.Context, d time.Duration, cause error) (context.Context, context.CancelFunc) {
	if r.s == nil {
		return context.WithTimeoutCause(ctx, d, cause)
	}
	if cause == nil {
		cause = context.DeadlineExceeded
	}
	ctx, cancel := context.WithCancelCause(ctx)
	t := r.AfterFunc(d, func() { cancel(cause) })
	return ctx, func() {
		t.Stop()
		cancel(context.Canceled)
	}
}

// WithTimeout is context.WithTimeout, see WithTimeoutCause.
func (r Runner) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return r.WithTimeoutCause(ctx, d, nil)
}
