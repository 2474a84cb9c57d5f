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

// Goroutines bind, invalidate and use the same windows and fast registration
// regions at once, as queue pairs of several shards do, while another registers
// other memory, so that the tables grow and shrink, and frees and makes
// windows. No view outlives what it was resolved with: a window that was
// invalidated is used no more, and then its part is written without
// synchronisation.
func TestWindowsAtOnce(t *testing.T) {
	t.Parallel()
	const windows, users, rounds = 4, 3, 400
	tab := newTable(6)
	pd := tab.AllocPD()
	mem := make([]byte, windows*64)
	for i := range mem {
		mem[i] = 0xa5
	}
	r := mustRegister(t, tab, pd, Local(mem), Options{Access: bindable})
	var ws [windows]*Window
	for i := range ws {
		ws[i] = mustWindow(t, tab, pd, ib.MWType2)
	}
	shared := mustWindow(t, tab, pd, ib.MWType1)
	fast := mustFast(t, tab, pd, 64)
	must(t, fast.Map(Local(mem[:64])))
	var done atomic.Bool
	var hits atomic.Int64
	var wg sync.WaitGroup
	for id := range users {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(id), 4))
			for !done.Load() {
				var key ib.Key
				switch i := rng.IntN(windows + 2); i {
				case windows:
					key = shared.RKey()
					tab.Bind(pd, 1, bindTo(shared, r, uint64(rng.IntN(8)), uint64(rng.IntN(3)), ib.RemoteRead))
				case windows + 1:
					key = fast.RKey()
					tab.RegisterFast(pd, regWith(fast, ib.Key(rng.IntN(256)), r.Addr(), all))
				default:
					key = ws[i].RKey()
				}
				if v, f := tab.Resolve(pd, 7, key, r.Addr(), 1, ib.RemoteRead); f == ib.FaultNone {
					hits.Add(1)
					v.Release()
				}
				switch rng.IntN(8) {
				case 0:
					tab.Invalidate(pd, rocev2.QPN(7+rng.IntN(2)), key)
				case 1:
					readWindow(t, tab, pd, ws[rng.IntN(windows)], r.Addr())
				}
			}
		})
	}
	rng := rand.New(rand.NewPCG(9, 9))
	for round := range rounds {
		i := rng.IntN(windows)
		w, part := ws[i], mem[i*64:i*64+64]
		f := tab.Bind(pd, 7, bindTo(w, r, uint64(i*64), 64, ib.RemoteRead))
		if f != ib.FaultNone && f != ib.FaultState {
			t.Fatalf("bind: %v", f)
		}
		if rng.IntN(4) == 0 {
			runtime.Gosched()
		}
		tab.Invalidate(pd, 7, w.RKey())
		// Another goroutine that ended it may still wait for views.
		w.Grant().drain()
		if i > 0 { // the first part is the fast region's, too
			clear(part)
			for j := range part {
				part[j] = 0xa5
			}
		}
		if round%8 == 0 {
			mustDeregister(t, tab, mustRegister(t, tab, pd, Local(make([]byte, 8)), Options{}))
			tab.FreeWindow(mustWindow(t, tab, pd, ib.MWType1))
		}
	}
	done.Store(true)
	wg.Wait()
	t.Logf("%d uses", hits.Load())
	for _, w := range append(ws[:], shared) {
		tab.FreeWindow(w)
	}
	must(t, tab.FreeFast(fast))
	if r.Bound() != 0 || pinsOf(r) != 0 || tab.windows.count != 0 {
		t.Errorf("%d windows on the region, %d pins, %d windows left", r.Bound(), pinsOf(r), tab.windows.count)
	}
	mustDeregister(t, tab, r)
}

// readWindow reads through a window, if it is bound.
func readWindow(t *testing.T, tab *Table, pd *PD, w *Window, base uint64) {
	g := w.Grant()
	if !g.Alive() || g.Len() != 64 {
		return
	}
	v, f := tab.Resolve(pd, 7, g.Key(), g.Addr(), 64, ib.RemoteRead)
	if f == ib.FaultNone {
		checkBytes(t, v.Bytes())
		v.Release()
	}
}

// Two that bind, invalidate and deregister at the same moment: the count of
// windows on the region tells what became of it.
func TestBindAgainstDeregister(t *testing.T) {
	t.Parallel()
	tab := newTable(7)
	pd := tab.AllocPD()
	w := mustWindow(t, tab, pd, ib.MWType2)
	bound, refused := 0, 0
	for i := range 2000 {
		r := mustRegister(t, tab, pd, Local(make([]byte, 64)), Options{Access: bindable})
		b := bindTo(w, r, 0, 8, ib.RemoteRead)
		var f ib.Fault
		var wg sync.WaitGroup
		started := make(chan struct{})
		wg.Go(func() {
			close(started)
			f = tab.Bind(pd, 7, b)
		})
		<-started
		for range i % 8 {
			runtime.Gosched()
		}
		err := tab.Deregister(r)
		wg.Wait()
		switch {
		case f == ib.FaultNone && err != nil:
			bound++
			wantFault(t, "invalidate", tab.Invalidate(pd, 7, w.RKey()), ib.FaultNone)
			mustDeregister(t, tab, r)
		case f == ib.FaultUnknownKey && err == nil:
			refused++
		default:
			t.Fatalf("bind: %v, deregister: %v", f, err)
		}
	}
	t.Logf("%d binds, %d refused", bound, refused)
}
