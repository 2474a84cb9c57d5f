package uverbs

import (
	"errors"
	"runtime"
	"sync"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/programs/uverbs/ring"
	fake "github.com/gosoftroce/rocev2/programs/uverbs/uverbstest"
	"github.com/gosoftroce/rocev2/qp"
)

// Work in steps lets others have the lock: it would never end here if it did
// not.
func TestStepsGiveUpTheLock(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	had := false // guarded by mu
	go func() {
		mu.Lock()
		had = true
		mu.Unlock()
	}()
	inSteps(&mu, func() (more bool) { return !had })
}

// deep makes a queue pair that holds many requests, and its peer.
func deep(t *testing.T, n uint32) (a, b *appQP) {
	da, db := near(t)
	pa := startLarge(t, da, 32<<20)
	a, b = pa.newQP(options{depth: n, cq: pa.newCQ(2 * n)}), start(t, db).newQP(options{})
	b.connect(a)
	a.connect(b)
	return a, b
}

// However much a program posts, the way to ERR flushes a bounded part of it
// with the shard locked. All of it is flushed at last, in order.
func TestErrFlushesFew(t *testing.T) {
	t.Parallel()
	const all, receives = 10_000, 1 << 16
	a, _ := deep(t, all)
	for id := range uint64(all) { // the peer has no receives
		if !a.send.PostSend(inline(id)) || !a.recv.PostRecv(receives+id) {
			t.Fatal("no room")
		}
	}
	s := &a.Queues.send
	for posted := uint64(0); posted < mostPosted; runtime.Gosched() {
		a.Serve()
		s.mu.Lock()
		posted = s.ring.Taken()
		s.mu.Unlock()
	}
	s.mu.Lock() // nothing drains it meanwhile
	if n := s.ring.Taken(); n != mostPosted {
		t.Errorf("%d requests are posted", n)
	}
	a.p.must(a.qp.Modify(&ib.Attr{State: ib.StateErr}, ib.AttrState))
	if n, err := a.cq.CompQueue.Len(); n < mostPosted || n > mostPosted+ring.AtOnce || err != nil {
		t.Errorf("ERR flushes %d, %v", n, err)
	}
	a.unlock()
	sends, recvs := uint64(0), uint64(receives)
	for _, c := range a.cq.wait(2 * all) {
		next := &sends
		if c.ID >= receives {
			next = &recvs
		}
		if c.ID != *next || c.Status != ib.StatusWRFlushErr {
			t.Fatalf("%+v; want ID %d, flushed", c, *next)
		}
		*next++
	}
}

// What a ring holds beyond that is posted as requests complete.
func TestMoreThanArePostedAtOnce(t *testing.T) {
	t.Parallel()
	const all = 3 * mostPosted
	a, b := deep(t, all)
	for id := range uint64(all) {
		if !a.send.PostSend(a.write(id, 0, b.p, 0)) {
			t.Fatal("no room")
		}
	}
	a.Serve() // once
	for id, c := range a.cq.wait(all) {
		if c.ID != uint64(id) || c.Status != ib.StatusSuccess {
			t.Fatalf("completion %d is %+v", id, c)
		}
	}
}

// Completions that come while a queue is resized are not lost, and it keeps
// their order.
func TestResizeBesideCompletions(t *testing.T) {
	t.Parallel()
	const before, after = 20_000, 5000
	q := newBareCQ(t, before+after)
	for id := range uint64(before) {
		q.complete(&ib.WC{}, id, 0)
	}
	to := space(2*(before+after), ring.CQElem)
	var beside sync.WaitGroup
	beside.Go(func() {
		for id := range uint64(after) {
			if !q.complete(&ib.WC{}, before+id, 0) {
				t.Errorf("completion %d is lost", id)
			}
			runtime.Gosched()
		}
	})
	q.p.must(q.Resize(to))
	beside.Wait()
	q.Ring.Mem = to.mem
	for id := range uint64(before + after) {
		if c, ok := q.Poll(); !ok || c.ID != id {
			t.Fatalf("%+v; want %d", c, id)
		}
	}
	q.none()
	q.Close()
	if err := q.Resize(to); !errors.Is(err, errClosed) {
		t.Errorf("of a queue that is closed: %v", err)
	}
}

// Receives that are taken while a shared queue is resized are taken once, in
// order.
func TestResizeBesideReceives(t *testing.T) {
	t.Parallel()
	const all = 20_000
	from, to := space(all, ring.RecvElem(2)), space(2*all, ring.RecvElem(2))
	s, err := newSharedRecvQueue(from, 2, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for id := range uint64(all) {
		if !(fake.Ring{Mem: from.mem}).PostRecv(id) {
			t.Fatal("no room")
		}
	}
	var beside sync.WaitGroup
	var taken []uint64
	take := func() bool {
		var w qp.Recv
		ok := s.Next(&w)
		if ok {
			taken = append(taken, w.ID)
		}
		return ok
	}
	beside.Go(func() {
		for range all / 2 {
			take()
			runtime.Gosched()
		}
	})
	if err := s.Resize(to); err != nil {
		t.Fatal(err)
	}
	beside.Wait()
	for take() {
	}
	for i, id := range taken {
		if id != uint64(i) {
			t.Fatalf("receive %d has ID %d", i, id)
		}
	}
	if r := (fake.Ring{Mem: to.mem}); len(taken) != all || r.Consumer() != r.Producer() {
		t.Errorf("%d receives were taken, indices %d and %d", len(taken), r.Consumer(), r.Producer())
	}
	s.Close()
	if err := s.Resize(to); !errors.Is(err, errClosed) {
		t.Errorf("of a queue that is closed: %v", err)
	}
}

// A resize of a queue that another goroutine closes meanwhile finds it closed,
// or resizes it: nothing touches its memory when both have returned.
func TestCloseBesideResize(t *testing.T) {
	t.Parallel()
	for range 50 {
		q := newBareCQ(t, 1000)
		for id := range uint64(1000) {
			q.complete(&ib.WC{}, id, 0)
		}
		var beside sync.WaitGroup
		beside.Go(q.Close)
		beside.Go(func() { q.forget(0) })
		if err := q.Resize(space(2000, ring.CQElem)); err != nil && !errors.Is(err, errClosed) {
			t.Error(err)
		}
		beside.Wait()
		if q.complete(&ib.WC{}, 0, 0) {
			t.Error("a queue that is closed takes a completion")
		}
	}
}
