package rdmanet

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

// Where no server listens the error is one that programs know from TCP, or the
// dial waits, as it was told.
func TestWaitForServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := verbstest.Devices(t)
		if err := cm.Start(b); err != nil { // which refuses
			t.Fatal(err)
		}
		d, addr := Dialer{Device: a}, b.Addr().String()+":7471"
		if _, err := d.DialContext(t.Context(), Network, addr); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("nothing listens: %v", err)
		}
		d.WaitForServer = true
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if _, err := d.DialContext(ctx, Network, addr); !errors.Is(err, syscall.ECONNREFUSED) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("nothing has listened until the end: %v", err)
		}
		time.AfterFunc(time.Minute, func() {
			lc := ListenConfig{Device: b}
			l, err := lc.Listen(t.Context(), Network, addr)
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := l.Accept(); err != nil {
				t.Error(err)
			}
		})
		start := time.Now()
		c, err := d.DialContext(t.Context(), Network, addr)
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took < time.Minute || took > time.Minute+2*time.Second {
			t.Errorf("it took %v", took)
		}
		c.Close()
		a.Close()
		b.Close()
		time.Sleep(time.Minute) // of virtual time: what lingers ends
	})
}
