package hca

import (
	"time"

	"github.com/gosoftroce/rocev2/clock"
)

// Timers are lazy: a queue pair stands in the heap under the earliest deadline
// that it ever asked for. Progress only moves deadlines later, so the steady
// state touches no heap; when an entry comes up, the queue pair is asked anew.
// Should an earlier deadline come, the queue pair gets a second entry, and the
// first is void.

// qpRef refers to a queue pair until that is closed: an entry that is void may
// stay in the heap for long, and must not keep a closed queue pair with its rings.
type qpRef struct{ q *QP }

// timerEntry is valid as long as the queue pair's timerAt is at. The heap compares
// entries without a look at the queue pairs, of which there may be very many.
type timerEntry struct {
	at  clock.Time
	ref *qpRef
}

func (e timerEntry) valid() bool { return e.ref.q != nil && e.ref.q.timerAt == e.at }

// timerHeap is a binary heap, its earliest entry first.
type timerHeap []timerEntry

func (h *timerHeap) push(e timerEntry) {
	*h = append(*h, e)
	t := *h
	i := len(t) - 1
	for i > 0 {
		up := (i - 1) / 2
		if t[up].at <= e.at {
			break
		}
		t[i] = t[up]
		i = up
	}
	t[i] = e
}

func (h *timerHeap) pop() timerEntry {
	t := *h
	first, last := t[0], t[len(t)-1]
	t[len(t)-1] = timerEntry{}
	t = t[:len(t)-1]
	*h = t
	if len(t) == 0 {
		return first
	}
	i := 0
	for {
		down := 2*i + 1
		if down >= len(t) {
			break
		}
		if right := down + 1; right < len(t) && t[right].at < t[down].at {
			down = right
		}
		if last.at <= t[down].at {
			break
		}
		t[i] = t[down]
		i = down
	}
	t[i] = last
	return first
}

// Deadlines that are far away are met a little late, all those of a millisecond
// together: with many queue pairs the timer would fire for each.
const (
	farDeadline = 4 * time.Millisecond
	farGrain    = 1 << 20 // ns
)

// schedule sees to it that the queue pair is asked at the time at, or a little
// later if that is far away.
func (s *shard) schedule(q *QP, at clock.Time) {
	at = max(at, 1)
	if q.timerAt != 0 && q.timerAt <= at {
		return
	}
	if at > s.dev.now().Add(farDeadline) {
		at = (at + farGrain - 1) &^ (farGrain - 1)
		if q.timerAt != 0 && q.timerAt <= at {
			return
		}
	}
	s.unschedule(q)
	q.timerAt = at
	s.timers.push(timerEntry{at, q.ref})
	s.armTimer()
}

// unschedule makes the queue pair's entry void. When most entries are, they go.
func (s *shard) unschedule(q *QP) {
	if q.timerAt == 0 {
		return
	}
	q.timerAt = 0
	if s.void++; 2*s.void <= len(s.timers) {
		return
	}
	valid := s.timers[:0]
	for _, e := range s.timers {
		if e.valid() {
			valid.push(e) // writes no further than was read
		}
	}
	clear(s.timers[len(valid):])
	s.timers, s.void = valid, 0
}

func (s *shard) armTimer() {
	if len(s.timers) == 0 || s.closed {
		return
	}
	first := s.timers[0].at
	if s.timerAt != 0 && s.timerAt <= first {
		return
	}
	s.timerAt = first
	s.timer.Reset(max(time.Duration(first-s.dev.now()), 0))
}

// onTimer runs on a goroutine of its own when the earliest deadline has come.
func (s *shard) onTimer() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timerAt = 0
	if s.due() {
		// The answer may be there, only nobody has looked: on a busy machine
		// everything here may have stood still.
		s.mu.Unlock()
		s.drain()
		s.mu.Lock()
	}
	for s.due() {
		q := s.timers.pop().ref.q
		q.timerAt = 0
		q.core.HandleTimeout(s.dev.now())
		s.count(q)
		s.ready.push(q)
	}
	s.flush()
	s.armTimer()
}

// due reports whether the deadline of the first queue pair in the heap has come.
// Entries that are void go, and those that have come up before their time are put
// where they belong.
func (s *shard) due() bool {
	if s.closed {
		return false
	}
	now := s.dev.now()
	for len(s.timers) > 0 && s.timers[0].at <= now {
		e := s.timers[0]
		if !e.valid() {
			s.timers.pop()
			s.void = max(s.void-1, 0)
			continue
		}
		at, ok := e.ref.q.core.PollTimeout()
		if ok && at <= now {
			return true
		}
		s.timers.pop()
		e.ref.q.timerAt = 0
		if ok {
			s.schedule(e.ref.q, at)
		}
	}
	return false
}
