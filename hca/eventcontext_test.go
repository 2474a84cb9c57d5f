package hca

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/transport"
)

// Events of an object go to the context that has made it, those of the port to
// all contexts.
func TestEventsGoToTheirContext(t *testing.T) {
	t.Parallel()
	first := newTestOwner(t)
	second, err := first.dev.NewContext()
	if err != nil {
		t.Fatal(err)
	}
	cq, err := second.CreateCQ(1, nil)
	if err != nil {
		t.Fatal(err)
	}
	complete(cq, ib.WC{})
	complete(cq, ib.WC{})
	first.dev.events.broadcast(ib.EventPortError)
	if e, err := first.AsyncEvent(t.Context()); err != nil || e != (AsyncEvent{Kind: ib.EventPortError}) {
		t.Errorf("the first context: %+v (%v)", e, err)
	}
	for _, want := range []AsyncEvent{{Kind: ib.EventCQError, CQ: cq}, {Kind: ib.EventPortError}} {
		if e, err := second.AsyncEvent(t.Context()); err != nil || e != want {
			t.Errorf("the second context: %+v (%v), want %+v", e, err, want)
		}
	}
	for range maxEvents + 3 {
		first.dev.events.broadcast(ib.EventPortError)
	}
	if n := first.dev.Stats().Events; n != 6 {
		t.Errorf("%d events are lost", n)
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	if n := first.dev.Stats().Events; n != 6 {
		t.Errorf("%d events are lost after Close", n)
	}
	if _, err := second.AsyncEvent(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("events of a closed context: %v", err)
	}
}

// Closing the link under a device ends the device, which says so once (IBTA
// 11.6.3.1).
func TestDeviceFatal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newTestOwner(t)
		cq, err := o.CreateCQ(1, nil)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() {
			_, err := cq.Wait(t.Context(), make([]ib.WC, 1))
			done <- err
		}()
		synctest.Wait()
		if err := o.dev.shards[0].link.Close(); err != nil {
			t.Fatal(err)
		}
		if e, err := o.AsyncEvent(t.Context()); err != nil || e.Kind != ib.EventDeviceFatal {
			t.Errorf("%+v (%v)", e, err)
		}
		if err := <-done; !errors.Is(err, ErrClosed) {
			t.Errorf("Wait: %v", err)
		}
		synctest.Wait()
		if o.events.n != 0 {
			t.Error("it says so twice")
		}
	})
}

// What a handler of an event leaves for later is done, also where no lock is
// given up after the event: a device that has failed has nothing more to do.
func TestEventsLeaveNothing(t *testing.T) {
	t.Parallel()
	for name, raise := range map[string]func(*Device) error{
		"the link is lost":  func(d *Device) error { return d.shards[0].link.Close() },
		"the port is down":  func(d *Device) error { d.events.portChanged(transport.PortWentDown); return nil },
		"the port is there": func(d *Device) error { d.events.portChanged(transport.PortCameUp); return nil },
	} {
		synctest.Test(t, func(t *testing.T) {
			o := newTestOwner(t)
			told := 0
			o.HandleEvents(func(AsyncEvent) { o.dev.Later(func() { told++ }) })
			synctest.Wait()
			if err := raise(o.dev); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if told != 1 {
				t.Errorf("%s: %d calls, not 1", name, told)
			}
		})
	}
}

// Queue pairs live on the shard that the vectors of their queues say.
func TestVectorsAreShards(t *testing.T) {
	t.Parallel()
	la := newTestOwner(t).dev.shards[0].link
	var mu sync.Mutex
	h := &host{t: t, dev: New(Config{}, lockedLink{la, &mu}, mute{la, &mu, make(chan struct{})})}
	h.equip()
	if n := h.dev.CompletionVectors(); n != 2 {
		t.Fatalf("%d vectors", n)
	}
	for _, i := range []int{-1, 2} {
		if _, err := h.owner.CreateCQ(1, nil, WithVector(i)); err == nil || !strings.Contains(err.Error(), "between 0 and 1") {
			t.Errorf("vector %d: %v", i, err)
		}
	}
	var on [2]*CQ
	for i := range on {
		var err error
		on[i], err = h.owner.CreateCQ(1, nil, WithVector(i))
		h.must(err)
	}
	for range 10 {
		for _, c := range []struct {
			send, recv *CQ
			shard      int
		}{{on[0], on[0], 0}, {on[1], h.cq, 1}, {h.cq, on[0], 0}, {h.cq, on[1], 1}} {
			q, err := h.owner.CreateQP(qp.Config{PD: h.pd.Core(), SendCQ: c.send, RecvCQ: c.recv})
			h.must(err)
			if q.shard != h.dev.shards[c.shard] {
				t.Errorf("a queue pair of vector %d is on another shard", c.shard)
			}
		}
	}
	if on[0].foreign.Load() || on[1].foreign.Load() {
		t.Error("queues are taken to be filled by other shards")
	}
	q, err := h.owner.CreateQP(qp.Config{PD: h.pd.Core(), SendCQ: on[0], RecvCQ: on[1]})
	h.must(err)
	if q.shard != h.dev.shards[0] || on[0].foreign.Load() || !on[1].foreign.Load() {
		t.Error("the send queue's vector does not decide")
	}
	x, err := h.owner.OpenXRCD()
	h.must(err)
	_, err = h.pd.CreateSRQ(SRQConfig{MaxWR: 1, MaxSGE: 1, XRCD: x, CQ: on[0]})
	h.must(err)
	if !on[0].foreign.Load() {
		t.Error("the targets of XRC, which live anywhere, are not taken to fill the queue")
	}
}
