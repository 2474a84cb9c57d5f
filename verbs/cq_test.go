package verbs_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/verbs"
)

// writeN posts n signaled WRITEs of one byte, with the ids from first on.
func (s *side) writeN(peer *side, first, n int) {
	s.t.Helper()
	for i := range n {
		s.post(verbs.SendWR{ID: uint64(first + i), Opcode: verbs.OpWrite, Inline: []byte{1}, Remote: peer.mr.RemoteAt(0)})
	}
}

// A Go channel has every completion once, in order. A completion that it has
// taken and that is not received before its context ends can still be polled.
func TestChan(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := newPair(t, 64)
		ctx, cancel := context.WithCancel(t.Context())
		ch := a.cq.Chan(ctx)
		a.writeN(b, 0, 20)
		for i := range uint64(10) {
			if wc := <-ch; wc.ID != i || wc.Status != verbs.StatusSuccess {
				t.Fatalf("completion %d: %v", i, wc)
			}
		}
		synctest.Wait()
		cancel()
		for wc, open := <-ch; open; wc, open = <-ch {
			t.Errorf("%v after the end", wc) // select may choose to send, but no receiver waits when it does
		}
		for i := range uint64(10) {
			a.waitOK(10 + i)
		}
		ch = a.cq.Chan(t.Context())
		a.writeN(b, 0, 3)
		synctest.Wait()
		check(t, a.cq.Close())
		for range ch {
		}
	})
}

// Resize and moderation through the API: errors name the queue and say what it
// may be.
func TestCQAttributes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := newPair(t, 64)
		check(t, a.cq.Resize(1000))
		if n := a.cq.Cap(); n != 1024 {
			t.Errorf("room for %d", n)
		}
		a.writeN(b, 0, 5)
		time.Sleep(time.Second)
		synctest.Wait() // all are done
		var bad *verbs.RangeError
		if err := a.cq.Resize(3); !errors.As(err, &bad) || bad.Min != 5 ||
			err.Error() != fmt.Sprintf("verbs: resize CQ %d: size of a completion queue that has unpolled completions is 3; it must be between 5 and %d", a.cq.Handle(), bad.Max) {
			t.Errorf("too small: %v", err)
		}
		check(t, a.cq.Resize(8))
		for i := range uint64(5) {
			a.waitOK(i)
		}
		if err := a.cq.SetModeration(1<<16, 0); !errors.As(err, &bad) || bad.Max != a.dev.Query().MaxModerationCount {
			t.Errorf("count: %v", err)
		}
		if err := a.cq.SetModeration(2, time.Second); !errors.As(err, &bad) || bad.Max != int(a.dev.Query().MaxModerationPeriod/time.Microsecond) {
			t.Errorf("period: %v", err)
		}
		check(t, a.cq.SetModeration(4, 20*time.Microsecond))
		if count, period := a.cq.Moderation(); count != 4 || period != 20*time.Microsecond {
			t.Errorf("moderation: %d, %v", count, period)
		}
	})
}

// A program that sleeps on a channel is woken once for the completions that
// moderation gathers, and for what is left when the period is over.
func TestModerationWakesOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := newPair(t, 64)
		ch, err := a.dev.CreateCompChannel()
		check(t, err)
		cq, err := a.dev.CreateCQ(64, verbs.WithChannel(ch), verbs.WithTimestamps())
		check(t, err)
		a.qp, err = a.pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq})
		check(t, err)
		connect(t, a.qp, b.newQP(verbs.QPConfig{}))
		check(t, cq.SetModeration(8, 10*time.Millisecond))
		var wc [64]verbs.WC
		for range 5 {
			cq.Arm(false)
			a.writeN(b, 0, 8)
			if _, err := ch.Get(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n := cq.Poll(wc[:]); n != 8 {
				t.Fatalf("woken for %d completions", n)
			}
		}
		cq.Arm(false)
		a.writeN(b, 0, 3)
		if _, err := ch.Get(t.Context()); err != nil {
			t.Fatal(err)
		}
		now := a.dev.Now()
		if n := cq.Poll(wc[:]); n != 3 || now-wc[0].Timestamp != uint64(10*time.Millisecond) {
			t.Fatalf("woken for %d completions after %d ns", n, now-wc[0].Timestamp)
		}
	})
}

// An event handler gets the events until the device is closed, which it may do
// itself.
func TestHandleEvents(t *testing.T) {
	t.Parallel()
	a, b := newPair(t, 64)
	check(t, a.qp.PostRecv(verbs.RecvWR{}))
	var got []verbs.AsyncEvent
	done := make(chan error)
	go func() {
		done <- b.dev.HandleEvents(t.Context(), func(e verbs.AsyncEvent) {
			got = append(got, e)
			check(t, b.dev.Close())
		})
	}()
	// A key that there is not: the peer's queue pair goes to ERR.
	a.post(verbs.SendWR{Opcode: verbs.OpWrite, Inline: []byte{1}, Remote: verbs.RemoteAddr{Addr: 1, RKey: 1}})
	if err := <-done; err != nil || len(got) != 1 || got[0].Event != verbs.EventQPAccessError || got[0].QP != b.qp {
		t.Errorf("%v (%v)", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.dev.HandleEvents(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("the context has ended: %v", err)
	}
	for e, err := range a.dev.Events(ctx) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v (%v)", e, err)
		}
	}
	check(t, a.dev.Close())
	for e, err := range a.dev.Events(t.Context()) {
		if !errors.Is(err, verbs.ErrClosed) {
			t.Errorf("%v (%v)", e, err)
		}
	}
}

// With a completion queue and a goroutine for each vector, every goroutine
// drives its own shard: polling, waiting, on a Go channel.
func TestVectors(t *testing.T) {
	t.Parallel()
	const shards, qps, rounds = 4, 12, 200
	open := func() *verbs.Device {
		addr := netip.AddrFrom4([4]byte{127, byte(2 + rand.IntN(200)), byte(rand.IntN(256)), byte(2 + rand.IntN(200))})
		d, err := verbs.OpenAddr(addr, verbs.Config{Shards: shards})
		if errors.Is(err, errors.ErrUnsupported) {
			t.Skip("the link of this system has no shards: run it on Linux")
		}
		check(t, err)
		t.Cleanup(func() { check(t, d.Close()) })
		return d
	}
	a, b := newSide(t, open(), 64), newSide(t, open(), 64)
	if n := a.dev.CompletionVectors(); n != shards || a.dev.Query().CompletionVectors != shards {
		t.Fatalf("%d vectors", n)
	}
	var bad *verbs.RangeError
	if _, err := a.dev.CreateCQ(1, verbs.WithVector(shards)); !errors.As(err, &bad) || bad.Max != shards-1 {
		t.Errorf("a vector that there is not: %v", err)
	}
	var wg sync.WaitGroup
	for v := range shards {
		cq, err := a.dev.CreateCQ(256, verbs.WithVector(v))
		check(t, err)
		var qs []*verbs.QP
		for range qps / shards {
			q, err := a.pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq})
			check(t, err)
			if int(q.QPN())%shards != v {
				t.Errorf("QPN %v of vector %d is of another shard", q.QPN(), v)
			}
			connect(t, q, b.newQP(verbs.QPConfig{}))
			qs = append(qs, q)
		}
		wg.Go(func() {
			var ch <-chan verbs.WC
			if v == 0 {
				ch = cq.Chan(t.Context())
			}
			for i := range rounds {
				q := qs[i%len(qs)]
				if err := q.PostSend(verbs.SendWR{Opcode: verbs.OpWrite, Inline: []byte{1}, Remote: b.mr.RemoteAt(8 * v), Signaled: true}); err != nil {
					t.Error(err)
					return
				}
				wc := verbs.WC{}
				if v == 0 {
					wc = <-ch
				} else {
					wc = waiters[v%2](t.Context(), t, cq, nil)
				}
				if wc.Status != verbs.StatusSuccess || wc.QPN != q.QPN() {
					t.Errorf("vector %d: %v", v, wc)
					return
				}
			}
		})
	}
	wg.Wait()
}
