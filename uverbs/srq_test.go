package uverbs

import (
	"sync/atomic"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/uverbs/ring"
	fake "github.com/gosoftroce/rocev2/uverbs/uverbstest"
)

// sharedQueue is a shared receive queue and what the program has of it.
type sharedQueue struct {
	fake.Ring
	*SharedRecvQueue
	p             *program
	limit, failed atomic.Int32
}

func (p *program) newSRQ(n int) *sharedQueue {
	p.t.Helper()
	shape := ring.ShapeFor(n, ring.RecvElem(2))
	s := &sharedQueue{Ring: fake.Ring{Mem: fake.Memory(shape.Size())}, p: p}
	var err error
	s.SharedRecvQueue, err = NewSharedRecvQueue(SharedRecvQueueConfig{Memory: s.Mem, Shape: shape, MaxSGE: 2, PD: p.pd.Core(),
		Limit: func() { s.limit.Add(1) }, Failed: func() { s.failed.Add(1) }})
	p.must(err)
	return s
}

func (s *sharedQueue) receive(ids ...uint64) {
	s.p.t.Helper()
	for _, id := range ids {
		if !s.PostRecv(id, s.p.sge(int(id)*64, 64)) {
			s.p.t.Fatalf("no room for receive %d", id)
		}
	}
}

// two makes two queue pairs of b with a shared receive queue, and their peers.
func two(t *testing.T) (s *sharedQueue, a, b [2]*queuePair) {
	t.Helper()
	pa, pb := programs(t)
	s = pb.newSRQ(7)
	for i := range 2 {
		a[i], b[i] = pa.newQP(pairOptions{data: 8}), pb.newQP(pairOptions{srq: s.SharedRecvQueue})
		a[i].connect(b[i])
		b[i].connect(a[i])
	}
	return s, a, b
}

func inline(id uint64) fake.SendWR {
	return fake.SendWR{ID: id, Opcode: fake.Send, Flags: fake.Signaled | fake.Inline, Data: []byte{byte(id)}}
}

func TestShared(t *testing.T) {
	t.Parallel()
	s, a, b := two(t)
	s.SetLimit(2)
	s.receive(1, 2, 3)
	a[0].post(inline(10))
	b[0].cq.expect(ib.StatusSuccess, 1)
	if most, posted, limit := s.Attr(); most != 7 || posted != 2 || limit != 2 || s.Ring.Consumer() != 1 {
		t.Errorf("%d of %d, limit %d, consumer's index %d", posted, most, limit, s.Ring.Consumer())
	}
	a[1].post(inline(11))
	b[1].cq.expect(ib.StatusSuccess, 2)
	if s.limit.Load() != 1 {
		t.Error("fewer than the limit are left, and nobody says so")
	}
	a[0].post(inline(12), inline(13)) // the last one waits for a receive
	b[0].cq.expect(ib.StatusSuccess, 3)
	if _, _, limit := s.Attr(); s.limit.Load() != 1 || limit != 0 {
		t.Errorf("the limit was told %d times, and is %d", s.limit.Load(), limit)
	}
	s.receive(4)
	b[0].cq.expect(ib.StatusSuccess, 4)
	if got := s.p.buf[4*64]; got != 13 {
		t.Errorf("received %d", got)
	}
	s.receive(5)
	s.p.must(b[0].Modify(&ib.Attr{State: ib.StateErr}, ib.AttrState)) // leaves it to the other one
	b[0].cq.none()
	a[1].post(inline(14))
	b[1].cq.expect(ib.StatusSuccess, 5)
}

func TestResizeShared(t *testing.T) {
	t.Parallel()
	s, a, b := two(t)
	s.receive(1, 2, 3, 4, 5)
	a[0].post(inline(10))
	b[0].cq.expect(ib.StatusSuccess, 1)
	shape := ring.ShapeFor(15, ring.RecvElem(2))
	mem := fake.Memory(shape.Size())
	s.p.must(s.Resize(mem, shape))
	s.Ring.Mem = mem
	s.receive(6, 7)
	for i, id := range []uint64{2, 3, 4, 5, 6, 7} {
		a[i%2].post(inline(id))
		b[i%2].cq.expect(ib.StatusSuccess, id)
	}
	shape = ring.ShapeFor(1, ring.RecvElem(2))
	s.receive(1, 2)
	if err := s.Resize(fake.Memory(shape.Size()), shape); err == nil {
		t.Error("it became smaller than what is in it")
	}
}

// A receive that cannot be ends the queue pair that gets it. The other one goes
// on with the next.
func TestSharedWithBadReceive(t *testing.T) {
	t.Parallel()
	s, a, b := two(t)
	s.Post(func(e []byte) {
		fake.PutRecv(e, 77)
		fake.SetRecvSGE(e, 1<<31)
	})
	s.receive(1)
	a[0].post(inline(10))
	b[0].cq.expect(ib.StatusLocQPOpErr, 77)
	b[0].untilErr()
	a[1].post(inline(11))
	b[1].cq.expect(ib.StatusSuccess, 1)
}

func TestSharedWithBadIndex(t *testing.T) {
	t.Parallel()
	s, a, _ := two(t)
	s.SetProducer(99)
	a[0].post(inline(10))
	for s.failed.Load() == 0 {
		a[0].ring()
	}
	s.SetProducer(0)
	s.receive(1)
	if s.Next(new(qp.Recv)) || s.failed.Load() != 1 {
		t.Errorf("it goes on after %d failures", s.failed.Load())
	}
}

// A queue pair on its way to ERR takes no more from the queue.
func TestSharedWhileEnding(t *testing.T) {
	t.Parallel()
	s, _, b := two(t)
	s.receive(1, 2)
	r := &b[0].Queues.recv
	r.owner.fatal.Store(true)
	if s.Next(&qp.Recv{CQ: r}) {
		t.Error("it has taken one")
	}
	r.owner.fatal.Store(false)
	if !s.Next(&qp.Recv{CQ: r}) {
		t.Error("there was none")
	}
	s.Close()
	if s.Next(&qp.Recv{CQ: r}) {
		t.Error("a queue that is closed has one")
	}
	if most, posted, limit := s.Attr(); most != 0 || posted != 0 || limit != 0 {
		t.Errorf("a queue that is closed: %d, %d, %d", most, posted, limit)
	}
}
