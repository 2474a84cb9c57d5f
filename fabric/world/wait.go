package world

import (
	"context"
	"time"

	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/hca"
)

// Sleep has the program that calls wait for a while, in virtual time. The error
// is the cause of ctx, hca.ErrNoTask outside of a program, or ErrEnded.
func (w *World) Sleep(ctx context.Context, d time.Duration) error {
	t := w.tasks.current
	if t == nil {
		return hca.ErrNoTask
	}
	for until := w.net.Now() + event.Time(max(d, 0))*event.Nanosecond; ; {
		left := (until - w.net.Now()).Duration()
		if left <= 0 {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return nil
		}
		if err := t.Park(ctx, left); err != nil {
			return err
		}
	}
}

// WithTimeout returns a context that ends after d of virtual time. What then
// waits with it returns context.DeadlineExceeded.
func (w *World) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	w.At(w.Now()+d, func() { cancel(context.DeadlineExceeded) })
	return ctx, func() { cancel(context.Canceled) }
}

// Box hands values from program to program, in no time: what programs over
// sockets tell each other before they are connected.
type Box[T any] struct {
	w      *World
	values []T
	asleep []*task
}

// NewBox makes a box in a world.
func NewBox[T any](w *World) *Box[T] { return &Box[T]{w: w} }

// Put puts a value in, behind the others. It may be called from anywhere.
func (b *Box[T]) Put(v T) {
	b.values = append(b.values, v)
	if len(b.asleep) > 0 {
		t := b.asleep[0]
		b.asleep = b.asleep[1:]
		t.Wake()
	}
}

// Take takes the oldest value, and waits for one if there is none. The error is
// as that of World.Sleep.
func (b *Box[T]) Take(ctx context.Context) (v T, err error) {
	t := b.w.tasks.current
	for len(b.values) == 0 {
		if t == nil {
			return v, hca.ErrNoTask
		}
		b.asleep = append(b.asleep, t)
		if err := t.Park(ctx, 0); err != nil {
			b.forget(t)
			return v, err
		}
		b.forget(t)
	}
	v = b.values[0]
	b.values = b.values[1:]
	return v, nil
}

// forget takes t out of those that wait, if it is there.
func (b *Box[T]) forget(t *task) {
	for i := range b.asleep {
		if b.asleep[i] == t {
			b.asleep = append(b.asleep[:i], b.asleep[i+1:]...)
			return
		}
	}
}
