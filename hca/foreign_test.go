package hca

import (
	"sync"
	"testing"
	"testing/synctest"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp"
)

// foreignRing is a receive queue and a completion queue that are not of this
// package, such as rings in memory that another process shares.
type foreignRing struct {
	mu  sync.Mutex
	wrs []ib.RecvWR
	wcs []ib.WC
	pd  *memreg.PD
}

func (f *foreignRing) Next(r *qp.Recv) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.wrs) == 0 {
		return false
	}
	r.ID, r.PD, r.SGList = f.wrs[0].ID, f.pd, append(r.SGList[:0], f.wrs[0].SGList...)
	f.wrs = f.wrs[1:]
	return true
}

func (f *foreignRing) Complete(wc *ib.WC) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wcs = append(f.wcs, *wc)
	return true
}

func (f *foreignRing) completions() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.wcs)
}

// TestForeignQueues: queue pairs of every shard take receives from, and
// complete to, queues that are not of this package. They count and close as
// others do.
func TestForeignQueues(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := newShardedHosts(t)
		ring := &foreignRing{pd: b.pd.Core()}
		var far []*QP
		shards := map[*shard]bool{}
		for range 16 {
			q, err := b.owner.CreateQP(qp.Config{PD: b.pd.Core(), SendCQ: ring, RecvCQ: ring, MaxSendWR: 4, MaxSendSGE: 1,
				RecvSource: ring, OwnSource: true, MaxRecvWR: 64, MaxRecvSGE: 1})
			b.must(err)
			shards[q.shard] = true
			peer := a.newQP()
			b.connect(q, testAddrA, peer.QPN())
			a.connect(peer, testAddrB, q.QPN())
			far = append(far, peer)
		}
		if len(shards) < 2 {
			t.Errorf("all queue pairs are in one shard")
		}
		for i := range far {
			ring.wrs = append(ring.wrs, b.sharedSlot(i))
		}
		for _, q := range far {
			a.send(q, 100)
		}
		a.waitOK(len(far))
		if n := ring.completions(); n != len(far) {
			t.Errorf("%d completions, want %d", n, len(far))
		}
		if n := b.owner.count[kindQP]; n != 16 {
			t.Errorf("%d queue pairs are counted", n)
		}
		for _, wc := range ring.wcs {
			q := b.dev.QP(wc.QPN)
			b.must(q.Modify(&ib.Attr{State: ib.StateErr}, ib.AttrState))
		}
		ring.wrs = append(ring.wrs, b.sharedSlot(0))
		b.dev.QP(ring.wcs[0].QPN).DrainReceives()
		if wc := ring.wcs[len(ring.wcs)-1]; wc.Status != ib.StatusWRFlushErr || len(ring.wcs) != 17 {
			t.Errorf("%d completions, the last is %v", len(ring.wcs), wc.Status)
		}
		b.must(b.owner.Close())
		if n := b.owner.count[kindQP]; n != 0 {
			t.Errorf("%d queue pairs are left", n)
		}
	})
}
