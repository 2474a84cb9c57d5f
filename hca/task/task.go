package task

import (
	"context"
	"errors"
	"time"

	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// Task is a program that its scheduler suspends and resumes.
type Task interface {
	// Park suspends the program, which is the one that runs, until Wake is
	// called, until ctx ends, or for limit, unless that is 0. The error is
	// that of ctx, or says that the scheduler ends. It may return too
	// early.
	Park(ctx context.Context, limit time.Duration) error

	// Wake has the program go on, if it is suspended. It does not before
	// Wake has returned.
	Wake()
}

// Scheduler runs tasks in the place of Go's own scheduler, one at a time.
type Scheduler interface {
	// Now returns the time. It is never 0, and never goes back.
	Now() clock.Time

	// Task returns the program that runs; nil if it is none of the
	// scheduler's. Such a one cannot wait.
	Task() Task

	// Go starts a program. It does not run before the one that runs waits.
	Go(f func())
}

// ErrNoTask is returned to a caller that waits for something that a Scheduler
// runs, and is none of its programs.
var ErrNoTask = errors.New("only a program that the device's driver has started can wait for it")

// Sleepers are programs of a scheduler that wait for the same.
type Sleepers struct{ tasks []Task }

// Sleep suspends the program of s that runs until Wake, see Task.Park.
func (w *Sleepers) Sleep(ctx context.Context, s Scheduler, limit time.Duration) error {
	t := s.Task()
	if t == nil {
		return ErrNoTask
	}
	w.tasks = append(w.tasks, t)
	err := t.Park(ctx, limit)
	for i := range w.tasks {
		if w.tasks[i] == t {
			w.tasks = append(w.tasks[:i], w.tasks[i+1:]...)
			break
		}
	}
	return err
}

// Wake has all of them go on, in the order in which they came. A lock may be
// held.
func (w *Sleepers) Wake() {
	if len(w.tasks) == 0 {
		return
	}
	for _, t := range w.tasks {
		t.Wake()
	}
	clear(w.tasks)
	w.tasks = w.tasks[:0]
}
