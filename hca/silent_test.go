package hca

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
)

// A queue pair whose peer is gone asks for that in vain. That holds up nobody
// whose own packet was lost, before, beside or after it.
func TestLossBesideQueuePairsWithoutPeer(t *testing.T) {
	t.Parallel()
	for _, gone := range []int{1, 5, 100} {
		for _, before := range []time.Duration{0, 900 * time.Microsecond, 10 * time.Millisecond, 100 * time.Millisecond} {
			synctest.Test(t, func(t *testing.T) {
				la, lb := fabric.Pair(testAddrA, testAddrB, fabric.Config{Port: fabric.PortConfig{Delay: 10 * time.Microsecond}})
				a, b := &host{t: t, dev: New(Config{}, la)}, &host{t: t, dev: New(Config{}, lb)}
				a.equip()
				b.equip()
				qps := make([]*QP, 1+gone)
				for i := range qps {
					qa, qb := a.newQP(), b.newQP()
					a.connect(qa, testAddrB, qb.QPN())
					b.connect(qb, testAddrA, qa.QPN())
					for range 10 {
						a.write(qa, b, 8)
						a.waitOK(1)
					}
					if qps[i] = qa; i > 0 {
						b.must(qb.Close())
					}
				}
				for _, q := range qps[1:] {
					for range 4 {
						a.write(q, b, 100000)
					}
				}
				time.Sleep(before)
				start := time.Now()
				lb.(*fabric.Port).SetLoss(1)
				a.write(qps[0], b, 8)
				time.Sleep(50 * time.Microsecond)
				lb.(*fabric.Port).SetLoss(0)
				a.waitOK(1)
				if d := time.Since(start); d > 10*time.Millisecond {
					t.Errorf("%v after %d have lost their peers a lost request took %v", before, gone, d)
				}
			})
		}
	}
}

// However many queue pairs have lost their peer, all of them learn it about
// when one does.
func TestManyLoseTheirPeers(t *testing.T) {
	t.Parallel()
	const qps = 300
	last := func(n int) time.Duration {
		var took time.Duration
		synctest.Test(t, func(t *testing.T) {
			a, b := newHosts(t, Config{Window: qp.WindowConfig{MaxBytes: 64 << 10}})
			start := time.Now()
			for range n {
				q := a.newQP()
				a.connect(q, testAddrB, 77)
				a.write(q, b, 100000)
			}
			var wc [1]ib.WC
			for range n {
				_, err := a.cq.Wait(t.Context(), wc[:])
				a.must(err)
			}
			took = time.Since(start)
		})
		return took
	}
	one, many := last(1), last(qps)
	if many > one+qps*5*time.Millisecond { // none begins before it has room, which another's probe makes
		t.Errorf("the last of many took %v, one alone %v", many, one)
	}
}
