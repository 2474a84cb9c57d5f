package hca

import (
	"container/heap"
	"time"

	"github.com/gosoftroce/rocev2/qp"
)

// Timers are lazy: a queue pair stands in the heap under the earliest deadline
// that it ever asked for. Progress only moves deadlines later, so the steady
// state touches no heap; when an entry comes up, the queue pair is asked anew.

type timerHeap []*QP

func (h timerHeap) Len() int           { return len(h) }
func (h timerHeap) Less(i, j int) bool { return h[i].timerAt < h[j].timerAt }
func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].timerIndex, h[j].timerIndex = i, j
}

func (h *timerHeap) Push(x any) {
	q := x.(*QP)
	q.timerIndex = len(*h)
	*h = append(*h, q)
}

func (h *timerHeap) Pop() any {
	old := *h
	q := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	q.timerIndex = -1
	return q
}

func (h *timerHeap) remove(q *QP) {
	if q.timerIndex >= 0 {
		heap.Remove(h, q.timerIndex)
	}
}

// schedule sees to it that the queue pair is asked no later than at.
func (s *shard) schedule(q *QP, at qp.Time) {
	switch {
	case q.timerIndex < 0:
		q.timerAt = at
		heap.Push(&s.timers, q)
	case at < q.timerAt:
		q.timerAt = at
		heap.Fix(&s.timers, q.timerIndex)
	default:
		return
	}
	s.armTimer()
}

func (s *shard) armTimer() {
	if len(s.timers) == 0 || s.closed {
		return
	}
	first := s.timers[0].timerAt
	if s.timerAt != 0 && s.timerAt <= first {
		return
	}
	s.timerAt = max(first, 1)
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
		q := heap.Pop(&s.timers).(*QP)
		q.core.HandleTimeout(s.dev.now())
		q.account()
		s.ready.push(q)
	}
	s.flush()
	s.armTimer()
}

// due reports whether the deadline of the first queue pair in the heap has come.
// Entries that have come up before their time are put where they belong.
func (s *shard) due() bool {
	if s.closed {
		return false
	}
	now := s.dev.now()
	for len(s.timers) > 0 && s.timers[0].timerAt <= now {
		at, ok := s.timers[0].core.PollTimeout()
		if ok && at <= now {
			return true
		}
		q := heap.Pop(&s.timers).(*QP)
		if ok {
			s.schedule(q, at)
		}
	}
	return false
}
