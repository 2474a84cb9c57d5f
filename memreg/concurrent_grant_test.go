package memreg

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
)

// bound is a grant of the concurrency test.
type bound struct {
	g    *Grant
	part []byte      // of the region's memory
	gone atomic.Bool // set once Revoke has returned
}

// Readers use grants on parts of one region while a writer revokes them and
// makes new ones, and others invalidate them: no view outlives Revoke. The race
// detector sees it too, because the writer overwrites a part that it revoked
// without any synchronisation of its own. The region's rkey is busy all the
// time, on a part that is never written.
func TestNoViewOutlivesRevoke(t *testing.T) {
	t.Parallel()
	const slots, rounds, readers = 16, 2000, 3
	tab := newTable(5)
	pd := tab.AllocPD()
	mem := make([]byte, (slots+1)*64)
	for i := range mem {
		mem[i] = 0xa5
	}
	r := mustRegister(t, tab, pd, Local(mem), Options{Access: bindable | ib.RemoteRead})
	var published [slots]atomic.Pointer[bound]
	var done atomic.Bool
	var hits, misses atomic.Int64
	var wg sync.WaitGroup
	for id := range readers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(id), 3))
			for !done.Load() {
				readSpare(t, tab, pd, r)
				b := published[rng.IntN(slots)].Load()
				if b == nil {
					runtime.Gosched()
				} else if readGrant(t, tab, pd, b, rng.IntN(20)) {
					hits.Add(1)
				} else {
					misses.Add(1)
				}
			}
		})
	}
	rng := rand.New(rand.NewPCG(8, 8))
	for range rounds {
		i := rng.IntN(slots)
		part := mem[i*64 : i*64+64]
		if b := published[i].Load(); b != nil {
			tab.Revoke(b.g) // still published: readers go on trying it
			b.gone.Store(true)
			clear(part)
		}
		for j := range part {
			part[j] = 0xa5
		}
		g := mustGrant(t, tab, r, GrantOptions{Offset: uint64(i * 64), Length: 64, Access: ib.RemoteRead,
			QPN: rocev2.QPN(rng.IntN(2)), Invalidatable: rng.IntN(2) == 0})
		published[i].Store(&bound{g: g, part: part})
	}
	done.Store(true)
	wg.Wait()
	t.Logf("%d accesses, %d refused", hits.Load(), misses.Load())
	for i := range published {
		if b := published[i].Load(); b != nil {
			if n := b.g.pins.Load() &^ dead; n != 0 {
				t.Fatalf("%d pins are left", n)
			}
			tab.Revoke(b.g)
		}
	}
	if pinsOf(r) != 0 || tab.grants != 0 {
		t.Errorf("%d pins, %d grants are left", pinsOf(r), tab.grants)
	}
	mustDeregister(t, tab, r)
}

// readSpare reads the last part of the region by its rkey.
func readSpare(t *testing.T, tab *Table, pd *PD, r *Region) {
	v, f := tab.Resolve(pd, 1, r.RKey(), r.Addr()+r.Len()-64, 64, ib.RemoteRead)
	if f != ib.FaultNone {
		t.Errorf("resolve by the rkey: %v", f)
		return
	}
	checkBytes(t, v.Bytes())
	v.Release()
}

// readGrant reads through a grant, or invalidates it when how is 0. It reports
// whether the grant was there.
func readGrant(t *testing.T, tab *Table, pd *PD, b *bound, how int) bool {
	if how == 0 {
		f := tab.Invalidate(pd, 1, b.g.Key())
		if f != ib.FaultNone && f != ib.FaultNotInvalidatable && f != ib.FaultUnknownKey {
			t.Errorf("invalidate: %v", f)
		}
		return f == ib.FaultNone
	}
	v, f := tab.Resolve(pd, 1, b.g.Key(), b.g.Addr(), 64, ib.RemoteRead)
	if f == ib.FaultUnknownKey {
		return false
	}
	if f != ib.FaultNone {
		t.Errorf("resolve: %v", f)
		return false
	}
	if how%2 == 1 {
		v.Release()
		if !v.Acquire() {
			return false
		}
	}
	checkBytes(t, v.Bytes())
	if b.gone.Load() {
		t.Error("Revoke returned while a view was pinned")
	}
	v.Release()
	return true
}
