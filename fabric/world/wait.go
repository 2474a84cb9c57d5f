package world

import (
	"context"
	"time"

	"github.com/gosoftroce/rocev2/hca/task"
)

// Sleep has the program that calls wait for a while, in virtual time. The error
// is the cause of ctx, task.ErrNoTask outside of a program, or ErrEnded.
func (w *World) Sleep(ctx context.Context, d time.Duration) error {
	t := w.tasks.current
	if t == nil {
		return task.ErrNoTask
	}
	return task.By(t.host).Sleep(ctx, d)
}

// WithTimeout returns a context that ends after d of virtual time. What then
// waits with it returns context.DeadlineExceeded.
func (w *World) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return task.By(&w.hosts[0]).WithTimeout(ctx, d)
}

// Box hands values from program to program, in no time: what programs over
// sockets tell each other before they are connected.
type Box[T any] struct{ values *task.Queue[T] }

// NewBox makes a box in a world.
func NewBox[T any](w *World) *Box[T] { return &Box[T]{task.NewQueue[T](task.By(&w.hosts[0]))} }

// Put puts a value in, after the others. It may be called from anywhere.
func (b *Box[T]) Put(v T) { b.values.Put(v) }

// Take takes the oldest value, and waits for one if there is none. The error is
// as that of World.Sleep.
func (b *Box[T]) Take(ctx context.Context) (T, error) { return b.values.Take(ctx) }
