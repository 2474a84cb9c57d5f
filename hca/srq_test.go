package hca

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/transport"
)

// newShardedHosts returns two hosts, of which b has four shards.
func newShardedHosts(t *testing.T, fc ...fabric.Config) (a, b *host) {
	t.Helper()
	la, lb := fabric.Pair(testAddrA, testAddrB, fc...)
	var mu sync.Mutex
	links := []transport.Link{lockedLink{lb, &mu}}
	for len(links) < 4 {
		links = append(links, mute{lb, &mu, make(chan struct{})})
	}
	a, b = &host{t: t, dev: New(Config{}, la)}, &host{t: t, dev: New(Config{}, links...)}
	a.equip()
	b.equip()
	b.rnr = 12 // 0.64 ms
	return a, b
}

func (h *host) newSRQ(n int) *SRQ {
	h.t.Helper()
	s, err := h.pd.CreateSRQ(SRQConfig{MaxWR: n, MaxSGE: 1})
	h.must(err)
	return s
}

// sharing makes a queue pair that takes from s, connected to a new one of far.
func (h *host) sharing(s *SRQ, far *host) (q, peer *QP) {
	h.t.Helper()
	q, err := h.owner.CreateQP(qp.Config{PD: h.pd.Core(), SendCQ: h.cq, RecvCQ: h.cq, MaxSendWR: 16, MaxRecvWR: 16, RecvSource: s})
	h.must(err)
	peer = far.newQP()
	h.connect(q, testAddrA, peer.QPN())
	far.connect(peer, testAddrB, q.QPN())
	return q, peer
}

// sharedSlot is a receive for place i of the memory.
func (h *host) sharedSlot(i int) ib.RecvWR {
	return ib.RecvWR{ID: uint64(i), SGList: []ib.SGE{h.mr.Region().SGE(uint64(4096*i), 4096)}}
}

func (h *host) postShared(s *SRQ, ids ...int) {
	h.t.Helper()
	for _, i := range ids {
		_, err := s.PostRecv([]ib.RecvWR{h.sharedSlot(i)})
		h.must(err)
	}
}

// send posts a SEND of n bytes.
func (h *host) send(q *QP, n uint32) {
	h.t.Helper()
	_, err := q.PostSend([]ib.SendWR{{Opcode: ib.OpSend, Signaled: true, SGList: []ib.SGE{h.mr.Region().SGE(0, n)}}})
	h.must(err)
}

// nextEvent returns the next asynchronous event, or false if none is there when
// all goroutines of the bubble wait.
func (h *host) nextEvent() (AsyncEvent, bool) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), time.Second)
	defer cancel()
	e, err := h.owner.AsyncEvent(ctx)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		h.t.Fatal(err)
	}
	return e, err == nil
}

// Many queue pairs of all shards take from one queue that has fewer receives
// than there are messages. Each message arrives once, in the order of its queue
// pair, in memory of its own, and no queue pair waits for ever: one whose peer
// was told to try again finds a receive when it does.
func TestSRQOfManyShards(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		synctest.Test(t, func(t *testing.T) {
			a, b := newShardedHosts(t, fabric.Config{Port: fabric.PortConfig{Delay: 10 * time.Microsecond, Loss: 0.01 * float64(seed%2)}, Seed: seed})
			const pairs, each, slots = 16, 60, 8
			s := b.newSRQ(slots)
			from := map[uint32]int{}
			var senders [pairs]*QP
			shards := map[*shard]bool{}
			for i := range senders {
				var q *QP
				q, senders[i] = b.sharing(s, a)
				from[uint32(q.QPN())] = i
				shards[q.shard] = true
			}
			if len(shards) < 2 {
				t.Fatal("the queue pairs are of one shard")
			}
			for i := range slots {
				b.postShared(s, i)
			}
			begun := time.Now()
			var wg sync.WaitGroup
			for i, q := range senders {
				wg.Go(func() {
					for n := range each {
						var data [8]byte
						binary.BigEndian.PutUint32(data[:], uint32(i))
						binary.BigEndian.PutUint32(data[4:], uint32(n))
						at := uint64(8 * (i*each + n))
						a.mr.Region().CopyIn(at, data[:])
						wr := []ib.SendWR{{Opcode: ib.OpSend, SGList: []ib.SGE{a.mr.Region().SGE(at, 8)}}}
						if n%8 == 7 || n == each-1 {
							wr[0].Signaled = true
						}
						for {
							_, err := q.PostSend(wr)
							if !errors.Is(err, ib.ErrQueueFull) {
								a.must(err)
								break
							}
							time.Sleep(50 * time.Microsecond)
						}
					}
				})
			}
			var got [pairs]int
			var wc [slots]ib.WC
			for total := 0; total < pairs*each; {
				n, err := b.cq.Wait(t.Context(), wc[:])
				b.must(err)
				for _, c := range wc[:n] {
					if c.Status != ib.StatusSuccess || c.Opcode != ib.WCRecv {
						t.Fatalf("completion %+v", c)
					}
					var data [8]byte
					b.mr.Region().CopyOut(data[:], 4096*c.ID)
					i := from[uint32(c.QPN)]
					if int(binary.BigEndian.Uint32(data[:])) != i || int(binary.BigEndian.Uint32(data[4:])) != got[i] {
						t.Fatalf("queue pair %d: message %x after %d", i, data, got[i])
					}
					got[i]++
					total++
					b.postShared(s, int(c.ID))
				}
			}
			wg.Wait()
			// The scheduler says which queue pair meets an empty
			// queue: it takes 100 ms, on a busy machine more.
			if took := time.Since(begun); took > 2*time.Second {
				t.Errorf("seed %d: it took %v", seed, took)
			}
			if n := s.Attr().Posted; n != slots {
				t.Errorf("%d receives are left of %d", n, slots)
			}
		})
	}
}

// The limit event comes once for each time that the limit is armed, when a
// message leaves fewer receives than it.
func TestSRQLimitEvent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := newShardedHosts(t)
		s := b.newSRQ(8)
		_, peer := b.sharing(s, a)
		limit := func(n int) { b.must(s.Modify(nil, &n)) }
		message := func() {
			a.send(peer, 8)
			a.waitOK(1)
			b.waitOK(1)
		}
		wantNone := func(why string) {
			t.Helper()
			if e, ok := b.nextEvent(); ok {
				t.Fatalf("%s: %v", why, e.Kind)
			}
		}
		wantLimit := func(why string) {
			t.Helper()
			if e, ok := b.nextEvent(); !ok || e.Kind != ib.EventSRQLimit || e.SRQ != s {
				t.Fatalf("%s: %v %+v", why, ok, e)
			}
			if s.Attr().Limit != 0 {
				t.Fatal("it is still armed")
			}
		}
		b.postShared(s, 0, 1, 2, 3, 4)
		message()
		wantNone("without a limit")
		limit(3)
		wantNone("armed")
		message()
		wantNone("three are left")
		message()
		wantLimit("two are left")
		message()
		wantNone("told once")
		limit(3)
		wantNone("armed while one is left: the next message tells")
		message()
		wantLimit("none is left")
		limit(1)
		a.send(peer, 8)
		wantLimit("a message finds none")
		b.postShared(s, 5)
		a.waitOK(1)
		b.waitOK(1)
		limit(8)
		limit(0)
		b.postShared(s, 6, 7)
		message()
		wantNone("disarmed")
	})
}

// A queue that is resized keeps its receives. What it cannot be changes
// nothing.
func TestSRQModify(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := newShardedHosts(t)
		s := b.newSRQ(4)
		_, peer := b.sharing(s, a)
		modify := func(maxWR, limit int) error { return s.Modify(&maxWR, &limit) }
		b.postShared(s, 0, 1, 2)
		want := SRQAttr{MaxWR: 4, MaxSGE: 1, Posted: 3}
		for name, bad := range map[string][2]int{
			"fewer than there are":        {2, 0},
			"limit beyond the size":       {4, 5},
			"a good size, a bad limit":    {16, 17},
			"a negative limit":            {16, -1},
			"more than the device offers": {ib.MaxSRQWR + 1, 0},
			"none":                        {0, 0},
		} {
			var e *RangeError
			if err := modify(bad[0], bad[1]); !errors.As(err, &e) || s.Attr() != want {
				t.Errorf("%s: %v, now %+v", name, err, s.Attr())
			}
		}
		b.must(modify(3, 1))
		if n, err := s.PostRecv([]ib.RecvWR{b.sharedSlot(3)}); n != 0 || !errors.Is(err, ib.ErrQueueFull) {
			t.Error(n, err)
		}
		b.must(modify(5, 0))
		if n, err := s.PostRecv([]ib.RecvWR{b.sharedSlot(3), b.sharedSlot(4), b.sharedSlot(5)}); n != 2 || !errors.Is(err, ib.ErrQueueFull) {
			t.Error(n, err)
		}
		for i := range 5 {
			a.send(peer, 8)
			a.waitOK(1)
			var wc [1]ib.WC
			_, err := b.cq.Wait(t.Context(), wc[:])
			b.must(err)
			if wc[0].ID != uint64(i) || wc[0].Status != ib.StatusSuccess {
				t.Errorf("receive %d: %+v", i, wc[0])
			}
		}
	})
}

// A queue pair on its way to ERR completes the receive that it has taken, then
// says that it takes no more, once. What is in the queue stays there for
// others.
func TestSRQLastWQE(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := newShardedHosts(t)
		s := b.newSRQ(4)
		far := newFarMemory()
		farMR, err := b.pd.Register(far, memreg.Options{Access: ib.LocalWrite, Base: memreg.BaseZero}, nil)
		b.must(err)
		_, err = s.PostRecv([]ib.RecvWR{{SGList: []ib.SGE{farMR.Region().SGE(0, 8)}}, b.sharedSlot(1)})
		b.must(err)
		q, peer := b.sharing(s, a)
		_, otherPeer := b.sharing(s, a)
		a.send(peer, 8)
		<-far.asked // the message cannot be finished
		if _, err := q.PostRecv([]ib.RecvWR{b.sharedSlot(3)}); !errors.Is(err, ib.ErrShared) {
			t.Error(err)
		}
		for range 2 {
			b.must(q.Modify(&ib.Attr{State: ib.StateErr}, ib.AttrState))
		}
		var wc [4]ib.WC
		n, err := b.cq.Wait(t.Context(), wc[:])
		b.must(err)
		if n != 1 || wc[0].ID != 0 || wc[0].Status != ib.StatusWRFlushErr || wc[0].QPN != q.QPN() {
			t.Errorf("%d completions, %+v", n, wc[0])
		}
		if e, ok := b.nextEvent(); !ok || e.Kind != ib.EventLastWQEReached || e.QP != q {
			t.Errorf("%v %+v", ok, e)
		}
		if e, ok := b.nextEvent(); ok {
			t.Errorf("another event: %v", e.Kind)
		}
		if n := s.Attr().Posted; n != 1 {
			t.Errorf("%d receives are left", n)
		}
		close(far.come)
		a.send(otherPeer, 8)
		b.waitOK(1)
	})
}

// A queue cannot be closed while queue pairs take from it, unless all that the
// context has is closed.
func TestSRQClose(t *testing.T) {
	t.Parallel()
	a, b := newHosts(t, Config{})
	s := b.newSRQ(4)
	q, _ := b.sharing(s, a)
	b.postShared(s, 0)
	if err := s.Close(); !errors.Is(err, ErrInUse) || s.Attr().Posted != 1 {
		t.Fatal(err)
	}
	_, err := a.owner.CreateQP(qp.Config{PD: a.pd.Core(), SendCQ: a.cq, RecvCQ: a.cq, RecvSource: s})
	if !errors.Is(err, ErrOtherDevice) {
		t.Error(err)
	}
	o, err := b.dev.NewContext()
	b.must(err)
	if _, err = o.CreateQP(qp.Config{PD: b.pd.Core(), SendCQ: b.cq, RecvCQ: b.cq, RecvSource: s}); !errors.Is(err, errOtherContext) {
		t.Error(err)
	}
	_, err = b.owner.CreateQP(qp.Config{PD: b.pd.Core(), SendCQ: b.cq, RecvCQ: b.cq, RecvSource: s, MaxSendWR: -1})
	if err == nil {
		t.Error("a queue pair of no size was made")
	}
	b.must(q.Close())
	b.must(s.Close())
	b.must(s.Close())
	if _, err := s.PostRecv([]ib.RecvWR{b.sharedSlot(0)}); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if err := s.Modify(nil, nil); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if _, err := b.owner.CreateQP(qp.Config{PD: b.pd.Core(), SendCQ: b.cq, RecvCQ: b.cq, RecvSource: s}); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	s = b.newSRQ(4)
	b.sharing(s, a)
	b.must(b.owner.Close())
	if b.owner.count != (objects{}) {
		t.Errorf("left are %v", b.owner.count)
	}
}

// A queue whose protection domain is closed says so, once, and takes no more.
func TestSRQWithoutPD(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := newHosts(t, Config{})
		s := b.newSRQ(4)
		pd, err := b.owner.AllocPD()
		b.must(err)
		q, err := b.owner.CreateQP(qp.Config{PD: pd.Core(), SendCQ: b.cq, RecvCQ: b.cq, RecvSource: s})
		b.must(err)
		peer := a.newQP()
		b.connect(q, testAddrA, peer.QPN())
		a.connect(peer, testAddrB, q.QPN())
		b.postShared(s, 0, 1)
		a.send(peer, 8) // the memory is of the queue's domain, not of the queue pair's
		a.waitOK(1)
		b.waitOK(1)
		b.must(b.pd.Close())
		if e, ok := b.nextEvent(); !ok || e.Kind != ib.EventSRQError || e.SRQ != s {
			t.Errorf("%v %+v", ok, e)
		}
		if _, err := s.PostRecv([]ib.RecvWR{b.sharedSlot(0)}); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
		a.send(peer, 8)
		var wc [1]ib.WC
		_, err = b.cq.Wait(t.Context(), wc[:])
		b.must(err)
		if wc[0].Status != ib.StatusLocProtErr {
			t.Errorf("%+v", wc[0])
		}
		if _, err := pd.CreateSRQ(SRQConfig{MaxWR: 1, MaxSGE: 1}); err != nil {
			t.Error(err)
		}
		if _, err := b.pd.CreateSRQ(SRQConfig{MaxWR: 1, MaxSGE: 1}); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
}
