package event

import (
	"fmt"
	"math/bits"
)

// MaxSources is how many sources a queue can have.
const MaxSources = 1 << sourceBits

const (
	sourceBits = 24
	sourceMask = 1<<sourceBits - 1
)

// entry is a pending event: 40 bits of a hash of time and source, above 24 bits
// of source.
type entry struct {
	at   Time
	rank uint64
}

func newEntry(src uint32, at Time) entry {
	x := (uint64(at) ^ uint64(src)<<40) * golden
	return entry{at, (x^x>>32)*golden&^sourceMask | uint64(src)}
}

func (e *entry) before(o *entry) bool { return e.less(o) != 0 }

// less returns 1 if e comes before o, else 0. It is a subtraction of 128 bits:
// a branch that no processor can predict would cost more than all else here.
func (e *entry) less(o *entry) uint64 {
	_, borrow := bits.Sub64(e.rank, o.rank, 0)
	_, borrow = bits.Sub64(uint64(e.at), uint64(o.at), borrow)
	return borrow
}

// source is what the queue knows of one. An entry of the heap counts only if it
// has the time in entry. An event that moves to a later time leaves its entry
// where it is; when the entry's turn comes, it goes to the time in due.
type source struct {
	due   Time // Never: nothing is pending
	entry Time // of the entry in the heap; Never: there is none
}

// Queue is a heap of events, at most one for each source. It has at most twice
// as many entries as sources, and 64; nothing allocates once it has had them. A
// Queue is not safe for concurrent use.
type Queue struct {
	heap    []entry // from root on, of four children each
	sources []source
	now     Time
	hole    bool // the first entry is taken, its place is free
	fired   uint64
	turn    uint64 // the highest rank of NextBefore at the time now
}

// root is where the heap begins. Then the four children of an entry, from 4 *
// (i-2) on, are in one cache line.
const root = 3

// NewQueue returns an empty queue for sources 0 to n-1 at time 0.
func NewQueue(n int) (*Queue, error) {
	if n < 0 || n > MaxSources {
		return nil, fmt.Errorf("event: %d sources: a queue has 0 to %d", n, MaxSources)
	}
	q := &Queue{sources: make([]source, n), heap: make([]entry, root, 64)}
	for i := range q.sources {
		q.sources[i] = source{Never, Never}
	}
	return q, nil
}

// Now returns the time of the latest event that Next has returned, or the limit
// up to which it has found none.
func (q *Queue) Now() Time { return q.now }

// Fired returns how many events Next has returned.
func (q *Queue) Fired() uint64 { return q.fired }

// Due returns when the source's event is due, or Never.
func (q *Queue) Due(src uint32) Time { return q.sources[src].due }

// Schedule makes the source's event due at a time, instead of when it was due
// before. A time that has passed stands for now, Never for no event. It costs
// next to nothing where the event moves to a later time.
func (q *Queue) Schedule(src uint32, at Time) {
	s := &q.sources[src]
	s.due = max(at, q.now)
	if s.due < s.entry {
		s.entry = s.due
		q.push(newEntry(src, s.due))
	}
}

// Cancel forgets the source's event, if one is pending.
func (q *Queue) Cancel(src uint32) { q.sources[src].due = Never }

// Next takes the first event from the queue, if it is due by limit. The time is
// then that of the event, else the limit; a limit that has passed changes
// nothing, and neither does Never.
func (q *Queue) Next(limit Time) (src uint32, ok bool) {
	for {
		e, ok := q.peek()
		if !ok || e.at > limit {
			if limit != Never {
				q.now = max(q.now, limit)
			}
			return 0, false
		}
		q.hole = true
		src = uint32(e.rank & sourceMask)
		s := &q.sources[src]
		if e.at != s.entry {
			continue // another entry has taken its place
		}
		s.entry = Never
		if s.due != e.at {
			q.Schedule(src, s.due) // later, or Never
			continue
		}
		s.due = Never
		q.now = e.at
		q.fired++
		return src, true
	}
}

// Bound is a place in the order of all events, of all queues.
type Bound struct{ at entry }

// BeforeTime returns the place before all events of a time.
func BeforeTime(at Time) Bound { return Bound{entry{at, 0}} }

// BeforeEvent returns the place before the event of a source at a time.
func BeforeEvent(src uint32, at Time) Bound { return Bound{newEntry(src, at)} }

// Before reports whether b is a place before o.
func (b Bound) Before(o Bound) bool { return b.at.before(&o.at) }

// NextBefore is Next for a queue that has a part of the sources: it takes the
// first event if that comes before a place. If it does not, the time stays.
func (q *Queue) NextBefore(b Bound) (src uint32, ok bool) {
	for {
		e, ok := q.peek()
		if !ok || !e.before(&b.at) {
			return 0, false
		}
		q.hole = true
		src = uint32(e.rank & sourceMask)
		s := &q.sources[src]
		if e.at != s.entry {
			continue // another entry has taken its place
		}
		s.entry = Never
		if s.due != e.at {
			q.Schedule(src, s.due) // later, or Never
			continue
		}
		s.due = Never
		if q.fired++; e.at > q.now {
			q.now, q.turn = e.at, 0
		}
		q.turn = max(q.turn, e.rank)
		return src, true
	}
}

// Pending reports whether an event comes before a place.
func (q *Queue) Pending(b Bound) bool {
	return q.First() != Never && q.heap[root].before(&b.at)
}

// Turn returns a place for what the latest event of NextBefore has done. Sorted
// by it (events of one queue keep their order), what was done in several queues
// is in the order in which one queue with all sources would have done it: of
// those that have an event next, the first one takes its. Since the latest
// Advance, that is.
func (q *Queue) Turn() Bound { return Bound{entry{q.now, q.turn}} }

// Advance has the time pass, when all events before it have been taken.
func (q *Queue) Advance(to Time) { q.now, q.turn = max(q.now, to), 0 }

// First returns when the first event is due, or Never.
func (q *Queue) First() Time {
	for {
		e, ok := q.peek()
		if !ok {
			return Never
		}
		src := uint32(e.rank & sourceMask)
		s := &q.sources[src]
		switch {
		case e.at == s.entry && s.due == e.at:
			return e.at
		case e.at == s.entry:
			s.entry = Never
			q.hole = true
			q.Schedule(src, s.due)
		default:
			q.hole = true
		}
	}
}

// peek returns the first entry, after the place of one that is gone is filled.
func (q *Queue) peek() (entry, bool) {
	if q.hole {
		q.hole = false
		last := q.heap[len(q.heap)-1]
		q.heap = q.heap[:len(q.heap)-1]
		if len(q.heap) > root {
			q.sink(root, last)
		}
	}
	if len(q.heap) == root {
		return entry{}, false
	}
	return q.heap[root], true
}

// push adds an entry. What an event causes mostly comes right after the event
// was taken: it goes to the place of that, which saves a way up and one down.
func (q *Queue) push(e entry) {
	if q.hole {
		q.hole = false
		q.sink(root, e)
		return
	}
	if len(q.heap) > 2*len(q.sources)+64 {
		q.compact()
	}
	q.heap = append(q.heap, e)
	i := len(q.heap) - 1
	for i > root {
		up := i/4 + 2
		if !e.before(&q.heap[up]) {
			break
		}
		q.heap[i] = q.heap[up]
		i = up
	}
	q.heap[i] = e
}

// compact removes the entries whose place others have taken. A timer that is
// now short, now long leaves one each time it is short.
func (q *Queue) compact() {
	kept := q.heap[:root]
	for _, e := range q.heap[root:] {
		if s := &q.sources[e.rank&sourceMask]; e.at == s.entry {
			kept = append(kept, e)
			s.entry = Never // of entries of one time the first is enough
		}
	}
	for _, e := range kept[root:] {
		q.sources[e.rank&sourceMask].entry = e.at
	}
	q.heap = kept
	for i := (len(kept)-1)/4 + 2; i >= root; i-- {
		if i < len(kept) {
			q.sink(i, kept[i])
		}
	}
}

// sink puts e in place i of the heap, which is free, or further down.
func (q *Queue) sink(i int, e entry) {
	h := q.heap
	for {
		first := 4 * (i - 2)
		if first >= len(h) {
			break
		}
		least := first
		if first+4 <= len(h) {
			c := (*[4]entry)(h[first:])
			low, high := c[1].less(&c[0]), 2+c[3].less(&c[2])
			least = first + int(low+(high-low)*c[high&3].less(&c[low&3]))
		} else {
			for c := first + 1; c < len(h); c++ {
				least += (c - least) * int(h[c].less(&h[least]))
			}
		}
		if !h[least].before(&e) {
			break
		}
		h[i] = h[least]
		i = least
	}
	h[i] = e
}
