package hca

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/transport"
)

// Goroutines that post, poll, modify and close the same queue pairs beside each
// other all come to an end, also when the device is closed beneath them, and
// nothing is left.
func TestEverythingAtOnce(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		synctest.Test(t, func(t *testing.T) {
			port := fabric.PortConfig{Delay: 10 * time.Microsecond, Loss: 0.01}
			cfg := Config{Loopback: seed%2 == 0}
			if seed%3 == 0 {
				cfg.Window.MaxBytes = 16 << 10
			}
			la, lb := fabric.Pair(testAddrA, testAddrB, fabric.Config{Port: port, Seed: seed})
			links := []transport.Link{la}
			if seed%4 > 1 {
				var mu sync.Mutex
				links = []transport.Link{lockedLink{la, &mu}, mute{la, &mu, make(chan struct{})}}
			}
			a, b := &host{t: t, dev: New(cfg, links...)}, &host{t: t, dev: New(cfg, lb)}
			a.equip()
			b.equip()
			var pairs [12][2]*QP
			mrs := map[*QP]*MR{} // each its own: nothing orders what different shards do
			for i := range pairs {
				far, addrs := b, testAddrA
				if cfg.Loopback && i%3 == 0 {
					far = a
				}
				qa, qb := a.newQP(), far.newQP()
				to := testAddrB
				if far == a {
					to = testAddrA
				}
				a.connectVia(qa, ib.AddressVector{DGID: to, HopLimit: 64, Native: i%2 == 0}, qb.QPN())
				far.connectVia(qb, ib.AddressVector{DGID: addrs, HopLimit: 64, Native: i%2 == 0}, qa.QPN())
				pairs[i] = [2]*QP{qa, qb}
				for q, h := range map[*QP]*host{qa: a, qb: far} {
					mr, err := h.pd.Register(memreg.Local(make([]byte, 60000)),
						memreg.Options{Access: ib.LocalWrite | ib.RemoteWrite | ib.RemoteRead}, nil)
					h.must(err)
					mrs[q] = mr
				}
			}
			var wg sync.WaitGroup
			for g := range uint64(8) {
				wg.Go(func() { storm(t, rand.New(rand.NewPCG(seed, g)), a, b, pairs[:], mrs, g < 2) })
			}
			if seed%3 == 1 {
				time.Sleep(3 * time.Millisecond)
				a.must(a.dev.Close())
			}
			wg.Wait()
			for _, p := range pairs {
				var wg sync.WaitGroup
				for _, q := range []*QP{p[0], p[1], p[0], p[1]} {
					wg.Go(func() { a.must(q.Close()) })
				}
				wg.Wait()
			}
			for _, h := range []*host{a, b} {
				for _, s := range h.dev.shards {
					s.lock()
					u := s.eng.Usage()
					if u.Peers != 0 || u.QPs != 0 || u.Sending != 0 || s.out.sending || !s.closed && (s.out.sent != nil || u.Final > 0) {
						t.Errorf("seed %d: left is %+v, sending %v", seed, u, s.out.sending)
					}
					s.unlock()
				}
			}
		})
	}
}

func storm(t *testing.T, rng *rand.Rand, a, b *host, pairs [][2]*QP, mrs map[*QP]*MR, closes bool) {
	var wc [16]ib.WC
	for range 400 {
		p := pairs[rng.IntN(len(pairs))]
		end := rng.IntN(2)
		q := p[end]
		h := a
		if q.owner.dev == b.dev {
			h = b
		}
		var err error
		switch n := rng.IntN(20); {
		case n < 8:
			op := []ib.Opcode{ib.OpWrite, ib.OpRead, ib.OpSend}[rng.IntN(3)]
			_, err = q.PostSend([]ib.SendWR{{Opcode: op, Signaled: true, SGList: []ib.SGE{mrs[q].Region().SGE(0, uint32(rng.IntN(60000)))},
				Remote: ib.RemoteAddr{Addr: mrs[p[1-end]].Region().Addr(), RKey: mrs[p[1-end]].Region().RKey()}}})
		case n < 10:
			_, err = q.PostRecv([]ib.RecvWR{{SGList: []ib.SGE{mrs[q].Region().SGE(0, 60000)}}})
		case n < 13:
			h.cq.PollProgress(wc[:])
		case n < 15:
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rng.IntN(200))*time.Microsecond)
			_, err = h.cq.Wait(ctx, wc[:])
			cancel()
			if errors.Is(err, context.DeadlineExceeded) {
				err = nil
			}
		case n == 15 && closes:
			err = q.Close()
		case n == 16 && closes:
			state := []ib.State{ib.StateErr, ib.StateReset}[rng.IntN(2)]
			err = q.Modify(&ib.Attr{State: state}, ib.AttrState)
		case n == 17:
			q.Stats()
			h.dev.Stats()
			q.Attr()
		default:
			time.Sleep(time.Duration(rng.IntN(50)) * time.Microsecond)
		}
		if err != nil && !errors.Is(err, ErrClosed) && !errors.Is(err, ib.ErrQueueFull) && !errors.Is(err, ib.ErrState) && !errors.Is(err, ib.ErrTransition) && !errors.Is(err, ib.ErrNoRdAtomic) {
			t.Errorf("%v", err)
		}
	}
}
