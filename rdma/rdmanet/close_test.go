package rdmanet

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/rdma/rdmanet/rsocket"
	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

// TestParted closes a connection to a peer that, as librdmacm, throws away what
// it has not read when it hears that this side is gone. This side must stay
// until the peer has closed, too, or has been silent for long.
func TestParted(t *testing.T) {
	t.Parallel()
	for name, silent := range map[string]bool{"the peer closes": false, "the peer says nothing": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				da, db := verbstest.Devices(t)
				a, b := connect(t, da, db, Options{}, func(a, b *rsocket.Block) { a.Features, b.Features = 0, 0 })
				if err := a.Close(); err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				synctest.Wait()
				select {
				case <-a.Parted():
					t.Fatal("it is gone before the peer has closed")
				default:
				}
				if !silent {
					b.Close()
				}
				<-a.Parted()
				if took := time.Since(start); (took < partTime) == silent || took > 3*partTime {
					t.Errorf("it was gone after %v", took)
				}
			})
		})
	}
}
