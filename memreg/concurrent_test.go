package memreg

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
)

// tenant is a region of the concurrency test and its memory.
type tenant struct {
	r    *Region
	buf  []byte
	gone atomic.Bool // set once Deregister has returned
}

// Readers resolve and use regions while a writer registers and deregisters
// them: no view outlives Deregister. The race detector sees it too, because the
// writer overwrites the bytes without any synchronisation of its own.
func TestNoViewOutlivesDeregister(t *testing.T) {
	t.Parallel()
	const slots, rounds, readers = 64, 2000, 3
	tab := newTable(5)
	pd := tab.AllocPD()
	var published [slots]atomic.Pointer[tenant]
	var done atomic.Bool
	var hits, misses atomic.Int64
	var wg sync.WaitGroup
	for id := range readers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(id), 3))
			var dst [64]byte
			for !done.Load() {
				own := published[rng.IntN(slots)].Load()
				if own == nil {
					runtime.Gosched()
					continue
				}
				if useOnce(t, tab, pd, own, rng.IntN(3), dst[:]) {
					hits.Add(1)
				} else {
					misses.Add(1)
				}
			}
		})
	}
	rng := rand.New(rand.NewPCG(8, 8))
	var extra []*Region
	for i := range rounds {
		slot := &published[rng.IntN(slots)]
		if own := slot.Load(); own != nil {
			mustDeregister(t, tab, own.r) // still published: readers go on trying it
			own.gone.Store(true)
			clear(own.buf)
		}
		own := &tenant{buf: make([]byte, 64)}
		for j := range own.buf {
			own.buf[j] = 0xa5
		}
		own.r = mustRegister(t, tab, pd, Local(own.buf), Options{Access: ib.RemoteRead})
		slot.Store(own)
		// Waves of more regions make the table grow and shrink under
		// the readers.
		if i/500%2 == 0 {
			extra = append(extra, mustRegister(t, tab, pd, Local(make([]byte, 8)), Options{}))
		} else if n := len(extra); n > 0 {
			mustDeregister(t, tab, extra[n-1])
			extra = extra[:n-1]
		}
	}
	done.Store(true)
	wg.Wait()
	t.Logf("%d accesses, %d refused", hits.Load(), misses.Load())
	for i := range published {
		if own := published[i].Load(); own != nil && pinsOf(own.r) != 0 {
			t.Fatalf("%d pins are left", pinsOf(own.r))
		}
	}
}

// useOnce reads the region in one of three ways and reports whether it was
// there.
func useOnce(t *testing.T, tab *Table, pd *PD, own *tenant, how int, dst []byte) bool {
	r := own.r
	if how == 2 {
		switch f := tab.Gather(pd, []ib.SGE{r.SGE(0, 64)}, 0, dst); f {
		case ib.FaultNone:
			checkBytes(t, dst)
			return true
		case ib.FaultUnknownKey:
			return false
		default:
			t.Errorf("gather: %v", f)
			return false
		}
	}
	v, f := tab.Resolve(pd, 1, r.RKey(), r.Addr(), 64, ib.RemoteRead)
	if f == ib.FaultUnknownKey {
		return false
	}
	if f != ib.FaultNone || v.Region() != r {
		t.Errorf("resolve: %v, region %p, want %p", f, v.Region(), r)
		return false
	}
	if how == 1 {
		v.Release()
		if !v.Acquire() {
			return false
		}
	}
	checkBytes(t, v.Bytes())
	if own.gone.Load() {
		t.Error("Deregister returned while a view was pinned")
	}
	v.Release()
	return true
}

func checkBytes(t *testing.T, b []byte) {
	for _, x := range b {
		if x != 0xa5 {
			t.Error("read memory that was given back")
			return
		}
	}
}

// A key is dead from the start of Deregister (IBTA 9.7.4.1.5), and the memory
// is given back when it is no longer in use.
func TestDeregisterKillsAtOnceAndWaits(t *testing.T) {
	t.Parallel()
	tab := newTable(1)
	pd := tab.AllocPD()
	r := mustRegister(t, tab, pd, Local(make([]byte, 64)), Options{Access: all})
	v, f := tab.Resolve(pd, 1, r.RKey(), r.Addr(), 64, ib.RemoteRead)
	wantFault(t, "resolve", f, ib.FaultNone)
	done := make(chan struct{})
	go func() {
		mustDeregister(t, tab, r)
		close(done)
	}()
	for r.Alive() {
		runtime.Gosched()
	}
	_, f = tab.Resolve(pd, 1, r.RKey(), r.Addr(), 1, ib.RemoteRead)
	wantFault(t, "rkey of a region that waits for its pins", f, ib.FaultUnknownKey)
	_, f = tab.Resolve(pd, 1, r.RKey(), 0, 1, 0)
	wantFault(t, "the same, out of bounds", f, ib.FaultUnknownKey)
	_, f = tab.ResolveLocal(pd, r.SGE(0, 1), 0)
	wantFault(t, "lkey", f, ib.FaultUnknownKey)
	if r.local.acquire() || v.Acquire() {
		t.Error("Acquire of a dead region succeeded")
	}
	_, f = r.Load64(0)
	wantFault(t, "Load64", f, ib.FaultGone)
	wantFault(t, "Store64", r.Store64(0, 1), ib.FaultGone)
	_, f = r.CompareSwap64(0, 0, 1)
	wantFault(t, "CompareSwap64", f, ib.FaultGone)
	_, f = r.FetchAdd64(0, 1)
	wantFault(t, "FetchAdd64", f, ib.FaultGone)
	select {
	case <-done:
		t.Fatal("Deregister returned while a view was pinned")
	default:
	}
	wantFault(t, "the pinned view still works", v.CopyIn(0, []byte{1}), ib.FaultNone)
	v.Release()
	<-done
}

// A lookup may have found the region just before it was killed; the checks and
// the pin that follow must not let it through.
func TestLookupBeforeKill(t *testing.T) {
	t.Parallel()
	tab := newTable(1)
	pd := tab.AllocPD()
	r := mustRegister(t, tab, pd, Local(make([]byte, 64)), Options{Base: BaseZero})
	mustDeregister(t, tab, r)
	_, f := r.local.view(pd, 1, 0, 8, 0)
	wantFault(t, "valid access", f, ib.FaultUnknownKey)
	_, f = r.remote.view(pd, 1, 100, 8, 0)
	wantFault(t, "bad access", f, ib.FaultUnknownKey)
}

func TestReleaseWithoutPinPanics(t *testing.T) {
	t.Parallel()
	tab := newTable(1)
	r := mustRegister(t, tab, tab.AllocPD(), Local(make([]byte, 8)), Options{})
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	r.local.release()
}
