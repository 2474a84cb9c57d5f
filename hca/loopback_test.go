package hca

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/transport"
)

// newLoopbackHost makes a device with the given number of shards whose packets
// to itself loop back. far is another host's link.
func newLoopbackHost(t *testing.T, cfg Config, shards int) (h *host, far transport.Link) {
	t.Helper()
	cfg.Loopback = true
	la, lb := fabric.Pair(testAddrA, testAddrB)
	links := []transport.Link{la}
	if shards > 1 {
		var mu sync.Mutex
		links[0] = lockedLink{la, &mu}
		for len(links) < shards {
			links = append(links, mute{la, &mu, make(chan struct{})})
		}
	}
	h = &host{t: t, dev: New(cfg, links...)}
	h.equip()
	return h, lb
}

// newPair makes two connected queue pairs of the device, whose shards are the
// same or not.
func (h *host) newPair(sameShard bool) (a, b *QP) {
	h.t.Helper()
	a, b = h.newQP(), h.newQP()
	for (a.shard == b.shard) != sameShard {
		h.must(b.Close())
		b = h.newQP()
	}
	h.connect(a, testAddrA, b.QPN())
	h.connect(b, testAddrA, a.QPN())
	return a, b
}

func (h *host) mustPost(q *QP, wr ib.SendWR) {
	h.t.Helper()
	wr.Signaled = true
	if wr.SGList == nil {
		wr.SGList = []ib.SGE{h.mr.Region().SGE(0, 8)}
	}
	wr.Remote = ib.RemoteAddr{Addr: h.mr.Region().Addr() + 512<<10, RKey: h.mr.Region().RKey()}
	_, err := q.PostSend([]ib.SendWR{wr})
	h.must(err)
}

func (h *host) mustNotUseLink() {
	h.t.Helper()
	st := h.dev.Stats()
	if st.Link.TxPackets+st.Link.RxPackets != 0 || st.LoopPackets == 0 || st.LoopBytes == 0 {
		h.t.Errorf("%d packets through the link, %d inside", st.Link.TxPackets, st.LoopPackets)
	}
}

// Every operation completes, in both directions at once, within a shard and
// from one to the other, and between a queue pair and itself.
func TestLoopbackBetweenShards(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		shards int
		same   bool
	}{{"one shard", 1, true}, {"two shards", 2, false}, {"four shards", 4, false}, {"one of two shards", 2, true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h, _ := newLoopbackHost(t, Config{}, c.shards)
			const rounds = 50
			for range rounds {
				a, b := h.newPair(c.same)
				h.postRecvs(a, 0)
				h.postRecvs(b, 1)
				h.postAll(a, 0)
				h.postAll(b, 1)
				h.waitOK(2 * postedByAll)
				h.must(a.Close())
				h.must(b.Close())
			}
			h.mustNotUseLink()
		})
	}
}

const (
	postedByAll = 8
	slotLen     = 64 << 10 // bytes of the region, of which a queue pair has eight
)

// The queue pairs of a connection are on side 0 and 1, each with memory of its
// own.
func (h *host) slot(side, i int) []ib.SGE {
	return []ib.SGE{h.mr.Region().SGE(uint64(8*side+i)*slotLen, slotLen-1)}
}

// postRecvs posts the receives that the peer's postAll wants.
func (h *host) postRecvs(q *QP, side int) {
	h.t.Helper()
	_, err := q.PostRecv([]ib.RecvWR{{SGList: h.slot(side, 1)}, {SGList: h.slot(side, 2)}, {SGList: h.slot(side, 3)}})
	h.must(err)
}

// postAll posts requests of every kind.
func (h *host) postAll(q *QP, side int) {
	h.t.Helper()
	for i, op := range []ib.Opcode{ib.OpSend, ib.OpSendImm, ib.OpWriteImm, ib.OpWrite, ib.OpRead} {
		wr := ib.SendWR{Opcode: op, Signaled: true, SGList: h.slot(side, 0)}
		remote := h.slot(1-side, 4+i)
		if op == ib.OpRead {
			wr.SGList, remote = h.slot(side, 4), h.slot(1-side, 0)
		}
		wr.Remote = ib.RemoteAddr{Addr: remote[0].Addr, RKey: h.mr.Region().RKey()}
		_, err := q.PostSend([]ib.SendWR{wr})
		h.must(err)
	}
}

func TestLoopbackToItself(t *testing.T) {
	t.Parallel()
	h, _ := newLoopbackHost(t, Config{}, 1)
	q := h.newQP()
	h.connect(q, testAddrA, q.QPN())
	for range 100 {
		h.postRecvs(q, 0)
		h.postAll(q, 0)
		h.waitOK(postedByAll)
	}
	h.mustNotUseLink()
}

// One program uses the link and the way inside at once.
func TestLoopbackBesideTheLink(t *testing.T) {
	t.Parallel()
	la, lb := fabric.Pair(testAddrA, testAddrB)
	a, b := &host{t: t, dev: New(Config{Loopback: true}, la)}, &host{t: t, dev: New(Config{}, lb)}
	a.equip()
	b.equip()
	x, _ := a.newPair(true)
	qa, qb := a.newQP(), b.newQP()
	a.connect(qa, testAddrB, qb.QPN())
	b.connect(qb, testAddrA, qa.QPN())
	const packets = (200000 + 1023) / 1024
	for range 20 {
		a.write(x, a, 200000)
		a.write(qa, b, 200000)
		a.write(x, a, 200000)
		b.write(qb, a, 200000)
		a.waitOK(3)
		b.waitOK(1)
	}
	st := a.dev.Stats()
	if st.Link.TxPackets < 20*packets || st.LoopPackets < 40*packets {
		t.Errorf("%d packets through the link, %d inside", st.Link.TxPackets, st.LoopPackets)
	}
}

// A program that waits is woken by what another goroutine of the process sends.
func TestLoopbackWakesTheWaiting(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 2} {
		h, _ := newLoopbackHost(t, Config{Spin: -1}, shards)
		other, err := h.owner.CreateCQ(16, nil)
		h.must(err)
		a := h.newQP()
		var c *QP
		for c == nil || (a.shard == c.shard) != (shards == 1) {
			c, err = h.owner.CreateQP(qp.Config{PD: h.pd.Core(), SendCQ: other, RecvCQ: other, MaxSendWR: 4, MaxRecvWR: 4})
			h.must(err)
		}
		h.connect(a, testAddrA, c.QPN())
		h.connect(c, testAddrA, a.QPN())
		// Neither receives where something is sent from. A request that
		// is sent again, as on a busy machine, is read again, while the
		// first copy of it may just be written in the other shard.
		memory := func(q *QP) (recv []ib.RecvWR, send []ib.SGE) {
			at := uint64(0)
			if q == c {
				at = 16
			}
			return []ib.RecvWR{{SGList: []ib.SGE{h.mr.Region().SGE(at, 8)}}}, []ib.SGE{h.mr.Region().SGE(at+8, 8)}
		}
		ping := func(q *QP, cq *CQ, first bool) {
			var wc [1]ib.WC
			recv, send := memory(q)
			for i := range 1000 {
				if first || i > 0 {
					if _, err := q.PostSend([]ib.SendWR{{Opcode: ib.OpSend, SGList: send}}); err != nil {
						t.Error(err)
					}
				}
				if n, err := cq.Wait(t.Context(), wc[:]); n != 1 || err != nil || wc[0].Status != ib.StatusSuccess {
					t.Error(err, wc)
					return
				}
				if _, err := q.PostRecv(recv); err != nil {
					t.Error(err)
				}
			}
			if !first {
				if _, err := q.PostSend([]ib.SendWR{{Opcode: ib.OpSend, SGList: send}}); err != nil {
					t.Error(err)
				}
			}
		}
		for _, q := range []*QP{a, c} {
			recv, _ := memory(q)
			_, err := q.PostRecv(append(recv, recv...))
			h.must(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() { ping(a, h.cq, true) })
		wg.Go(func() { ping(c, other, false) })
		wg.Wait()
		h.mustNotUseLink()
	}
}

// A missing receive buffer is awaited, a vanished queue pair is noticed, each
// in its time: timers are as towards another host (IBTA 9.7.5.2.8, 9.7.6.1.3).
func TestLoopbackTimers(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			h, far := newLoopbackHost(t, Config{}, shards)
			defer far.Close()
			a, b := h.newPair(shards == 1)
			h.mustPost(a, ib.SendWR{Opcode: ib.OpSend})
			time.Sleep(time.Second) // virtual
			if a.Stats().RNRWaits == 0 {
				t.Errorf("no RNR NAK: %+v", a.Stats())
			}
			_, err := b.PostRecv([]ib.RecvWR{{SGList: []ib.SGE{h.mr.Region().SGE(0, 8)}}})
			h.must(err)
			h.waitOK(2)
			h.must(b.Close())
			start := time.Now()
			h.mustPost(a, ib.SendWR{Opcode: ib.OpWrite})
			var wc [1]ib.WC
			_, err = h.cq.Wait(t.Context(), wc[:])
			h.must(err)
			if d := time.Since(start); wc[0].Status != ib.StatusRetryExcErr || d < 8*67*time.Millisecond || d > time.Second {
				t.Errorf("%v after %v", wc[0].Status, d)
			}
			if n := h.dev.Stats().Drops["unknown_qpn"]; n == 0 {
				t.Error("packets to no queue pair are not counted")
			}
			h.must(h.dev.Close())
		})
	}
}

// The limit of a peer holds for the own address too: more queue pairs than it
// admits at once get their turn, and nothing stays in flight.
func TestLoopbackLimits(t *testing.T) {
	t.Parallel()
	const limit, pairs = 16 << 10, 20
	h, _ := newLoopbackHost(t, Config{Window: qp.WindowConfig{MaxBytes: limit}}, 1)
	for range pairs {
		a, _ := h.newPair(true)
		h.write(a, h, 300000)
	}
	h.waitOK(pairs)
	s := h.dev.shards[0]
	s.lock()
	defer s.unlock()
	if u := s.eng.Usage(); u.InFlight != 0 || u.Busy != 0 || u.Limited != 0 || u.Peers != 1 || u.QPs != 2*pairs {
		t.Errorf("in the end: %+v", u)
	}
}

// Queue pairs and the device close while packets pass.
func TestLoopbackClosesUnderTraffic(t *testing.T) {
	t.Parallel()
	for i := range 20 {
		h, _ := newLoopbackHost(t, Config{}, 1+i%2)
		var wg sync.WaitGroup
		for pair := range 4 {
			a, b := h.newPair(i%2 == 0)
			wg.Go(func() {
				var wc [16]ib.WC
				for n := 0; ; n++ {
					q := []*QP{a, b}[n%2]
					to := h.slot(0, 4*pair+n%2)[0].Addr // nothing else uses these bytes
					wr := ib.SendWR{Opcode: ib.OpWrite, SGList: h.slot(0, 4*pair+2+n%2), Remote: ib.RemoteAddr{Addr: to, RKey: h.mr.Region().RKey()}}
					if _, err := q.PostSend([]ib.SendWR{wr}); errors.Is(err, ErrClosed) {
						return
					}
					h.cq.PollProgress(wc[:])
				}
			})
			wg.Go(func() {
				for range 2 + i {
					h.dev.Progress()
				}
				if i%3 != 0 {
					b.Close()
				}
			})
		}
		h.must(h.dev.Close())
		wg.Wait()
	}
}

// Off by default, packets to the own address take the link.
func TestLoopbackIsOptional(t *testing.T) {
	t.Parallel()
	h, _ := newHosts(t, Config{})
	a, b := h.newQP(), h.newQP()
	h.connect(a, testAddrA, b.QPN())
	h.connect(b, testAddrA, a.QPN())
	h.write(a, h, 8)
	h.must(a.Close())
	if st := h.dev.Stats(); st.LoopPackets != 0 || st.Link.TxPackets == 0 {
		t.Errorf("%d packets inside, %d through the link", st.LoopPackets, st.Link.TxPackets)
	}
}

func TestLoopbackDoesNotAllocate(t *testing.T) { // not parallel: it counts allocations
	for _, op := range []ib.Opcode{ib.OpWrite, ib.OpRead} {
		h, _ := newLoopbackHost(t, Config{}, 1)
		a, _ := h.newPair(true)
		wrs := []ib.SendWR{{Opcode: op, Signaled: true, SGList: []ib.SGE{h.mr.Region().SGE(0, 100000)},
			Remote: ib.RemoteAddr{Addr: h.mr.Region().Addr(), RKey: h.mr.Region().RKey()}}}
		var wc [1]ib.WC
		once := func() {
			_, err := a.PostSend(wrs)
			h.must(err)
			for h.cq.Poll(wc[:]) == 0 {
				h.dev.Progress()
			}
		}
		once()
		if n := testing.AllocsPerRun(100, once); n != 0 {
			t.Errorf("%v allocations for %v", n, op)
		}
	}
}
