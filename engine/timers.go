package engine

import (
	"time"

	"github.com/gosoftroce/rocev2/clock"
)

// timers are the timers of the queue pairs of an engine. They are lazy: a queue
// pair stands in the heap under the earliest deadline that it ever asked for.
// Progress only moves deadlines later, so the steady state touches no heap;
// when an entry comes up, the queue pair is asked anew. If an earlier deadline
// comes, the queue pair gets a second entry, and the first is void.
type timers struct {
	heap timerHeap
	void int // entries that are not valid
}

// timerRef refers to a queue pair until that is destroyed: an entry that is
// void may stay in the heap for long, and must not keep a destroyed queue pair
// with its rings.
type timerRef struct{ q *QP }

// timerEntry is valid as long as the queue pair's timerAt is at. The heap
// compares entries without a look at the queue pairs, of which there may be
// very many.
type timerEntry struct {
	at  clock.Time
	ref *timerRef
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
	t.heap.push(timerEntry{at, q.ref})
}

// cancel makes the queue pair's entry void. When most entries are, they go.
func (t *timers) cancel(q *QP) {
	if q.timerAt == 0 {
		return
	}
	q.timerAt = 0
	if t.void++; 2*t.void <= len(t.heap) {
		return
	}
	valid := t.heap[:0]
	for _, e := range t.heap {
		if e.valid() {
			valid.push(e) // writes no further than was read
		}
	}
	clear(t.heap[len(valid):])
	t.heap, t.void = valid, 0
}

// first returns the time of the earliest entry.
func (t *timers) first() (clock.Time, bool) {
	for len(t.heap) > 0 {
		if t.heap[0].valid() {
			return t.heap[0].at, true
		}
		t.heap.pop()
		t.void = max(t.void-1, 0)
	}
	return 0, false
}

// due returns the queue pair whose deadline was the first to come by now, nil
// if there is none. Entries that have come up before their time are put where
// they belong.
func (t *timers) due(now clock.Time) *QP {
	for {
		first, ok := t.first()
		if !ok || first > now {
			return nil
		}
		q := t.heap[0].ref.q
		at, ok := q.deadline()
		if ok && at <= now {
			return q
		}
		t.heap.pop()
		q.timerAt = 0
		if ok {
			t.schedule(now, q, at)
		}
	}
}

// take takes the entry out that due has found.
func (t *timers) take() {
	t.heap.pop().ref.q.timerAt = 0
}
