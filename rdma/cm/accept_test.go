package cm_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/gosoftroce/rocev2/hca/task"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// lateContext has ended when it was asked for that more often than so.
type lateContext struct {
	context.Context
	most, asked atomic.Int32
}

func newLateContext(most int32) *lateContext {
	c := &lateContext{Context: context.Background()}
	c.most.Store(most)
	return c
}

func (c *lateContext) Err() error {
	if c.asked.Add(1) > c.most.Load() {
		return context.Canceled
	}
	return nil
}

// TestAcceptEnding: what wakes an Accept whose context ends at that moment is
// not lost for another one that waits, be it a request or the end.
func TestAcceptEnding(t *testing.T) {
	t.Parallel()
	for _, ends := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l, arrive, end := cm.BareListener(task.Runner{})
			accept := func(ctx context.Context) (done chan error) {
				done = make(chan error, 1)
				go func() {
					_, err := l.Accept(ctx)
					done <- err
				}()
				synctest.Wait()
				return done
			}
			ctx, cancel := context.WithCancel(t.Context())
			first, second := accept(newLateContext(1)), accept(ctx)
			if ends {
				end()
			} else {
				arrive()
			}
			synctest.Wait()
			woken := 0
			for _, c := range []chan error{first, second} {
				select {
				case err := <-c:
					if err == nil || errors.Is(err, cm.ErrClosed) {
						woken++
					}
				default:
				}
			}
			if want := map[bool]int{false: 1, true: 2}[ends]; woken != want {
				t.Errorf("end %v: %d of two have learned of it, want %d", ends, woken, want)
			}
			cancel()
		})
	}
}

// foreign is a scheduler that does not run the goroutine that asks.
type foreign struct{}

func (foreign) Now() clock.Time { return 1 }
func (foreign) Task() task.Task { return nil }
func (foreign) Go(func())       {}

// TestAcceptOutside: an Accept that cannot wait says so, and does not try for
// ever.
func TestAcceptOutside(t *testing.T) {
	t.Parallel()
	l, _, _ := cm.BareListener(task.By(foreign{}))
	if _, err := l.Accept(newLateContext(100)); !errors.Is(err, task.ErrNoTask) {
		t.Errorf("got %v", err)
	}
}
