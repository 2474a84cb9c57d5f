package rdmanet

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

// Close beside Close, beside every call that is under way, beside the Close of
// the listener and of the devices: each returns, and none touches what another
// has freed.
func TestCloseBesideAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for round := range 30 {
			a, b := verbstest.Devices(t)
			ln, d := listenOn(t, a, b, Options{RecvBuffer: 16 << 10, SendBuffer: 16 << 10, Linger: -1})
			accepted := make(chan *Conn, 1)
			go func() {
				c, err := ln.AcceptContext(t.Context())
				if err != nil {
					t.Error(err)
				}
				accepted <- c
			}()
			nc, err := d.DialContext(t.Context(), Network, ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			x, y := nc.(*Conn), <-accepted
			var calls []func()
			for _, c := range []*Conn{x, y} {
				calls = append(calls,
					func() { io.Copy(io.Discard, c) },
					func() { c.Read(make([]byte, 100)) },
					func() { c.Write(make([]byte, 1<<20)) },
					func() { c.Write([]byte("short")) },
					func() { c.CloseWrite() },
					func() { c.SetDeadline(time.Now().Add(time.Millisecond)) },
					func() { c.QP().Stats(); c.LocalAddr(); c.RemoteAddr() },
					func() { c.Close() }, func() { c.Close() },
					func() { <-c.Parted() })
			}
			calls = append(calls, func() { ln.Close() }, func() { ln.Close() }, func() {
				if _, err := ln.Accept(); !errors.Is(err, net.ErrClosed) {
					t.Errorf("accept: %v", err)
				}
			})
			if round%3 == 0 {
				calls = append(calls, func() { a.Close() }, func() { a.Close() }, func() { b.Close() })
			}
			var wg sync.WaitGroup
			for i := range calls {
				wg.Go(calls[(i*7+round)%len(calls)])
			}
			wg.Wait()
			if _, err := x.Write([]byte("more")); !errors.Is(err, net.ErrClosed) {
				t.Errorf("write after Close: %v", err)
			}
			if _, err := y.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
				t.Errorf("read after Close: %v", err)
			}
			a.Close()
			b.Close()
		}
	})
}
