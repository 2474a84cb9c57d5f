package task

import (
	"context"
	"errors"
	"sync"
)

// Event happens once. Tasks wait for it.
type Event struct {
	r      Runner
	once   sync.Once
	done   chan struct{}
	asleep Sleepers
}

// NewEvent makes an event.
func (r Runner) NewEvent() *Event { return &Event{r: r, done: make(chan struct{})} }

// Set says that it has happened. More calls than one count as one.
func (e *Event) Set() {
	e.once.Do(func() {
		close(e.done)
		e.asleep.Wake()
	})
}

// IsSet reports whether it has happened.
func (e *Event) IsSet() bool {
	select {
	case <-e.done:
		return true
	default:
		return false
	}
}

// Wait waits for it. The error is as that of Runner.Sleep.
func (e *Event) Wait(ctx context.Context) error {
	if e.r.s == nil {
		select {
		case <-e.done:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	for !e.IsSet() {
		if err := e.asleep.Sleep(ctx, e.r.s, 0); err != nil && !e.IsSet() {
			return err
		}
	}
	return nil
}

// Group is a set of tasks whose end can be waited for.
type Group struct {
	r    Runner
	real sync.WaitGroup

	open   int
	asleep Sleepers
}

// NewGroup makes a group without a task.
func (r Runner) NewGroup() *Group { return &Group{r: r} }

// Go starts a task of the group.
func (g *Group) Go(f func()) {
	if g.r.s == nil {
		g.real.Go(f)
		return
	}
	g.open++
	g.r.s.Go(func() {
		defer func() {
			if g.open--; g.open == 0 {
				g.asleep.Wake()
			}
		}()
		f()
	})
}

// Wait waits until all tasks of the group have returned, or until their
// scheduler ends.
func (g *Group) Wait() {
	if g.r.s == nil {
		g.real.Wait()
		return
	}
	for g.open > 0 {
		if g.asleep.Sleep(context.Background(), g.r.s, 0) != nil {
			return
		}
	}
}

// ErrClosed says that a queue is closed.
var ErrClosed = errors.New("task: the queue is closed")

// Queue hands values from task to task, the oldest first.
type Queue[T any] struct {
	mu     sync.Mutex
	values []T
	closed bool
	some   *Bell // there may be values, or the queue is closed
}

// NewQueue makes an empty queue.
func NewQueue[T any](r Runner) *Queue[T] { return &Queue[T]{some: r.NewBell()} }

// Put puts a value in. It reports whether it did: it does not after Close.
func (q *Queue[T]) Put(v T) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.values = append(q.values, v)
	q.some.Ring()
	return true
}

// Close returns the values that were not taken. No more come, and a task that
// waits for one gets ErrClosed.
func (q *Queue[T]) Close() []T {
	q.mu.Lock()
	defer q.mu.Unlock()
	left := q.values
	q.closed, q.values = true, nil
	q.some.Ring()
	return left
}

// TryTake takes the oldest value, if there is one.
func (q *Queue[T]) TryTake() (v T, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.values) == 0 {
		return v, false
	}
	v = q.values[0]
	q.values = q.values[1:]
	if len(q.values) > 0 {
		q.some.Ring() // there is one for another waiter, too
	}
	return v, true
}

// over reports whether the queue is closed, and if so has the next waiter ask.
func (q *Queue[T]) over() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		q.some.Ring()
	}
	return q.closed
}

// Take takes the oldest value, and waits for one if there is none. The error is
// ErrClosed, or as that of Runner.Sleep.
func (q *Queue[T]) Take(ctx context.Context) (v T, err error) {
	for {
		if v, ok := q.TryTake(); ok {
			return v, nil
		}
		if q.over() {
			return v, ErrClosed
		}
		if err := q.some.Wait(ctx); err != nil {
			return v, err
		}
	}
}

// Bell wakes a task that waits. If none does, one ring is kept.
type Bell struct {
	r      Runner
	token  chan struct{}
	asleep Sleepers
}

// NewBell makes a bell that has not rung.
func (r Runner) NewBell() *Bell { return &Bell{r: r, token: make(chan struct{}, 1)} }

// Ring rings. A lock may be held.
func (b *Bell) Ring() {
	select {
	case b.token <- struct{}{}:
	default:
	}
	b.asleep.Wake()
}

// Wait waits for a ring, and takes it. The error is as that of Runner.Sleep.
func (b *Bell) Wait(ctx context.Context) error {
	if b.r.s == nil {
		select {
		case <-b.token:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	for len(b.token) == 0 {
		if err := b.asleep.Sleep(ctx, b.r.s, 0); err != nil {
			return err
		}
	}
	<-b.token
	return nil
}

// Once is a sync.Once whose function may wait.
type Once struct {
	real        sync.Once
	begun, done bool
	asleep      *Sleepers // tasks that wait until it is done
}

// Do calls f, unless another call has. Then it returns when that is done.
func (o *Once) Do(r Runner, f func()) {
	if r.s == nil {
		o.real.Do(f)
		return
	}
	if o.begun {
		if o.asleep == nil {
			o.asleep = new(Sleepers)
		}
		for !o.done && o.asleep.Sleep(context.Background(), r.s, 0) == nil {
		}
		return
	}
	o.begun = true
	defer func() {
		if o.done = true; o.asleep != nil {
			o.asleep.Wake()
		}
	}()
	f()
}
