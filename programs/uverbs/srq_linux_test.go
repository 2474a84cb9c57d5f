package uverbs

import (
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/programs/uverbs/abi"
	fake "github.com/gosoftroce/rocev2/programs/uverbs/uverbstest"
	"github.com/gosoftroce/rocev2/qp"
)

func (s *appSRQ) receive(ids ...uint64) {
	s.p.t.Helper()
	for _, id := range ids {
		if !s.PostRecv(id, s.p.sge(int(id)*64, 64)) {
			s.p.t.Fatalf("no room for receive %d", id)
		}
	}
}

// resize asks for room for n receives.
func (s *appSRQ) resize(n uint32) {
	s.p.t.Helper()
	var mi abi.MMInfo
	write(s.p, fake.Plain(abi.ModifySRQ, 0, abi.ModifySRQReq{SrqHandle: s.SrqHandle, AttrMask: abi.SRQMaxWR, MaxWr: n}, abi.ModifySRQDriverReq{}), &mi)
	s.Ring = s.p.mapped(mi)
}

// two makes two queue pairs of b with a shared receive queue, and their peers.
func two(t *testing.T) (s *appSRQ, a, b [2]*appQP) {
	t.Helper()
	pa, pb := programs(t)
	s = pb.newSRQ(7, 0)
	for i := range 2 {
		a[i], b[i] = pa.newQP(options{}), pb.newQP(options{srq: s})
		a[i].connect(b[i])
		b[i].connect(a[i])
	}
	return s, a, b
}

// A shared receive queue raises its limit event once.
func TestShared(t *testing.T) {
	t.Parallel()
	s, a, b := two(t)
	tell(s.p, abi.ModifySRQ, abi.ModifySRQReq{SrqHandle: s.SrqHandle, AttrMask: abi.SRQLimit, SrqLimit: 2})
	s.receive(1, 2, 3)
	a[0].post(inline(10))
	b[0].cq.expect(ib.StatusSuccess, 1)
	if most, posted, limit := s.Attr(); most != 7 || posted != 2 || limit != 2 || s.Ring.Consumer() != 1 {
		t.Errorf("%d of %d, limit %d, consumer's index %d", posted, most, limit, s.Ring.Consumer())
	}
	a[1].post(inline(11))
	b[1].cq.expect(ib.StatusSuccess, 2)
	s.p.wantAsync(ib.EventSRQLimit, s.user)
	a[0].post(inline(12), inline(13)) // the last one waits for a receive
	b[0].cq.expect(ib.StatusSuccess, 3)
	if q := ask[abi.QuerySRQResp](s.p, abi.QuerySRQ, abi.QuerySRQReq{SrqHandle: s.SrqHandle}); q.MaxWr != 7 || q.SrqLimit != 0 {
		t.Errorf("query: %+v", q)
	}
	s.receive(4)
	b[0].cq.expect(ib.StatusSuccess, 4)
	if got := s.p.buf[4*64]; got != 13 {
		t.Errorf("received %d", got)
	}
	s.receive(5)
	b[0].toErr() // leaves it to the other one
	b[0].cq.none()
	a[1].post(inline(14))
	b[1].cq.expect(ib.StatusSuccess, 5)
	refused(s.p, abi.EBUSY, abi.DestroySRQ, abi.DestroySRQReq{SrqHandle: s.SrqHandle})
	s.p.wantAsync(ib.EventLastWQEReached, b[0].user)
	for i, want := range []uint32{1, 0} {
		if r := ask[abi.DestroyQPResp](s.p, abi.DestroyQP, abi.DestroyQPReq{QpHandle: b[i].QpHandle}); r.EventsReported != want {
			t.Errorf("%d events of queue pair %d are reported, want %d", r.EventsReported, i, want)
		}
	}
	if r := ask[abi.DestroySRQResp](s.p, abi.DestroySRQ, abi.DestroySRQReq{SrqHandle: s.SrqHandle}); r.EventsReported != 1 {
		t.Errorf("%d events of the queue are reported, want 1", r.EventsReported)
	}
}

func TestResizeShared(t *testing.T) {
	t.Parallel()
	s, a, b := two(t)
	s.receive(1, 2, 3, 4, 5)
	a[0].post(inline(10))
	b[0].cq.expect(ib.StatusSuccess, 1)
	s.resize(15)
	s.receive(6, 7)
	for i, id := range []uint64{2, 3, 4, 5, 6, 7} {
		a[i%2].post(inline(id))
		b[i%2].cq.expect(ib.StatusSuccess, id)
	}
	s.receive(1, 2)
	refused(s.p, abi.EINVAL, abi.ModifySRQ, abi.ModifySRQReq{SrqHandle: s.SrqHandle, AttrMask: abi.SRQMaxWR, MaxWr: 1}) // less than is in it
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
	s.p.wantAsync(ib.EventSRQError, s.user)
	s.SetProducer(0)
	s.receive(1)
	if s.Next(new(qp.Recv)) {
		t.Error("it goes on")
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
