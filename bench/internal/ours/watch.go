package ours

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// silence is after how long without a completion a run is given up.
const silence = 5 * time.Second

var errSilence = errors.New("no completion for 5 s")

// watch ends a run that makes no progress. It costs the run one atomic addition
// a wait, and no context of its own for each.
type watch struct {
	ctx      context.Context
	progress atomic.Uint64
	cancel   context.CancelCauseFunc
}

func newWatch() *watch {
	w := &watch{}
	w.ctx, w.cancel = context.WithCancelCause(context.Background())
	go func() {
		t := time.NewTicker(silence)
		defer t.Stop()
		for last := uint64(0); ; {
			select {
			case <-w.ctx.Done():
				return
			case <-t.C:
			}
			now := w.progress.Load()
			if now == last {
				w.cancel(errSilence)
			}
			last = now
		}
	}()
	return w
}

// why returns what ended the run, or err where it was something else.
func (w *watch) why(err error) error {
	if cause := context.Cause(w.ctx); cause != nil {
		return cause
	}
	return err
}

func (w *watch) end() { w.cancel(nil) }
