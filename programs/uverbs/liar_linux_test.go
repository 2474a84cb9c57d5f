package uverbs

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/programs/uverbs/abi"
	fake "github.com/gosoftroce/rocev2/programs/uverbs/uverbstest"
)

// untilErr waits until the queue pair is in ERR.
func (q *appQP) untilErr() {
	for q.qp.State() != ib.StateErr {
		q.Serve()
	}
}

// An impossible request completes in its place, with its own status: after
// those before it, and before those after it, which are flushed.
func TestBadRequests(t *testing.T) {
	t.Parallel()
	put := binary.NativeEndian.PutUint32
	for _, c := range []struct {
		why  string
		bad  func(e []byte)
		want ib.Status
	}{
		{"an operation that there is not", func(e []byte) { put(e[12:], 99) }, ib.StatusLocQPOpErr},
		{"too many entries", func(e []byte) { put(e[184+12:], 4) }, ib.StatusLocQPOpErr},
		{"entries without end", func(e []byte) { put(e[184+12:], 1<<32-1) }, ib.StatusLocQPOpErr},
		{"inline data without end", func(e []byte) { put(e[16:], fake.Signaled|fake.Inline); put(e[184:], 1<<32-1) }, ib.StatusLocLenErr},
		{"an atomic of 4 bytes", func(e []byte) { put(e[12:], fake.FetchAdd); put(e[208+8:], 4) }, ib.StatusLocLenErr},
		{"a message of 12 GiB", func(e []byte) {
			put(e[184+12:], 3)
			for i := range 3 {
				put(e[208+16*i+8:], 1<<32-1)
			}
		}, ib.StatusLocLenErr},
		{"a FLUSH of nothing", func(e []byte) { put(e[12:], fake.Flush) }, ib.StatusLocQPOpErr},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()
			a, b := pair(t, options{data: 48})
			good := func(id uint64) fake.SendWR { return a.write(id, 5000, b.p, 0) }
			a.send.PostSend(good(1))
			a.send.PostSend(good(2))
			a.receive(64, 20)
			a.send.Post(func(e []byte) {
				fake.PutSend(e, good(3))
				c.bad(e)
			})
			a.post(good(4), good(5))
			got := a.cq.wait(6)
			var ids []uint64
			for i, c2 := range got {
				want := ib.StatusWRFlushErr
				switch {
				case i < 2:
					want = ib.StatusSuccess
				case i == 2:
					want = c.want
				}
				if c2.Status != want {
					t.Errorf("%+v; want %v", c2, want)
				}
				if c2.ID < 20 {
					ids = append(ids, c2.ID)
				}
			}
			if !slices.Equal(ids, []uint64{1, 2, 3, 4, 5}) {
				t.Errorf("%+v", got)
			}
		})
	}
}

// A bad request below RTS waits as others do.
func TestBadRequestBeforeRTS(t *testing.T) {
	t.Parallel()
	pa, pb := programs(t)
	a, b := pa.newQP(options{}), pb.newQP(options{})
	b.connect(a)
	a.init()
	a.send.PostSend(fake.SendWR{ID: 1, Opcode: 99, Flags: fake.Signaled})
	a.Serve()
	if a.cq.none(); a.qp.State() != ib.StateInit {
		t.Errorf("it is in %v", a.qp.State())
	}
	a.up(b)
	a.cq.expect(ib.StatusLocQPOpErr, 1)
	a.untilErr()
}

// A receive that cannot be is flushed in its place, with its own status.
func TestBadReceive(t *testing.T) {
	t.Parallel()
	for why, bad := range map[string]func(e []byte){
		"too many entries": func(e []byte) { fake.SetRecvSGE(e, 4) },
		"12 GiB": func(e []byte) {
			fake.SetRecvSGE(e, 3)
			for i := range 3 {
				binary.NativeEndian.PutUint32(e[40+16*i+8:], 1<<32-1)
			}
		},
	} {
		t.Run(why, func(t *testing.T) {
			t.Parallel()
			badReceive(t, bad)
		})
	}
}

func badReceive(t *testing.T, bad func(e []byte)) {
	a, b := pair(t, options{data: 8})
	b.receive(64, 1)
	b.recv.Post(func(e []byte) {
		fake.PutRecv(e, 2)
		bad(e)
	})
	b.receive(64, 3)
	a.post(inline(10), inline(11))
	b.cq.expect(ib.StatusSuccess, 1)
	b.cq.expect(ib.StatusLocQPOpErr, 2)
	b.cq.expect(ib.StatusWRFlushErr, 3)
	b.untilErr()
	b.receive(64, 4)
	b.Serve()
	b.cq.expect(ib.StatusWRFlushErr, 4)
	b.reset()
	a.reset()
	a.connect(b)
	b.connect(a)
	b.receive(64, 5)
	a.post(inline(12))
	b.cq.expect(ib.StatusSuccess, 5)
}

// Receives that come in ERR are flushed, also where nothing was posted before.
func TestReceivesInErr(t *testing.T) {
	t.Parallel()
	for why, end := range map[string]func(q, peer *appQP){
		"by Modify": func(q, _ *appQP) { q.toErr() },
		"by a receive that is too short": func(q, peer *appQP) {
			q.receive(2, 0)
			peer.post(fake.SendWR{Opcode: fake.Send, Flags: fake.Inline, Data: []byte("long")})
			q.cq.expect(ib.StatusLocLenErr, 0)
			q.untilErr()
		},
		"by an index": func(q, _ *appQP) { q.send.SetProducer(99); q.untilErr() },
	} {
		t.Run(why, func(t *testing.T) {
			t.Parallel()
			a, b := pair(t, options{data: 8})
			end(a, b)
			a.receive(64, 1)
			a.Serve()
			a.cq.expect(ib.StatusWRFlushErr, 1)
		})
	}
}

// An impossible index ends a queue pair once: in ERR it has no further effect.
func TestBadIndexInErr(t *testing.T) {
	t.Parallel()
	a, _ := pair(t, options{})
	a.recv.SetProducer(99)
	a.toErr()
	a.Serve()
	if a.fatal.Load() {
		a.Serve()
	}
	a.Serve()
	if a.fatal.Load() {
		t.Error("it is to be ended again and again")
	}
}

// An impossible index ends the queue pair. RESET makes it good again.
func TestBadIndices(t *testing.T) {
	t.Parallel()
	a, b := pair(t, options{data: 8})
	for _, lie := range []func(){
		func() { a.send.SetProducer(16) },
		func() { a.send.SetProducer(1 << 31) },
		func() { a.recv.SetProducer(1 << 31); b.post(inline(1)) },
	} {
		lie()
		a.untilErr()
		for _, q := range []*appQP{a, b} {
			q.reset()
			for _, ok := q.cq.Poll(); ok; _, ok = q.cq.Poll() {
			}
		}
		a.connect(b)
		b.connect(a)
		b.receive(64, 5)
		a.post(inline(12))
		b.cq.expect(ib.StatusSuccess, 5)
		a.cq.expect(ib.StatusSuccess, 12)
	}
}

// tryConnect is reset and connect where either may be refused.
func (q *appQP) tryConnect(peer *appQP) {
	reset := abi.ModifyQPReq{QpHandle: q.QpHandle, AttrMask: uint32(ib.AttrState)}
	for _, s := range append([]abi.ModifyQPReq{reset}, q.steps(peer)...) {
		q.p.c.Command(fake.Plain(abi.ModifyQP, 0, s))
	}
}

// What a program that lies does to its rings, others do not notice: neither its
// own other queue pair, nor its peer's.
func TestLiar(t *testing.T) {
	t.Parallel()
	da, db := near(t)
	v := newVictim(t, da, db)
	liar, peer := start(t, da).newQP(options{}), start(t, db).newQP(options{})
	liar.connect(peer)
	peer.connect(liar)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		fake.Scribble(stop, liar.send.Mem, liar.recv.Mem, liar.cq.Mem)
	}()
	rounds := 300
	if testing.Short() {
		rounds = 50
	}
	for i := range rounds {
		liar.Serve()
		if i%10 == 9 {
			liar.tryConnect(peer)
		}
		v.talk()
	}
	close(stop)
	<-done
}
