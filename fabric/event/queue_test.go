package event

import (
	"slices"
	"testing"
)

// model is a queue as simple as can be.
type model struct {
	due []Time
	now Time
}

func (m *model) next(limit Time) (src uint32, ok bool) {
	best, found := entry{}, false
	for s, at := range m.due {
		if at == Never || at > limit {
			continue
		}
		if e := newEntry(uint32(s), at); !found || e.before(&best) {
			best, found = e, true
		}
	}
	if !found {
		if limit != Never {
			m.now = max(m.now, limit)
		}
		return 0, false
	}
	src = uint32(best.rank & sourceMask)
	m.now, m.due[src] = best.at, Never
	return src, true
}

// A random mix of calls does what a list that is searched does: many events at
// one time, moves to and fro, cancellations, limits.
func TestAgreesWithModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		r := NewRand(seed, 0)
		sources := int(1 + r.Uint64n(40))
		span := []uint64{20, 20, 100_000}[seed%3] // many events at one time, or few
		q, err := NewQueue(sources)
		if err != nil {
			t.Fatal(err)
		}
		m := model{due: make([]Time, sources)}
		for i := range m.due {
			m.due[i] = Never
		}
		for step := range 2000 {
			src := uint32(r.Uint64n(uint64(sources)))
			at := m.now + Time(r.Uint64n(span)) - 2
			switch r.Uint64n(8) {
			case 0, 1, 2, 3:
				q.Schedule(src, at)
				m.due[src] = max(at, m.now)
			case 4:
				q.Cancel(src)
				m.due[src] = Never
			case 5:
				want := slices.Min(m.due)
				if got := q.First(); got != want {
					t.Fatalf("seed %d, step %d: the first event is due at %v, want %v", seed, step, got, want)
				}
			default:
				limit := m.now + Time(r.Uint64n(20)) - 2
				if r.Uint64n(10) == 0 {
					limit = Never
				}
				got, ok := q.Next(limit)
				want, wantOK := m.next(limit)
				if got != want || ok != wantOK || q.Now() != m.now {
					t.Fatalf("seed %d, step %d: source %d, %v at %v, want %d, %v at %v", seed, step, got, ok, q.Now(), want, wantOK, m.now)
				}
			}
		}
	}
}

// Of events at one time no source comes always first.
func TestTiesFavourNobody(t *testing.T) {
	t.Parallel()
	const sources, rounds = 8, 8000
	q, _ := NewQueue(sources)
	var first [sources]int
	for i := range Time(rounds) {
		for s := range uint32(sources) {
			q.Schedule(s, i*1000)
		}
		src, _ := q.Next(Never)
		first[src]++
		for range sources - 1 {
			q.Next(Never)
		}
	}
	for s, n := range first {
		if n < rounds/sources*85/100 || n > rounds/sources*115/100 {
			t.Errorf("source %d is first in %d of %d rounds", s, n, rounds)
		}
	}
}

// A timer that is put off again and again, as one of retransmission is, leaves
// one entry in the heap.
func TestPutOffCostsNothing(t *testing.T) {
	t.Parallel()
	q, _ := NewQueue(2)
	for i := range Time(1000) {
		q.Schedule(0, i*10)
		q.Schedule(1, i*10+1_000_000)
		q.Next(Never)
	}
	if len(q.heap) > root+2 {
		t.Errorf("the heap has %d entries of 2 sources", len(q.heap))
	}
}

// A timer that is now short, now long (one that paces, and one of
// retransmission) does not fill the heap with long ones that are over. The long
// one moves on, or stays where it is.
func TestShortAndLongTimers(t *testing.T) {
	t.Parallel()
	const sources = 10
	for name, long := range map[string]func(now Time) Time{
		"moves": func(now Time) Time { return now + Second },
		"stays": func(Time) Time { return 1000 * Second },
	} {
		q, _ := NewQueue(sources)
		for i := range 100_000 {
			src := uint32(i % sources)
			q.Schedule(src, long(q.Now()))
			q.Schedule(src, q.Now()+Microsecond)
			if got, ok := q.Next(q.Now() + Millisecond); !ok || got != src {
				t.Fatalf("%s, round %d: source %d, %v", name, i, got, ok)
			}
			q.Schedule(src, long(q.Now()))
			if len(q.heap) > root+2*sources+65 {
				t.Fatalf("%s, round %d: %d entries of %d sources", name, i, len(q.heap), sources)
			}
		}
		for range sources {
			if _, ok := q.Next(Never); !ok {
				t.Fatalf("%s: a long timer is lost", name)
			}
		}
		if src, ok := q.Next(Never); ok {
			t.Errorf("%s: source %d is due twice", name, src)
		}
	}
}

func TestNothingAllocates(t *testing.T) {
	q, _ := NewQueue(1000)
	r := NewRand(1, 1)
	for s := range uint32(1000) {
		q.Schedule(s, Time(r.Uint64n(1000)))
	}
	if got := testing.AllocsPerRun(10000, func() {
		src, _ := q.Next(Never)
		q.Schedule(src, q.Now()+Time(r.Uint64n(1000)))
	}); got != 0 {
		t.Errorf("%v allocations for each event", got)
	}
}

func TestTooManySources(t *testing.T) {
	t.Parallel()
	for _, n := range []int{-1, MaxSources + 1} {
		if _, err := NewQueue(n); err == nil {
			t.Errorf("a queue for %d sources", n)
		}
	}
}

// The cost of an event alone: as many sources as a network of 128 hosts, of
// 8192, and of 65535 has.
func BenchmarkQueue(b *testing.B) {
	for _, bm := range []struct {
		name    string
		sources int
	}{{"512", 512}, {"32768", 32768}, {"524288", 524288}} {
		b.Run(bm.name, func(b *testing.B) {
			q, _ := NewQueue(bm.sources)
			r := NewRand(1, 1)
			for s := range uint32(bm.sources) {
				q.Schedule(s, Time(r.Uint64n(300_000)))
			}
			for b.Loop() {
				src, _ := q.Next(Never)
				q.Schedule(src, q.Now()+Time(r.Uint64()&0x3ffff))
			}
		})
	}
}

// Two queues with a part of the sources each, taken from up to one place after
// the other, have the events of one queue with all. Sorted by Turn they have
// its order.
func TestPartsAgreeWithOne(t *testing.T) {
	t.Parallel()
	type event struct {
		at  Time
		src uint32
	}
	for seed := range uint64(200) {
		r := NewRand(seed, 1)
		sources := uint32(2 + r.Uint64n(30))
		span := []uint64{4, 20, 100_000}[seed%3]
		var queues [3]*Queue // the first one has all
		for i := range queues {
			queues[i], _ = NewQueue(int(sources))
		}
		both := func(src uint32, f func(q *Queue)) {
			f(queues[0])
			f(queues[1+src%2])
		}
		for src := range sources {
			at := Time(r.Uint64n(span))
			both(src, func(q *Queue) { q.Schedule(src, at) })
		}
		// What an event does depends on it alone.
		handle := func(q *Queue, src uint32) event {
			own := NewRand(seed^uint64(src), uint64(q.Now()))
			switch at := q.Now() + Time(own.Uint64n(span)); own.Uint64n(8) {
			case 0:
			case 1:
				if src+2 < sources {
					q.Schedule(src+2, q.Now()) // perhaps before src in the order
				}
				q.Schedule(src, at+1)
			default:
				q.Schedule(src, at+1)
			}
			return event{q.Now(), src}
		}
		for range 200 {
			end := BeforeTime(queues[0].Now() + Time(r.Uint64n(2*span)))
			if r.Uint64n(2) == 0 {
				end = BeforeEvent(uint32(r.Uint64n(uint64(sources))), end.at.at)
			}
			var want, got []event
			for {
				src, ok := queues[0].NextBefore(end)
				if !ok {
					break
				}
				want = append(want, handle(queues[0], src))
			}
			type turn struct {
				at Bound
				event
			}
			var parts [2][]turn
			for i, q := range queues[1:] {
				for {
					src, ok := q.NextBefore(end)
					if !ok {
						break
					}
					e := handle(q, src)
					parts[i] = append(parts[i], turn{q.Turn(), e})
				}
			}
			for len(parts[0])+len(parts[1]) > 0 {
				i := 0
				if len(parts[0]) == 0 || len(parts[1]) > 0 && parts[1][0].at.Before(parts[0][0].at) {
					i = 1
				}
				got = append(got, parts[i][0].event)
				parts[i] = parts[i][1:]
			}
			if !slices.Equal(got, want) {
				t.Fatalf("seed %d: in parts\n%v, want\n%v", seed, got, want)
			}
			if !end.Before(BeforeTime(end.at.at)) && end.at.rank > 0 {
				for _, q := range queues {
					q.Advance(end.at.at)
				}
			}
		}
		if queues[0].Fired() != queues[1].Fired()+queues[2].Fired() {
			t.Fatalf("seed %d: %d events, in parts %d and %d", seed, queues[0].Fired(), queues[1].Fired(), queues[2].Fired())
		}
	}
}
