package hca

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"weak"
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
	ring := weak.Make(&h.cq.ring[0])
	h.must(q.Close())
	h.must(h.cq.Close())
	if st := q.State(); st != 0 {
		t.Errorf("state %v", st)
	}
	if c := q.core.Config(); c.SendCQ != nil || c.RecvCQ != nil || c.PD != nil || c.QPN != q.QPN() {
		t.Errorf("the closed queue pair refers to %+v", c)
	}
	for range 10 {
		if runtime.GC(); ring.Value() == nil {
			break
		}
	}
	if ring.Value() != nil {
		t.Error("the ring of the closed completion queue is still in memory")
	}
	if _, err := h.cq.Wait(t.Context(), nil); err == nil {
		t.Error("waiting for nothing")
	}
	if ok, err := h.cq.available(); ok || !errors.Is(err, ErrClosed) {
		t.Errorf("available: %v, %v", ok, err)
	}
	runtime.KeepAlive(q)
}
