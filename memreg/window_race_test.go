package memreg

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
)

// A window may be freed while a queue pair binds it: whatever the bind comes
// to, it does not look the window up again.
func TestBindAgainstFree(t *testing.T) {
	t.Parallel()
	tab := newTable(31)
	pd := tab.AllocPD()
	r := mustRegister(t, tab, pd, Local(make([]byte, 64)), Options{Access: bindable})
	for range 1000 {
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
