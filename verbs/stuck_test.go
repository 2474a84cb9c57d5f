package verbs_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/verbs"
)

// stuckLink is a link whose Send can hang.
type stuckLink struct {
	transport.Link
	stuck atomic.Bool
	free  chan struct{}
}

func (l *stuckLink) Send(b *transport.TxBatch) error {
	if l.stuck.Load() {
		<-l.free
	}
	return l.Link.Send(b)
}

// Modify waits for a while until the last packets of a queue pair have left.
// What only asks does not wait with it.
func TestEndpointBesideAModifyThatWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		la, lb := fabric.Pair(addrA, addrB)
		stuck := &stuckLink{Link: lb, free: make(chan struct{})}
		da, err := verbs.OpenLink(la, verbs.Config{})
		check(t, err)
		db, err := verbs.OpenLink(stuck, verbs.Config{})
		check(t, err)
		a, b := newSide(t, da, 64), newSide(t, db, 64)
		connect(t, a.qp, b.qp)
		stuck.stuck.Store(true)
		a.post(verbs.SendWR{ID: 1, Opcode: verbs.OpWrite, Inline: []byte("x"), Remote: b.mr.RemoteAt(0)})
		synctest.Wait() // the acknowledgement hangs
		a.post(verbs.SendWR{ID: 2, Opcode: verbs.OpWrite, Inline: []byte("y"), Remote: b.mr.RemoteAt(0)})
		done := make(chan error, 1)
		go func() { done <- b.qp.Modify(&verbs.Attr{State: verbs.StateErr}, verbs.AttrState) }()
		synctest.Wait()
		if len(done) > 0 {
			t.Error("Modify does not wait")
		}
		if e := b.qp.Endpoint(); e.QPN != b.qp.QPN() {
			t.Errorf("endpoint %v", e)
		}
		check(t, <-done)
		close(stuck.free)
		check(t, da.Close())
		check(t, db.Close())
	})
}
