package work

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/interop"
	"github.com/gosoftroce/rocev2/task"
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
