package cm_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
)

// Close beside Close, Disconnect, Dial, Accept and Resolve, of connections,
// requests, listeners and devices: each returns, and says that it is closed.
func TestCloseBesideAll(t *testing.T) {
	t.Parallel()
	for round := range 30 {
		client, server := pair(t)
		l, addr := server.listen(cm.ListenConfig{})
		a, b := connectOn(client, server, l)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		brief, end := context.WithTimeout(ctx, 50*time.Millisecond) // for calls that are not answered any more
		var calls []func()
		for _, c := range []*cm.Conn{a, b} {
			calls = append(calls,
				func() { c.Close() }, func() { c.Close() }, func() { c.Disconnect(ctx) },
				func() { <-c.Done(); c.Err() }, func() { c.Wait(ctx) }, func() { c.QP().Close() },
				func() { c.AfterEnd(func() {}) })
		}
		q := client.qp(verbs.RC)
		calls = append(calls,
			func() { l.Close() }, func() { l.Close() },
			func() { cm.Dial(brief, q, addr, cm.DialConfig{}) },
			func() { q.Close() },
			func() { cm.Resolve(brief, client.dev, addr, cm.ResolveConfig{Retries: 1}) },
			func() {
				for {
					r, err := l.Accept(ctx)
					if errors.Is(err, net.ErrClosed) {
						return
					} else if err != nil {
						t.Errorf("accept: %v", err)
						return
					}
					go r.Reject(nil)
					go r.Reject(nil)
				}
			})
		if round%2 == 0 {
			calls = append(calls, func() { server.dev.Close() }, func() { server.dev.Close() }, func() { client.dev.Close() })
		}
		var wg sync.WaitGroup
		for i := range calls {
			wg.Go(calls[(i*11+round)%len(calls)])
		}
		wg.Wait()
		end()
		cancel()
		server.dev.Close()
		client.dev.Close()
	}
}

// connectOn makes a connection over a listener that stays open.
func connectOn(client, server *host, l *cm.Listener) (a, b *cm.Conn) {
	client.t.Helper()
	got := server.serve(l, cm.AcceptConfig{})
	a, err := cm.Dial(client.context(), client.qp(verbs.RC), l.Addr().(*cm.Addr).AddrPort, cm.DialConfig{})
	must(client.t, err)
	s := <-got
	must(client.t, s.err)
	return a, s.conn
}
