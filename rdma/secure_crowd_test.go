package rdma

import (
	"crypto/tls"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
)

// TestRequestsAtOnce has more clients dial at once than there is room for, half
// of which stop in the middle of their handshake. Some of the others are served
// meanwhile. Then the listener is closed: all that dial get an answer, and
// nothing of them is left.
func TestRequestsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newSecureNet(t, fabric.Config{})
		l := n.listen(t, ListenConfig{TLS: n.server})
		stopped := make(chan struct{})
		stops := n.client.Clone()
		stops.VerifyConnection = func(tls.ConnectionState) error { <-stopped; return errors.New("too late") }
		var all sync.WaitGroup
		var served atomic.Int64
		for i := range 400 {
			config := n.client
			if i%2 == 0 {
				config = stops
			}
			all.Go(func() {
				c, err := n.dial(t, config)
				if err != nil {
					return
				}
				served.Add(1)
				if config == stops {
					t.Error("a client that has stopped is served")
				}
				<-stopped
				c.Close()
			})
		}
		time.Sleep(time.Second)
		if served.Load() == 0 {
			t.Error("none is served beside those that have stopped")
		}
		must(t, l.Close())
		close(stopped)
		all.Wait()
		if got := l.conns.Load(); got != 0 {
			t.Errorf("%d connections after Close", got)
		}
	})
}
