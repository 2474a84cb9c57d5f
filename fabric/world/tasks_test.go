package world_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric/world"
	"github.com/gosoftroce/rocev2/hca/task"
	"github.com/gosoftroce/rocev2/verbs"
)

var errEnough = errors.New("enough")

// chores uses all that package task has, and returns when it was done with each
// part.
func chores(ctx context.Context, r task.Runner) (times []time.Duration, problems []string) {
	begun := r.Now()
	done := func(what string, ok bool) {
		times = append(times, r.Since(begun))
		if !ok {
			problems = append(problems, what)
		}
	}
	done("sleep", r.Sleep(ctx, time.Second) == nil)

	g, sum := r.NewGroup(), 0
	q := task.NewQueue[int](r)
	for i := range 3 {
		g.Go(func() {
			if r.Sleep(ctx, time.Duration(3-i)*time.Second) == nil {
				q.Put(i)
			}
		})
	}
	for i := range 3 {
		v, err := q.Take(ctx)
		sum += v
		done("queue", err == nil && v == 2-i)
	}
	g.Wait()
	done("group", sum == 3)

	e := r.NewEvent()
	t := r.AfterFunc(time.Hour, e.Set)
	t.Reset(time.Minute)
	done("event", e.Wait(ctx) == nil && e.IsSet())
	done("stop of a timer that was", !t.Stop())
	late := r.NewTimer(func() { problems = append(problems, "a timer that was stopped") })
	late.Reset(time.Minute)
	done("stop of a timer", late.Stop())

	short, cancel := r.WithTimeoutCause(ctx, time.Second, errEnough)
	ends := r.NewEvent()
	stop := r.OnEnd(short, ends.Set)
	never := r.OnEnd(short, func() { problems = append(problems, "OnEnd that was stopped") })
	done("stop of OnEnd", never() && !never())
	done("timeout", errors.Is(r.Sleep(short, time.Hour), errEnough))
	done("OnEnd", ends.Wait(ctx) == nil && !stop())
	cancel()
	waits, cancel := r.WithTimeout(ctx, time.Second)
	_, err := q.Take(waits)
	done("deadline", errors.Is(err, context.DeadlineExceeded))
	cancel()
	q.Put(7)
	left := q.Close()
	done("close", !q.Put(8) && slices.Equal(left, []int{7}))
	return times, problems
}

// What package task has does the same by goroutines and in a world.
func TestTasks(t *testing.T) {
	t.Parallel()
	var real, simulated []time.Duration
	report := func(problems []string) {
		for _, p := range problems {
			t.Errorf("this failed: %s", p)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		times, problems := chores(t.Context(), task.Runner{})
		real = times
		report(problems)
	})
	w := newWorld(t, world.Config{Network: star(1)})
	must(t, w.Go(0, func(ctx context.Context, dev *verbs.Device) error {
		times, problems := chores(ctx, verbs.HCA(dev).Tasks())
		simulated = times
		report(problems)
		return nil
	}))
	must(t, w.Run())
	if !slices.Equal(real, simulated) {
		t.Errorf("by goroutines it took %v, in a world %v", real, simulated)
	}
	if w.Now() != 66*time.Second {
		t.Errorf("the world ends after %v: what was stopped is waited for", w.Now())
	}
}

// closeQueue has tasks wait for values of a queue that is closed then, and
// returns what they get.
func closeQueue(ctx context.Context, r task.Runner) (errs [4]error) {
	ctx, cancel := r.WithTimeout(ctx, time.Minute)
	defer cancel()
	q, takers := task.NewQueue[int](r), r.NewGroup()
	for i := range errs[1:] {
		takers.Go(func() { _, errs[i] = q.Take(ctx) })
	}
	if err := r.Sleep(ctx, time.Second); err != nil {
		return errs
	}
	q.Close()
	takers.Wait()
	_, errs[3] = q.Take(ctx) // and a later one
	return errs
}

// A task that waits for a value of a queue that is closed is told so.
func TestCloseOfQueueWakesTakers(t *testing.T) {
	t.Parallel()
	check := func(t *testing.T, errs [4]error) {
		for _, err := range errs {
			if !errors.Is(err, task.ErrClosed) {
				t.Errorf("a taker got %v, want %v", err, task.ErrClosed)
			}
		}
	}
	synctest.Test(t, func(t *testing.T) { check(t, closeQueue(t.Context(), task.Runner{})) })
	w := newWorld(t, world.Config{Network: star(1)})
	must(t, w.Go(0, func(ctx context.Context, dev *verbs.Device) error {
		check(t, closeQueue(ctx, verbs.HCA(dev).Tasks()))
		return nil
	}))
	must(t, w.Run())
}
