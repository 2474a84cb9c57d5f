package hca

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/ib"
)

// Of many queues on one channel none starves, though all are always busy: each
// is notified in its turn. A queue that is closed takes its notification along,
// wherever in the list it is.
func TestCompChannelIsFair(t *testing.T) {
	t.Parallel()
	o := newTestOwner(t)
	ch, _ := o.CreateCompChannel(false)
	cqs := make([]*CQ, 50)
	number := map[*CQ]int{}
	for i := range cqs {
		cq, err := o.CreateCQ(4, ch)
		if err != nil {
			t.Fatal(err)
		}
		cqs[i], number[cq] = cq, i
		cq.Arm(false)
		complete(cq, ib.WC{})
		complete(cq, ib.WC{}) // no second notification
	}
	for i := range 20 * len(cqs) {
		cq, err := ch.Get(t.Context())
		if err != nil || number[cq] != i%len(cqs) {
			t.Fatalf("notification %d is of queue %d (%v)", i, number[cq], err)
		}
		cq.Poll(make([]ib.WC, 4))
		cq.Arm(false)
		complete(cq, ib.WC{})
	}
	for _, i := range []int{0, 49, 25, 26, 1} { // first, last, inside
		if err := cqs[i].Close(); err != nil {
			t.Fatal(err)
		}
	}
	left := 0
	for cq, err := ch.take(); cq != nil; cq, err = ch.take() {
		if err != nil || number[cq] < left {
			t.Fatalf("queue %d comes after %d (%v)", number[cq], left, err)
		}
		left = number[cq]
		delete(number, cq)
	}
	if len(number) != 5 {
		t.Errorf("%d queues without a notification, want the 5 that are closed", len(number))
	}
	cqs[2].Arm(false)
	complete(cqs[2], ib.WC{})
	if err := ch.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := ch.Get(t.Context()); !errors.Is(err, ErrClosed) || cqs[2].notified.In() {
		t.Errorf("closed: %v, still listed %v", err, cqs[2].notified.In())
	}
	cqs[3].Arm(false)
	if !complete(cqs[3], ib.WC{}) || cqs[3].notified.In() {
		t.Error("a queue of a closed channel does not work on")
	}
}

// Queues are filled, polled, waited for, armed, moderated, resized and closed
// by many goroutines at once. Every completion is taken once, and in order by a
// single reader of what one filler has filled.
func TestCQStorm(t *testing.T) {
	t.Parallel()
	o := newTestOwner(t)
	ch, _ := o.CreateCompChannel(false)
	const fillers, most = 3, 3000
	each := uint64(most)
	if testing.Short() {
		each = 300
	}
	cq, err := o.CreateCQ(64, ch, WithTimestamps())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var readers, others sync.WaitGroup
	for f := range uint64(fillers) {
		others.Go(func() {
			for i := uint64(0); i < each; {
				if complete(cq, ib.WC{ID: f<<32 | i}) {
					i++
				}
			}
		})
	}
	var seen [fillers][most]atomic.Int32
	var left atomic.Int32
	left.Store(int32(fillers * each))
	take := func(wc []ib.WC) {
		for _, c := range wc {
			seen[c.ID>>32][c.ID&(1<<32-1)].Add(1)
			if left.Add(-1) == 0 {
				cancel()
			}
		}
	}
	for g := range uint64(4) {
		readers.Go(func() {
			rng := rand.New(rand.NewPCG(1, g))
			var wc [5]ib.WC
			for ctx.Err() == nil {
				switch rng.IntN(4) {
				case 0:
					n, _ := cq.Wait(ctx, wc[:])
					take(wc[:n])
				case 1:
					take(wc[:cq.PollProgress(wc[:])])
				case 2:
					if cq.Poll(wc[:1]) == 1 {
						cq.PutBack(wc[0])
					}
				default:
					cq.Arm(rng.IntN(2) == 0)
				}
			}
		})
	}
	readers.Go(func() {
		for ctx.Err() == nil {
			if got, err := ch.Get(ctx); err == nil && got != cq {
				t.Error("a notification of no queue")
			}
		}
	})
	readers.Go(func() {
		rng := rand.New(rand.NewPCG(2, 2))
		for ctx.Err() == nil {
			var bad *RangeError
			if err := cq.Resize(1 + rng.IntN(100)); err != nil && !errors.As(err, &bad) {
				t.Error(err)
			}
			if err := cq.SetModeration(Moderation{rng.IntN(8), time.Duration(rng.IntN(3)) * time.Microsecond}); err != nil {
				t.Error(err)
			}
			cq.Cap()
			cq.Overrun()
		}
	})
	others.Wait()
	readers.Wait()
	for f := range seen {
		for i := range seen[f][:each] {
			if n := seen[f][i].Load(); n != 1 {
				t.Fatalf("completion %d of %d was taken %d times", i, f, n)
			}
		}
	}
}

// Closing a queue beside all else that is done with it leaves nothing: no
// notification, no event, no timer that comes back.
func TestCQCloseStorm(t *testing.T) {
	t.Parallel()
	o := newTestOwner(t)
	ch, _ := o.CreateCompChannel(false)
	for range 300 {
		cq, err := o.CreateCQ(2, ch)
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			for range 10 {
				complete(cq, ib.WC{})
			}
		})
		wg.Go(func() {
			for n := range 10 {
				cq.Arm(false)
				if err := cq.SetModeration(Moderation{n % 3, time.Microsecond}); err != nil && !errors.Is(err, ErrClosed) {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			for n := range 10 {
				if err := cq.Resize(2 + n); err != nil && !errors.Is(err, ErrClosed) {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			if err := cq.Close(); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
		if cq.notified.In() || o.events.n != 0 || cq.seldom != nil && len(cq.seldom.back) != 0 {
			t.Fatalf("left: listed %v, %d events", cq.notified.In(), o.events.n)
		}
	}
}
