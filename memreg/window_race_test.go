package memreg

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/internal/testshort"
)

// A window may be freed while a queue pair binds it: whatever the bind comes
// to, it does not look the window up again.
func TestBindAgainstFree(t *testing.T) {
	t.Parallel()
	tab := newTable(31)
	pd := tab.AllocPD()
	r := mustRegister(t, tab, pd, Local(make([]byte, 64)), Options{Access: bindable})
	for range testshort.Rounds(1000) {
		w := mustWindow(t, tab, pd, ib.MWType1)
		refused := bindTo(w, r, 0, 8, ib.RemoteRead|ib.ZeroBased)
		var wg sync.WaitGroup
		var binds atomic.Bool
		wg.Go(func() {
			for tab.Bind(pd, 1, refused) == ib.FaultNoAccess {
				binds.Store(true)
			}
			binds.Store(true)
		})
		for !binds.Load() {
			runtime.Gosched()
		}
		tab.FreeWindow(w)
		wg.Wait()
	}
}

// All that a key stands for is of one bind, also while the window is bound to
// something else.
func TestResolveAllAgainstBind(t *testing.T) {
	t.Parallel()
	tab := newTable(32)
	pd := tab.AllocPD()
	r := mustRegister(t, tab, pd, Local(make([]byte, 64)), Options{Access: bindable})
	w := mustWindow(t, tab, pd, ib.MWType2)
	key := w.RKey()
	var wg sync.WaitGroup
	var done atomic.Bool
	wg.Go(func() {
		defer done.Store(true)
		for i := range 20000 {
			off := uint64(i % 2 * 32)
			b := &ib.BindMW{Window: key, NewKey: key, Region: r.LKey(), Addr: r.Addr() + off, Length: 64 - off, Access: ib.RemoteRead}
			if f := tab.Bind(pd, 1, b); f != ib.FaultNone {
				t.Errorf("bind: %v", f)
				return
			}
			tab.Invalidate(pd, 1, key)
		}
	})
	for !done.Load() {
		v, f := tab.ResolveAll(pd, 1, key, ib.RemoteRead)
		if f == ib.FaultUnknownKey {
			continue
		}
		if m := v.Persist(); f != ib.FaultNone || m.Off+m.Len != 64 {
			t.Errorf("%v: %d bytes at %d of 64", f, m.Len, m.Off)
			v.Release()
			break
		}
		v.Release()
	}
	wg.Wait()
}
