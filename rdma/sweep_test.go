package rdma

import (
	"bytes"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// A hub without connections sets no timer, and looks after one that comes.
func TestHubSleeps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const keepAlive = 10 * time.Second
		p := newPair(t, pairConfig{tune: tuning{keepAlive: keepAlive}})
		asleep := func() int {
			synctest.Wait()
			b := make([]byte, 1<<20)
			return bytes.Count(b[:runtime.Stack(b, true)], []byte("rdma.(*hub).awaitUse("))
		}
		time.Sleep(keepAlive)
		if n := asleep(); n < 2 {
			t.Errorf("%d of 2 hubs sleep", n)
		}
		for range 2 {
			a, b := p.connect()
			before := a.core.qp.Stats().SendDone
			time.Sleep(3 * keepAlive)
			if n := a.core.qp.Stats().SendDone; n == before || a.Err() != nil || b.Err() != nil {
				t.Errorf("no keepalive: %v, %v", a.Err(), b.Err())
			}
			a.Close()
			b.Close()
			time.Sleep(keepAlive)
		}
	})
}
