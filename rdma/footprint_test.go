package rdma

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

// What an idle connection takes on each side, with all that is below it but the
// connection manager: at first, and after a keepalive. In virtual time: a
// machine that is busy has packets sent again, and counts them.
func TestMemoryOfIdleConnections(t *testing.T) { // not parallel: it measures the heap
	const n, most, mostLater = 512, 3530, 4130
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, pairConfig{})
		var conns []*Conn
		connect := func() {
			a, b := p.connect()
			conns = append(conns, a, b)
		}
		connect() // the first makes what all share
		before := verbstest.Heap()
		for range n {
			connect()
		}
		each := (verbstest.Heap() - before) / (2 * n)
		t.Logf("an idle connection takes %d bytes", each)
		if each > most {
			t.Errorf("an idle connection takes %d bytes, more than %d", each, most)
		}
		idle := func(c *Conn) bool {
			c.core.mu.Lock()
			defer c.core.mu.Unlock()
			c.core.poll()
			return c.core.ready(wantIdle, nil)
		}
		// One after the other: what all have under way at once the
		// devices keep, and it is more on a busy machine.
		for range 2 { // the first finds that it was used
			for _, c := range conns {
				for c.core.look(); !idle(c); {
					time.Sleep(time.Microsecond)
				}
			}
		}
		each = (verbstest.Heap() - before) / (2 * n)
		t.Logf("after a keepalive it takes %d bytes", each)
		if each > mostLater {
			t.Errorf("after a keepalive it takes %d bytes, more than %d", each, mostLater)
		}
		runtime.KeepAlive(conns)
	})
}
