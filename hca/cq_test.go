package hca

import (
	"net/netip"
	"sync"
	"testing"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
)

func newTestOwner(t *testing.T) *Context {
	t.Helper()
	link, other := fabric.Pair(netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"))
	d := New(Config{}, link)
	t.Cleanup(func() { d.Close(); other.Close() })
	o, err := d.NewContext()
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// Completions come in order, and a queue that overflows raises one event (IBTA
// 11.6.3).
func TestCQKeepsOrderAndTellsOfOverflow(t *testing.T) {
	t.Parallel()
	o := newTestOwner(t)
	cq, err := o.CreateCQ(3, nil)
	if err != nil {
		t.Fatal(err)
	}
	if cq.Cap() != 4 {
		t.Fatalf("room for %d, want 3 rounded up to a power of two", cq.Cap())
	}
	var wc [8]ib.WC
	for round := range 5 {
		for i := range 4 {
			if !cq.Complete(&ib.WC{ID: uint64(10*round + i)}) {
				t.Fatalf("entry %d does not fit", i)
			}
		}
		if n := cq.Poll(wc[:3]); n != 3 || wc[0].ID != uint64(10*round) || wc[2].ID != uint64(10*round+2) {
			t.Fatalf("polled %d: %v", n, wc[:n])
		}
		if n := cq.Poll(wc[:]); n != 1 || wc[0].ID != uint64(10*round+3) {
			t.Fatalf("polled %d: %v", n, wc[:n])
		}
	}
	for range 4 {
		cq.Complete(&ib.WC{})
	}
	for range 2 {
		if cq.Complete(&ib.WC{}) {
			t.Error("a full queue takes more")
		}
	}
	e, err := o.AsyncEvent(t.Context())
	if err != nil || e.Kind != ib.EventCQError || e.CQ != cq {
		t.Errorf("event %v (%v)", e, err)
	}
}

// Every completion reaches exactly one of several waiters, and no waiter sleeps
// while there is one.
func TestCQManyWaiters(t *testing.T) {
	t.Parallel()
	o := newTestOwner(t)
	cq, err := o.CreateCQ(1024, nil)
	if err != nil {
		t.Fatal(err)
	}
	const n, waiters = 1000, 8
	var mu sync.Mutex
	seen := map[uint64]int{}
	var wg sync.WaitGroup
	for range waiters {
		wg.Go(func() {
			var wc [3]ib.WC
			for {
				k, err := cq.Wait(t.Context(), wc[:])
				if err != nil {
					return
				}
				mu.Lock()
				for _, c := range wc[:k] {
					seen[c.ID]++
				}
				done := len(seen) == n
				mu.Unlock()
				if done {
					cq.Close()
				}
			}
		})
	}
	for i := range n {
		if !cq.Complete(&ib.WC{ID: uint64(i)}) {
			t.Fatal("overflow")
		}
	}
	wg.Wait()
	for id, k := range seen {
		if k != 1 {
			t.Errorf("completion %d was taken %d times", id, k)
		}
	}
}

// The oldest events go when none is read, and those of a closed object go with
// it; the order of the others stays.
func TestEventQueueIsBounded(t *testing.T) {
	t.Parallel()
	q := newEventQueue()
	var qps [3]QP
	for i := range maxEvents + 10 {
		q.push(event{ib.EventCommEstablished, &qps[i%3]})
	}
	if q.n != maxEvents || len(q.ring) != maxEvents || q.dropped != 10 {
		t.Errorf("%d kept in a ring of %d and %d dropped", q.n, len(q.ring), q.dropped)
	}
	q.forget(&qps[1])
	if want := maxEvents - maxEvents/3; q.n != want && q.n != want-1 {
		t.Errorf("%d are left, want %d", q.n, want)
	}
	for i, first := 0, 10%3; q.n > 0; first = (first + 1) % 3 {
		if first == 1 {
			continue
		}
		e, err := q.get(t.Context())
		if err != nil || e.object != &qps[first] {
			t.Fatalf("event %d is of another queue pair (%v)", i, err)
		}
		i++
	}
	for _, e := range q.ring {
		if e != (event{}) {
			t.Fatal("a slot that was read refers to its object")
		}
	}
}

func TestLimitsAreNamed(t *testing.T) {
	t.Parallel()
	o := newTestOwner(t)
	if _, err := o.CreateCQ(0, nil); err == nil {
		t.Error("a completion queue without room")
	}
	if _, err := o.CreateCQ(ib.MaxCQE+1, nil); err == nil {
		t.Error("a completion queue beyond the limit")
	}
	if _, err := o.CreateQP(qp.Config{MaxSendWR: ib.MaxWR + 1}); err == nil {
		t.Error("a send queue beyond the limit")
	}
}
