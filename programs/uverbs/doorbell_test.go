//go:build linux

package uverbs

import (
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/programs/uverbs/abi"
	fake "github.com/gosoftroce/rocev2/programs/uverbs/uverbstest"
	"github.com/gosoftroce/rocev2/rocev2"
)

// word is that of the queue pair among the doorbells.
func (q *appQP) word() *atomic.Uint64 { return &q.p.c.doorbells.words[q.QpHandle%doorbellWords] }

// burst posts requests one by one, and rings for each or leaves that out, as
// programs do that have doorbells. It returns how many were left out.
func (q *appQP) burst(wrs ...fake.SendWR) (left int) {
	q.p.t.Helper()
	for _, w := range wrs {
		if !q.send.PostSend(w) {
			q.p.t.Fatalf("no room for request %d", w.ID)
		}
		if q.p.c.doorbells.LeaveOut(q.QpHandle) {
			left++
		} else {
			q.Serve()
		}
	}
	return left
}

// inlines are some requests, of 1 byte each.
func inlines(first, n uint64) (list []fake.SendWR, ids []uint64) {
	for id := first; id < first+n; id++ {
		list, ids = append(list, inline(id)), append(ids, id)
	}
	return list, ids
}

// ringing makes a queue pair with doorbells, and its peer, which has no
// receives: what is sent to it stays in flight.
func ringing(t *testing.T) (a, b *appQP) {
	t.Helper()
	return pair(t, options{depth: 255, data: 8})
}

// While some requests are in flight, the doorbells of more are left out. The
// program does nothing else: what is in flight has those posted as it
// completes.
func TestDoorbellsLeftOut(t *testing.T) {
	t.Parallel()
	a, b := ringing(t)
	wrs, ids := inlines(0, gatherAfter+mostGathered-1)
	if left := a.burst(wrs...); left != mostGathered-1 {
		t.Errorf("%d doorbells were left out", left)
	}
	if n := a.taken(); n != gatherAfter {
		t.Errorf("%d requests were posted", n)
	}
	b.receive(64, ids...)
	a.cq.expect(ib.StatusSuccess, ids...)
	b.cq.expect(ib.StatusSuccess, ids...)
	a.revoked()

	// The next burst has one in flight first: the program posts much.
	wrs, ids = inlines(0, 2+mostGathered)
	if left := a.burst(wrs...); left != mostGathered-1+1 {
		t.Errorf("of a second burst %d doorbells were left out", left)
	}
	if n := a.taken() - gatherAfter - (mostGathered - 1); n != 1+mostGathered {
		t.Errorf("of a second burst %d requests were posted", n)
	}
	b.receive(64, ids...)
	a.cq.expect(ib.StatusSuccess, ids...)
}

// Of long requests few doorbells may be left out. A program that leaves out all
// of them posts much, one that leaves out fewer does not.
func TestDoorbellsOfLongRequests(t *testing.T) {
	t.Parallel()
	const offered = manyGathered / 2
	for left, least := range map[int]uint64{offered: 1, offered - 1: gatherAfter} {
		var all Doorbells
		bell := doorbell{of: &all, qp: 5}
		bell.offer(offered)
		for range left {
			if !all.LeaveOut(5) {
				t.Fatal("a doorbell cannot be left out")
			}
		}
		if bell.revoke(); bell.least() != least {
			t.Errorf("after %d of %d: requests wait while %d are in flight, want %d", left, offered, bell.least(), least)
		}
	}
}

// revoked waits until no doorbell is left out any more, and nothing is posted.
func (q *appQP) revoked() {
	for q.word().Load() != 0 {
		runtime.Gosched()
	}
	q.taken()
}

// connectAt connects two queue pairs in RESET, whose first PSN it is from a.
func connectAt(a, b *appQP, first rocev2.PSN) {
	a.init()
	b.init()
	rtr := b.steps(a)[1]
	rtr.RqPsn = uint32(first)
	tell(b.p, abi.ModifyQP, rtr)
	up := a.steps(b)
	up[2].SqPsn = uint32(first)
	tell(a.p, abi.ModifyQP, up[1])
	tell(a.p, abi.ModifyQP, up[2])
}

// taken returns how many requests were ever taken from the ring.
func (q *appQP) taken() uint64 {
	q.Queues.send.mu.Lock()
	defer q.Queues.send.mu.Unlock()
	return q.Queues.send.ring.Taken()
}

// What was left out ends with the queue pair, in order, whether the peer is
// silent or the program ends it. RESET takes it away.
func TestDoorbellsOfEndedQueuePairs(t *testing.T) {
	t.Parallel()
	pa, pb := programs(t)
	a, b := pa.newQP(options{depth: 63, data: 8}), pb.newQP(options{})
	wrs, ids := inlines(0, gatherAfter+10)
	connect := func() {
		a.init()
		up := a.steps(b)
		up[2].Timeout, up[2].RetryCnt = 8, 1 // some milliseconds
		tell(pa, abi.ModifyQP, up[1])
		tell(pa, abi.ModifyQP, up[2])
	}
	for name, end := range map[string]func(){
		"silent peer": func() {},
		"ERR":         a.toErr,
	} {
		connect()
		if left := a.burst(wrs...); left != 10 {
			t.Errorf("%s: %d doorbells were left out", name, left)
		}
		end()
		for i, c := range a.cq.wait(len(ids)) {
			if c.ID != ids[i] || c.Status == ib.StatusSuccess {
				t.Errorf("%s: %+v", name, c)
			}
		}
		a.revoked()
		a.reset()
	}
	connect()
	a.burst(wrs...)
	a.reset()
	a.revoked()
	connectAt(a, b, 5000) // not where packets of before are
	wrs, ids = inlines(100, 2)
	b.receive(64, 1, 2)
	a.burst(wrs...)
	a.cq.expect(ib.StatusSuccess, ids...)
}

// No doorbell is left out where few requests are in flight, or long ones, or
// where none tells that they have arrived.
func TestDoorbellsRung(t *testing.T) {
	t.Parallel()
	list, _ := inlines(0, 20)
	a, b := ringing(t)
	if left := a.burst(list[:gatherAfter]...); left != 0 {
		t.Errorf("of few requests %d were left out", left)
	}
	b.receive(64, 0, 1, 2, 3)
	a.cq.expect(ib.StatusSuccess, 0, 1, 2, 3)
	a.revoked()

	at, key := b.p.remote(0)
	for id := range uint64(20) {
		long := fake.SendWR{ID: id, Opcode: fake.Write, SGE: []ib.SGE{a.p.sge(0, gatheredBytes)}, Remote: at, RKey: key}
		if a.burst(long) > 0 {
			t.Fatal("the doorbell of a long request was left out")
		}
	}
	u, v := pair(t, options{typ: ib.UC, depth: 255, data: 8})
	v.receive(64, 1)
	if left := u.burst(list...); left != 0 {
		t.Errorf("of an unreliable connection %d were left out", left)
	}
}

// A word is of one queue pair at a time. What another has left out is not lost
// by it.
func TestDoorbellsShareWords(t *testing.T) {
	t.Parallel()
	all := newDoorbells()
	defer all.release()
	a, b := doorbell{of: all, qp: 1}, doorbell{of: all, qp: 1 + doorbellWords}
	a.offer(2)
	b.offer(2)
	if all.LeaveOut(b.qp) || !all.LeaveOut(a.qp) || !all.LeaveOut(a.qp) || all.LeaveOut(a.qp) {
		t.Error("the word is that of the first, twice")
	}
	b.revoke()
	b.offer(2)
	if all.LeaveOut(b.qp) {
		t.Error("the first has rung, and its word is gone")
	}
	for qp := range all.take {
		if qp != a.qp {
			t.Errorf("queue pair %d has rung", qp)
		}
	}
	a.revoke()
	if b.offer(1); !all.LeaveOut(b.qp) || all.LeaveOut(b.qp) {
		t.Error("the word is free, and the other does not get it")
	}
}
