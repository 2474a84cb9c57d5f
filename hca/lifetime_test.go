package hca

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"weak"

	"github.com/gosoftroce/rocev2/hca/engine"
	"github.com/gosoftroce/rocev2/ib"
)

// A context that lives longer than a completion queue which was waited for with
// it does not keep the queue.
func TestContextDoesNotKeepCQ(t *testing.T) {
	t.Parallel()
	o := newTestOwner(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p := func() weak.Pointer[CQ] {
		cq, err := o.CreateCQ(1, nil)
		if err != nil {
			t.Fatal(err)
		}
		cq.parker.watch(ctx) // as its leader does
		if err := cq.Close(); err != nil {
			t.Fatal(err)
		}
		cq.parker.watch(ctx) // and one that comes too late
		return weak.Make(cq)
	}()
	for range 10 {
		if runtime.GC(); p.Value() == nil {
			return
		}
	}
	t.Error("the closed queue is still in memory")
}

// A program that holds on to closed objects holds no queues.
func TestClosedObjectsFreeTheirQueues(t *testing.T) {
	t.Parallel()
	o := newTestOwner(t)
	h := &host{t: t, dev: o.dev}
	h.equip()
	q := h.newQP()
	complete(h.cq, ib.WC{}) // the ring is made for it
	ring := weak.Make(&h.cq.ring[0])
	h.must(q.Close())
	h.must(h.cq.Close())
	if st := q.State(); st != 0 {
		t.Errorf("state %v", st)
	}
	for range 10 {
		if runtime.GC(); ring.Value() == nil {
			break
		}
	}
	if ring.Value() != nil {
		t.Error("the ring of the closed completion queue is still in memory")
	}
	runtime.KeepAlive(q)
	if _, err := h.cq.Wait(t.Context(), nil); err == nil {
		t.Error("waiting for nothing")
	}
	if ok, err := h.cq.available(); ok || !errors.Is(err, ErrClosed) {
		t.Errorf("available: %v, %v", ok, err)
	}
	runtime.KeepAlive(q)
}

// A peer that connects again and again with wrong keys leaves nothing in any
// table of the device.
func TestRefusedPeersLeaveTablesEmpty(t *testing.T) {
	t.Parallel()
	a, b := newHosts(t, Config{})
	var wc [1]ib.WC
	for range 500 {
		qa, qb := a.newQP(), b.newQP()
		a.connect(qa, testAddrB, qb.QPN())
		b.connect(qb, testAddrA, qa.QPN())
		_, err := qa.PostSend([]ib.SendWR{{Opcode: ib.OpWrite, Signaled: true, SGList: []ib.SGE{a.mr.Region().SGE(0, 8)},
			Remote: ib.RemoteAddr{Addr: b.mr.Region().Addr(), RKey: b.mr.Region().RKey() ^ 1}}})
		a.must(err)
		if _, err := a.cq.Wait(t.Context(), wc[:]); err != nil || wc[0].Status != ib.StatusRemAccessErr {
			t.Fatalf("%v (%v)", wc[0], err)
		}
		a.must(qa.Close())
		b.must(qb.Close())
	}
	for _, h := range []*host{a, b} {
		s := h.dev.shards[0]
		s.lock()
		u := s.eng.Usage()
		s.unlock()
		if u.Timers > 1 {
			t.Errorf("%d timers", u.Timers)
		}
		if u.Timers = 0; u != (engine.Usage{}) {
			t.Errorf("left is %+v", u)
		}
		h.owner.mu.Lock()
		if n := len(h.owner.made[kindQP]); n != 0 || h.owner.count[kindQP] != 0 {
			t.Errorf("the owner has %d queue pairs, and counts %d", n, h.owner.count[kindQP])
		}
		h.owner.mu.Unlock()
		if h.owner.events.n != 0 {
			t.Errorf("%d events", h.owner.events.n)
		}
	}
}
