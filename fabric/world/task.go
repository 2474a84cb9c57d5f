package world

import (
	"context"
	"fmt"
	"iter"
	"runtime/debug"
	"time"

	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/hca/task"
)

// scheduler runs programs, one at a time, in the order in which they became
// ready.
type scheduler struct {
	w       *World
	all     []*program // that have not returned
	ready   []*program
	next    int // of ready, the one that runs next
	current *program
	running bool
	inside  bool       // the network calls a host, which runs what is ready afterwards
	due     bool       // the network will call run
	ended   bool       // nothing waits any more
	watched []*program // that wait with a context of their own
}

// program is a coroutine. It implements task.Task.
type program struct {
	s           *scheduler
	host        *host
	resume      func() (struct{}, bool)
	stop        func()
	yield       func(struct{}) bool
	parked      bool
	place       int             // in all
	until       event.Time      // when it goes on at the latest; Never: it has no such time
	sleeps      int             // its place among the sleepers of its host
	ctx         context.Context // that it waits with, if it is not the world's
	seen        int             // its place in watched
	asked       bool            // it is to say where it waits, and not to go on
	where       string          // where it waits, then
	futileWaits int             // how often it has tried to wait in a world that has ended
}

// ended unwinds a program that goes on in a world that has ended: one that
// polls, for example. So often it may try to wait.
type ended struct{}

const mostFutileWaits = 10000

// start makes a program of a host that runs f.
func (s *scheduler) start(h *host, f func()) {
	if s.ended {
		return // the program that has started it is being ended, too
	}
	t := &program{s: s, host: h, parked: true, until: event.Never, place: len(s.all)}
	t.resume, t.stop = iter.Pull(func(yield func(struct{}) bool) {
		t.yield = yield
		defer func() {
			if e := recover(); e != nil && e != (ended{}) {
				panic(fmt.Sprintf("world: a program of host %d: %v\n\n%s", h.number, e, debug.Stack()))
			}
		}()
		f()
	})
	s.all = append(s.all, t)
	t.Wake()
}

// Park implements task.Task.
func (t *program) Park(ctx context.Context, limit time.Duration) error {
	s := t.s
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case s.ended:
		if t.futileWaits++; t.futileWaits > mostFutileWaits {
			panic(ended{})
		}
		return ErrEnded
	}
	if limit > 0 {
		t.host.sleepUntil(t, s.w.after(limit))
	}
	if own := ctx.Done(); own != nil && own != s.w.ctx.Done() {
		t.ctx, t.seen = ctx, len(s.watched)
		s.watched = append(s.watched, t)
	}
	t.parked = true
	more := t.yield(struct{}{})
	for t.asked {
		t.where, t.asked = whereabouts(), false
		more = t.yield(struct{}{})
	}
	if t.ctx != nil {
		t.unwatch()
	}
	if !more {
		t.host.wakes(t)
		return ErrEnded
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

func (t *program) unwatch() {
	s := t.s
	last := s.watched[len(s.watched)-1]
	s.watched[t.seen], last.seen = last, t.seen
	s.watched = s.watched[:len(s.watched)-1]
	t.ctx = nil
}

// Wake implements task.Task.
func (t *program) Wake() {
	if !t.parked {
		return
	}
	t.parked = false
	t.host.wakes(t)
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
	if s.running || s.ended {
		return
	}
	s.running = true
	defer func() { s.running, s.current = false, nil }() // also if one panics
	for s.checkContexts(); s.next < len(s.ready); s.checkContexts() {
		t := s.ready[s.next]
		s.ready[s.next] = nil
		s.next++
		s.step(t)
	}
	s.ready, s.next = s.ready[:0], 0
}

// step has a program go on until it waits again, or returns.
func (s *scheduler) step(t *program) {
	waits := false
	defer func() {
		if s.current = nil; !waits {
			s.returned(t)
		}
	}()
	s.current = t
	_, waits = t.resume()
}

func (s *scheduler) returned(t *program) {
	last := s.all[len(s.all)-1]
	s.all[t.place], last.place = last, t.place
	s.all[len(s.all)-1] = nil
	s.all = s.all[:len(s.all)-1]
}

// checkContexts wakes programs whose own context has ended: a program, a
// handler or a script has done that just now.
func (s *scheduler) checkContexts() {
	for _, t := range s.watched {
		if t.parked && t.ctx.Err() != nil {
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

// stop ends all programs, the latest first: a program that has started others
// finds them gone.
func (s *scheduler) stop() {
	s.ended = true
	for len(s.all) > 0 {
		t := s.all[len(s.all)-1]
		s.current = t
		t.stop()
		s.current = nil
		s.returned(t)
	}
	s.ready, s.next = nil, 0
}

// task returns the program that runs, as devices know it.
func (s *scheduler) task() task.Task {
	if s.current == nil {
		return nil
	}
	return s.current
}
