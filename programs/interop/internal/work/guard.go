// Package work has what the measured part of every protocol needs: waiting for
// completions in the way that was asked for, and a guard that ends a run which
// makes no progress or whose peer is gone, so that nothing hangs.
package work

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/gosoftroce/rocev2/hca/task"
	"github.com/gosoftroce/rocev2/programs/interop"
)

// Guard watches a run.
type Guard struct {
	// Ctx ends when the run must end; context.Cause says why.
	Ctx context.Context

	tasks  task.Runner
	cancel context.CancelCauseFunc
	count  atomic.Uint64
	over   *task.Event // the watch is
}

// NewGuard starts watching a run under ctx. When idle passes without Add, and
// without change of what alive returns, if that is not nil, the run is ended.
// report, if not nil, is called with the count. Both are called a few times a
// second, from another goroutine, which tasks starts.
func NewGuard(ctx context.Context, tasks task.Runner, idle time.Duration, alive func() uint64, report func(done uint64)) *Guard {
	g := &Guard{tasks: tasks, over: tasks.NewEvent()}
	g.Ctx, g.cancel = context.WithCancelCause(ctx)
	tasks.Go(func() { g.watch(idle, alive, report) })
	return g
}

// Add counts n completed operations.
func (g *Guard) Add(n int) { g.count.Add(uint64(n)) }

// Count returns how many operations were counted.
func (g *Guard) Count() uint64 { return g.count.Load() }

// Stopped reports whether the run must end. It costs two atomic loads.
func (g *Guard) Stopped() bool { return g.Ctx.Err() != nil }

// Cancel ends the run for a reason.
func (g *Guard) Cancel(cause error) { g.cancel(cause) }

// CancelWhenQuiet ends the run for a reason once nothing was counted for so
// long. It returns at once. It looks several times: a process that stood still
// meanwhile (SIGSTOP, a busy machine) has not yet taken what has come.
func (g *Guard) CancelWhenQuiet(quiet time.Duration, cause error) {
	g.tasks.Go(func() {
		seen := g.Count()
		for still := 0; still < quietLooks; still++ {
			if g.tasks.Sleep(g.Ctx, quiet/quietLooks) != nil {
				return
			}
			if n := g.Count(); n != seen {
				seen, still = n, -1
			}
		}
		g.Cancel(cause)
	})
}

// quietLooks is how often it is looked before a run counts as quiet.
const quietLooks = 8

// Err returns why the run was ended, or err where it was not.
func (g *Guard) Err(err error) error {
	if g.Ctx.Err() != nil {
		return context.Cause(g.Ctx)
	}
	return err
}

// Stop ends the watch.
func (g *Guard) Stop() {
	g.cancel(context.Canceled)
	g.over.Wait(context.Background())
}

// tick is how often the count is looked at and reported.
const tick = 250 * time.Millisecond

func (g *Guard) watch(idle time.Duration, alive func() uint64, report func(done uint64)) {
	defer g.over.Set()
	every := tick
	if idle > 0 {
		every = max(min(every, idle/4), time.Millisecond)
	}
	var seen, life uint64
	var still time.Duration
	for g.tasks.Sleep(g.Ctx, every) == nil {
		n := g.count.Load()
		sign := life
		if alive != nil {
			sign = alive()
		}
		if n != seen || sign != life {
			seen, life, still = n, sign, 0
		} else {
			still += every
		}
		if report != nil {
			report(n)
		}
		if idle > 0 && still >= idle {
			g.cancel(fmt.Errorf("%w for %v, after %d operations: the peer is gone, or the two sides run different tests, sizes or numbers of iterations",
				interop.ErrNoProgress, idle, n))
			return
		}
	}
}
