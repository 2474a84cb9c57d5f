package verbs_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/verbs"
)

// failingLink fails to receive while it is broken.
type failingLink struct {
	transport.Link
	wait   func() error // while it is broken
	broken atomic.Bool
	calls  atomic.Int64
}

func (l *failingLink) Recv(b *transport.RxBatch) (int, error) {
	if l.broken.Load() {
		l.calls.Add(1)
		b.Reset()
		return 0, errors.New("the interface is broken")
	}
	return l.Link.Recv(b)
}

func (l *failingLink) Wait() error {
	if l.broken.Load() {
		return l.wait()
	}
	return l.Link.Wait()
}

// TestPortEvents: a link that does not receive any more is told of once, and
// once when it does again; what was under way goes on.
func TestPortEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pa, pb := fabric.Pair(addrA, addrB)
		la := &failingLink{Link: pa, wait: func() error {
			time.Sleep(10 * time.Millisecond) // as long as Link allows
			return nil
		}}
		da, err := verbs.OpenLink(la, verbs.Config{})
		check(t, err)
		db, err := verbs.OpenLink(pb, verbs.Config{})
		check(t, err)
		t.Cleanup(func() { check(t, da.Close()); check(t, db.Close()) })
		a, b := newSide(t, da, 4096), newSide(t, db, 4096)
		connect(t, a.qp, b.qp)
		la.broken.Store(true)
		pa.Wake()
		next := func(want verbs.Event) {
			t.Helper()
			e, err := da.AsyncEvent(t.Context())
			check(t, err)
			if e.Event != want || e.QP != nil || e.CQ != nil {
				t.Errorf("event %v, want %v", e, want)
			}
		}
		next(verbs.EventPortError)
		a.post(verbs.SendWR{ID: 1, Opcode: verbs.OpWrite, SGList: []verbs.SGE{a.mr.Slice(0, 100)}, Remote: b.mr.RemoteAt(0)})
		time.Sleep(50 * time.Millisecond)
		if n := la.calls.Load(); n < 2 || n > 1000 {
			t.Errorf("%d attempts to receive in 50 ms", n)
		}
		la.broken.Store(false)
		next(verbs.EventPortActive)
		a.waitOK(1)
	})
}
