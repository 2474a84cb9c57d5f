package hca

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
)

// Whatever is done beside the traffic, a receive completes at most once, and
// none is lost but with a queue pair that was closed or reset in the middle of
// a message.
func TestSRQStorm(t *testing.T) {
	t.Parallel()
	for seed := range uint64(5) {
		synctest.Test(t, func(t *testing.T) {
			a, b := newShardedHosts(t, fabric.Config{Port: fabric.PortConfig{Delay: 10 * time.Microsecond, Loss: 0.01}, Seed: seed})
			s := b.newSRQ(32)
			var mu sync.Mutex
			posted, gone := 0, 0
			done := map[uint64]bool{}
			var wg sync.WaitGroup
			for g := range uint64(6) {
				wg.Go(func() {
					rng := rand.New(rand.NewPCG(seed, g))
					for range 15 {
						q, peer := b.sharing(s, a)
						for range rng.IntN(20) {
							_, err := peer.PostSend([]ib.SendWR{{Opcode: ib.OpSend, Signaled: true,
								SGList: []ib.SGE{a.mr.Region().SGE(0, uint32(1+rng.IntN(4096)))}}})
							if err != nil && !errors.Is(err, ib.ErrQueueFull) {
								t.Error(err)
							}
						}
						time.Sleep(time.Duration(rng.IntN(300)) * time.Microsecond)
						switch rng.IntN(3) {
						case 0:
							b.must(q.Modify(&ib.Attr{State: ib.StateErr}, ib.AttrState))
						default:
							mu.Lock()
							gone++
							mu.Unlock()
						}
						b.must(q.Close())
						b.must(peer.Close())
					}
				})
			}
			stop := make(chan struct{})
			var beside sync.WaitGroup
			take := func(wc []ib.WC) {
				mu.Lock()
				defer mu.Unlock()
				for _, c := range wc {
					if done[c.ID] || c.Opcode != ib.WCRecv {
						t.Errorf("completed twice, or not posted: %+v", c)
					}
					done[c.ID] = true
				}
			}
			beside.Go(func() {
				rng := rand.New(rand.NewPCG(seed, 100))
				var wc [16]ib.WC
				for {
					select {
					case <-stop:
						return
					default:
					}
					take(wc[:b.cq.PollProgress(wc[:])])
					n := rng.IntN(4)
					for range n {
						wr := b.sharedSlot(rng.IntN(200))
						mu.Lock()
						wr.ID = uint64(posted)
						if _, err := s.PostRecv([]ib.RecvWR{wr}); err == nil {
							posted++
						} else if !errors.Is(err, ib.ErrQueueFull) {
							t.Error(err)
						}
						mu.Unlock()
					}
					if rng.IntN(10) == 0 {
						size, limit := 1+rng.IntN(64), rng.IntN(8)
						var e *RangeError
						if err := s.Modify(&size, &limit); err != nil && !errors.As(err, &e) {
							t.Error(err)
						}
					}
					time.Sleep(20 * time.Microsecond)
				}
			})
			wg.Wait()
			close(stop)
			beside.Wait()
			var wc [64]ib.WC
			for n := b.cq.PollProgress(wc[:]); n > 0; n = b.cq.PollProgress(wc[:]) {
				take(wc[:n])
			}
			if lost := posted - len(done) - s.Attr().Posted; lost < 0 || lost > gone {
				t.Errorf("%d posted, %d completed, %d left; %d queue pairs have gone", posted, len(done), s.Attr().Posted, gone)
			}
			if len(done) < 100 {
				t.Errorf("only %d messages", len(done))
			}
		})
	}
}

// Queue pairs are made and closed beside attempts to close their queue: each
// attempt is refused, or none takes from the queue any more.
func TestSRQCloseBesideQPs(t *testing.T) {
	t.Parallel()
	_, b := newShardedHosts(t)
	for range 10 {
		s := b.newSRQ(4)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for {
					q, err := b.owner.CreateQP(qp.Config{PD: b.pd.Core(), SendCQ: b.cq, RecvCQ: b.cq, RecvSource: s})
					if err != nil {
						if !errors.Is(err, ErrClosed) {
							t.Error(err)
						}
						return
					}
					if s.Attr().MaxWR != 4 {
						t.Error("the queue was closed under a queue pair")
					}
					b.must(q.Close())
				}
			})
		}
		wg.Go(func() {
			for err := s.Close(); err != nil; err = s.Close() {
				if !errors.Is(err, ErrInUse) {
					t.Error(err)
				}
				runtime.Gosched()
			}
		})
		wg.Wait()
	}
}
