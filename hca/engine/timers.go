package engine

import (
	"time"

	"github.com/gosoftroce/rocev2/internal/heap"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// timers are the timers of the queue pairs of an engine. They are lazy: a queue
// pair stands in the heap under the earliest deadline that it ever asked for.
// Progress only moves deadlines later, so the steady state touches no heap;
// when an entry comes up, the queue pair is asked anew. If an earlier deadline
// comes, the queue pair gets a second entry, and the first is void.
type timers struct {
	heap  timerHeap
	spare timerHeap // empty; it has the memory of the heap before
	void  int       // entries that are not valid
}

type timerHeap = heap.Heap[clock.Time, *timerRef]

// timerRef refers to a queue pair until that is destroyed: an entry that is
// void may stay in the heap for long, and must not keep a destroyed queue pair
// with its rings.
type timerRef struct{ q *QP }

// valid reports whether an entry of the time at is the queue pair's latest.
func (r *timerRef) valid(at clock.Time) bool { return r.q != nil && r.q.timerAt == at }

// Deadlines that are far away are met a little late, all those of a millisecond
// together: with many queue pairs the driver would be woken for each.
const (
	farDeadline = 4 * time.Millisecond
	farGrain    = 1 << 20 // ns
)

// schedule sees to it that the queue pair is asked at the time at, or a little
// later if that is far away.
func (t *timers) schedule(now clock.Time, q *QP, at clock.Time) {
	at = max(at, 1)
	if q.timerAt != 0 && q.timerAt <= at {
		return
	}
	if at > now.Add(farDeadline) {
		at = (at + farGrain - 1) &^ (farGrain - 1)
		if q.timerAt != 0 && q.timerAt <= at {
			return
		}
	}
	t.cancel(q)
	q.timerAt = at
	t.heap.Push(at, q.ref)
}

// cancel makes the queue pair's entry void. When most entries are, they go.
func (t *timers) cancel(q *QP) {
	if q.timerAt == 0 {
		return
	}
	q.timerAt = 0
	if t.void++; 2*t.void <= t.heap.Len() {
		return
	}
	many := t.heap.Len() > keptTimers
	for t.heap.Len() > 0 {
		if at, ref := t.heap.Pop(); ref.valid(at) {
			t.spare.Push(at, ref)
		}
	}
	t.heap, t.spare, t.void = t.spare, t.heap, 0
	if many {
		t.spare.Clear()
	}
}

// keptTimers is how many entries a heap may have had whose memory is kept.
const keptTimers = 1024

// take takes out the entry of a queue pair whose deadline has come by now, and
// returns the queue pair; nil if there is none. Entries that have come up
// before their time are put where they belong.
func (t *timers) take(now clock.Time) *QP {
	for {
		if at, ok := t.heap.Min(); !ok || at > now {
			return nil
		}
		at, ref := t.heap.Pop()
		if !ref.valid(at) {
			t.void = max(t.void-1, 0)
			continue
		}
		q := ref.q
		q.timerAt = 0
		at, ok := q.core.Deadline()
		if ok && at <= now {
			return q
		}
		if ok {
			t.schedule(now, q, at)
		}
	}
}
