package work

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/hca/task"
	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// TestGuardLetsLifePass checks that a run in which this side completes nothing
// lasts as long as there is another sign of life, and no longer.
func TestGuardLetsLifePass(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const idle = time.Minute
		start := time.Now()
		var signs atomic.Uint64
		g := NewGuard(t.Context(), task.Runner{}, idle, signs.Load, nil)
		defer g.Stop()
		for range 10 {
			time.Sleep(idle * 3 / 4)
			signs.Add(1)
		}
		if g.Stopped() {
			t.Fatalf("the run ended after %v: %v", time.Since(start), context.Cause(g.Ctx))
		}
		last := time.Now()
		<-g.Ctx.Done()
		if d := time.Since(last); d < idle || d > idle+2*tick {
			t.Errorf("the run ended %v after the last sign of life, expected %v", d, idle)
		}
		if err := g.Err(nil); !errors.Is(err, interop.ErrNoProgress) {
			t.Errorf("it ended with %v", err)
		}
	})
}

// stopped is a process that stood still for a minute while it slept for the
// first time.
type stopped struct {
	now    clock.Time
	sleeps int
	woken  func(sleeps int)
}

func (s *stopped) Now() clock.Time { return s.now }
func (s *stopped) Task() task.Task { return s }
func (s *stopped) Go(f func())     { f() }
func (s *stopped) Wake()           {}

func (s *stopped) Park(_ context.Context, d time.Duration) error {
	if s.sleeps++; s.sleeps == 1 {
		d = time.Minute
	}
	s.now = s.now.Add(d)
	s.woken(s.sleeps)
	return nil
}

// TestQuietAfterAStop checks that a timer which has run out while completions
// were there, and had not been taken, does not end a run.
func TestQuietAfterAStop(t *testing.T) {
	t.Parallel()
	over := errors.New("nothing comes any more")
	s := &stopped{now: 1}
	g := &Guard{tasks: task.By(s)}
	g.Ctx, g.cancel = context.WithCancelCause(t.Context())
	s.woken = func(sleeps int) {
		if sleeps == 2 {
			g.Add(1) // it was there for a minute
		}
	}
	g.CancelWhenQuiet(time.Second, over)
	if g.Count() != 1 {
		t.Error("the run has ended before it took what was there")
	}
	if context.Cause(g.Ctx) != over || s.now < clock.Time(time.Minute+time.Second) {
		t.Errorf("it ended at %v: %v", time.Duration(s.now), g.Err(nil))
	}
}
