package world

import (
	"context"
	"fmt"
	"iter"
	"runtime/debug"
	"slices"
	"time"

	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/hca"
)

// scheduler runs programs, one at a time, in the order in which they became
// ready.
type scheduler struct {
	w       *World
	all     []*task // that have not returned
	live    int     // of these, those that were not stopped
	ready   []*task
	current *task // that runs
	running bool
	inside  bool // the network calls a host, which runs what is ready behind it
	due     bool // the network will call run
	ended   bool // nothing waits any more
	watched int  // programs that wait with a context of their own
}

// task is a program: a coroutine. It implements hca.Task.
type task struct {
	s      *scheduler
	host   int
	next   func() (struct{}, bool)
	stop   func()
	yield  func(struct{}) bool
	parked bool
	parks  uint64          // how often it has waited
	ctx    context.Context // that it waits with, if it is not the world's
	vain   int             // how often it has tried to wait in a world that has ended
}

// ended unwinds a program that goes on in a world that has ended: one that
// polls, for example. So often it may try to wait.
type ended struct{}

const mostVain = 10000

// start makes a program that runs f.
func (s *scheduler) start(host int, f func()) {
	t := &task{s: s, host: host, parked: true}
	t.next, t.stop = iter.Pull(func(yield func(struct{}) bool) {
		t.yield = yield
		defer func() {
			if e := recover(); e != nil && e != (ended{}) {
				panic(fmt.Sprintf("world: a program of host %d: %v\n\n%s", host, e, debug.Stack()))
			}
		}()
		f()
	})
	s.all = append(s.all, t)
	s.live++
	t.Wake()
}

// Park implements hca.Task.
func (t *task) Park(ctx context.Context, limit time.Duration) error {
	s := t.s
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case s.ended:
		if t.vain++; t.vain > mostVain {
			panic(ended{})
		}
		return ErrEnded
	}
	t.parks++
	if limit > 0 {
		parks := t.parks
		s.w.net.At(s.w.net.Now()+event.Time(limit)*event.Nanosecond, func() {
			if t.parks == parks {
				t.Wake()
			}
		})
	}
	if own := ctx.Done(); own != nil && own != s.w.ctx.Done() {
		t.ctx = ctx
		s.watched++
	}
	t.parked = true
	more := t.yield(struct{}{})
	t.parks++
	if t.ctx != nil {
		t.ctx = nil
		s.watched--
	}
	if !more {
		return ErrEnded
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// Wake implements hca.Task.
func (t *task) Wake() {
	if !t.parked {
		return
	}
	t.parked = false
	s := t.s
	s.ready = append(s.ready, t)
	if !s.running && !s.inside && !s.due {
		s.due = true
		s.w.net.At(s.w.net.Now(), s.run)
	}
}

// run runs what is ready, until all wait.
func (s *scheduler) run() {
	s.due = false
	if s.running {
		return
	}
	s.running = true
	for i := 0; i < len(s.ready); i++ {
		t := s.ready[i]
		s.current = t
		_, waits := t.next()
		s.current = nil
		if !waits {
			s.returned(t)
		}
		s.checkContexts()
	}
	clear(s.ready)
	s.ready = s.ready[:0]
	s.running = false
}

func (s *scheduler) returned(t *task) {
	s.live--
	s.all = slices.DeleteFunc(s.all, func(o *task) bool { return o == t })
}

// checkContexts wakes programs whose own context has ended: a program, or a
// script, has done that just now.
func (s *scheduler) checkContexts() {
	if s.watched == 0 {
		return
	}
	for _, t := range s.all {
		if t.ctx != nil && t.ctx.Err() != nil {
			t.Wake()
		}
	}
}

// wakeAll wakes all that wait.
func (s *scheduler) wakeAll() {
	for _, t := range s.all {
		t.Wake()
	}
}

// waiting returns the hosts of programs that wait, up to so many.
func (s *scheduler) waiting(most int) (hosts []int) {
	for _, t := range s.all[:min(most, len(s.all))] {
		hosts = append(hosts, t.host)
	}
	return hosts
}

// stop ends all programs.
func (s *scheduler) stop() {
	s.ended = true
	for _, t := range slices.Clone(s.all) {
		s.current = t
		t.stop()
		s.current = nil
		s.returned(t)
	}
	s.ready = nil
}

// task returns the program that runs, as devices know it.
func (s *scheduler) task() hca.Task {
	if s.current == nil {
		return nil
	}
	return s.current
}
