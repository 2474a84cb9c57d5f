package rdma

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/internal/testcert"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

// restartable is a server that can end and come back, with the same memory.
type restartable struct {
	t      *testing.T
	a, b   *verbstest.Side // of the client, of the server
	memory []byte
	tls    *tls.Config // nil: none
	l      *Listener
	conns  atomic.Int32 // how many were accepted
}

func newRestartable(t *testing.T) *restartable {
	a, b := verbstest.NewPair(t)
	s := &restartable{t: t, a: a, b: b, memory: make([]byte, 4096)}
	must(t, cm.Start(b.Dev)) // which refuses while there is no listener
	return s
}

func (s *restartable) client() *Client {
	c := &Client{Addr: s.b.Dev.Addr().String() + ":7471", Dialer: Dialer{Device: s.a.Dev}}
	s.t.Cleanup(func() { c.Close() })
	return c
}

// start listens, and does with each connection what serve does.
func (s *restartable) start(serve func(*Conn)) {
	lc := ListenConfig{Device: s.b.Dev, TLS: s.tls}
	lc.Export("board", Region{Memory: s.memory, Writable: true})
	l, err := lc.Listen(context.Background(), ":7471")
	if err != nil {
		s.t.Error(err)
		return
	}
	s.l = l
	s.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept(context.Background())
			if err != nil {
				return
			}
			s.conns.Add(1)
			if serve != nil {
				serve(c)
			}
		}
	}()
}

// add is an operation that must not be carried out twice.
func add(ctx context.Context, calls *int) func(*Conn) error {
	return func(c *Conn) error {
		*calls++
		r, err := c.Region(ctx, "board")
		if err != nil {
			return err
		}
		_, err = r.FetchAdd(ctx, 0, 1)
		return err
	}
}

// A server ends, and is there again after a while: the next call waits for it.
func TestClientOfServerThatComesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, calls := newRestartable(t), 0
		client := s.client()
		time.AfterFunc(time.Minute, func() { s.start(nil) })
		var first *Conn
		must(t, client.Do(t.Context(), func(c *Conn) error {
			first = c
			return add(t.Context(), &calls)(c)
		}))
		must(t, s.l.Close())
		<-first.Done()
		time.AfterFunc(time.Minute, func() { s.start(nil) })
		must(t, client.Do(t.Context(), add(t.Context(), &calls)))
		must(t, client.Do(t.Context(), add(t.Context(), &calls)))
		if calls != 3 || s.memory[0]+s.memory[7] != 3 || s.conns.Load() != 2 {
			t.Errorf("%d calls, %d connections, memory %x", calls, s.conns.Load(), s.memory[:8])
		}
	})
}

// The cable is cut under an operation: it is not repeated, and its error says
// that its outcome is unknown. What is idempotent is repeated when it is told.
func TestClientWithCutCable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, calls := newRestartable(t), 0
		client := s.client()
		s.start(nil)
		ctx := t.Context()
		must(t, client.Do(ctx, add(ctx, &calls)))

		s.b.Port.Cut()
		err := client.Do(ctx, add(ctx, &calls))
		if !errors.Is(err, ErrUnknownOutcome) || !errors.Is(err, ErrPeerGone) || calls != 2 {
			t.Errorf("after %d calls: %v", calls, err)
		}
		time.AfterFunc(10*time.Second, s.b.Port.Plug)
		must(t, client.Do(ctx, add(ctx, &calls)))
		if n := s.memory[0] + s.memory[7]; calls != 3 || n != 2 {
			t.Errorf("%d calls have counted to %d", calls, n)
		}

		writes := 0
		must(t, client.Repeat(ctx, func(c *Conn) error {
			r, err := c.Region(ctx, "board")
			if writes++; writes == 1 {
				s.b.Port.Cut()
				time.AfterFunc(10*time.Second, s.b.Port.Plug)
			}
			if err != nil {
				return err
			}
			return r.Write(ctx, []byte("written"), 64)
		}))
		if writes != 2 || string(s.memory[64:71]) != "written" {
			t.Errorf("%d writes, memory %q", writes, s.memory[64:71])
		}
	})
}

// An error over a connection that goes on is that of the function, and the
// connection is used again. It may say that a context has ended.
func TestClientErrorsOfLiveConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newRestartable(t)
		client := s.client()
		s.start(nil)
		for name, call := range map[string]func(context.Context, func(*Conn) error) error{"Do": client.Do, "Repeat": client.Repeat} {
			calls := 0
			err := call(t.Context(), func(c *Conn) error {
				calls++
				_, err := c.Region(t.Context(), "ledger")
				return err
			})
			if !errors.Is(err, ErrUnknownRegion) || errors.Is(err, ErrUnknownOutcome) || calls != 1 {
				t.Errorf("%s after %d calls: %v", name, calls, err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			err = call(ctx, func(c *Conn) error {
				_, err := c.Recv(ctx, nil)
				return err
			})
			cancel()
			if !errors.Is(err, ErrUnknownOutcome) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if s.conns.Load() != 1 {
			t.Errorf("%d connections", s.conns.Load())
		}
	})
}

// While there is no server a call waits as long as its context allows, or until
// the client is closed. The function is not called, which the error says by
// not being ErrUnknownOutcome.
func TestClientWithoutServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, calls := newRestartable(t), 0
		client := s.client()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var wg sync.WaitGroup
		for range 2 { // one dials, the other waits for that
			wg.Go(func() {
				err := client.Repeat(ctx, add(ctx, &calls))
				if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrUnknownOutcome) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for range 2 {
			wg.Go(func() {
				if err := client.Do(t.Context(), add(t.Context(), &calls)); !errors.Is(err, net.ErrClosed) || errors.Is(err, ErrUnknownOutcome) {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		must(t, client.Close())
		wg.Wait()
		if err := client.Do(t.Context(), add(t.Context(), &calls)); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		if calls != 0 {
			t.Errorf("%d calls", calls)
		}

		// The last error of the dials tells what was waited for.
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.client().Do(ctx, add(ctx, &calls)); !errors.Is(err, syscall.ECONNREFUSED) || !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

// Many calls share a connection, which is made once. Close ends all of them.
func TestClientShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newRestartable(t)
		client := s.client()
		s.start(nil)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				err := client.Repeat(t.Context(), func(c *Conn) error {
					_, err := c.Recv(t.Context(), nil)
					return err
				})
				if !errors.Is(err, net.ErrClosed) || !errors.Is(err, ErrUnknownOutcome) {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		must(t, client.Close())
		wg.Wait()
		if s.conns.Load() != 1 {
			t.Errorf("%d connections", s.conns.Load())
		}
	})
}

// A call that still reads what the peer has sent before its end gets all of it,
// while another call has a new connection.
func TestClientReadsOldConnectionToItsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newRestartable(t)
		client := s.client()
		s.start(func(c *Conn) {
			if s.conns.Load() == 1 {
				c.Send(t.Context(), []byte("last words"))
				c.Close()
			}
		})
		p := make([]byte, 64)
		must(t, client.Do(t.Context(), func(old *Conn) error {
			<-old.Done()
			must(t, client.Do(t.Context(), func(c *Conn) error {
				if c == old {
					t.Error("the connection is the old one")
				}
				return nil
			}))
			n, err := old.Recv(t.Context(), p)
			if string(p[:n]) != "last words" {
				t.Errorf("%q, %v", p[:n], err)
			}
			if _, err = old.Recv(t.Context(), p); err != io.EOF {
				t.Error(err)
			}
			return nil
		}))
	})
}

// TestClientOfServerThatEndsInTheHandshake: a server that ends while it secures
// a connection, by itself or without a word, is waited for. One that refuses
// the client for good is not.
func TestClientOfServerThatEndsInTheHandshake(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"closed", "gone", "refused"} {
		synctest.Test(t, func(t *testing.T) {
			a, b := verbstest.NewPair(t, verbstest.Config{Device: verbs.Config{Sealing: true}})
			authority := testcert.New(t)
			at := b.Dev.Addr().String()
			server := &tls.Config{Certificates: []tls.Certificate{authority.Issue(t, "server", at)}, ClientCAs: authority.Pool, ClientAuth: tls.RequireAndVerifyClientCert}
			client := Client{Addr: at + ":7471", Dialer: Dialer{Device: a.Dev, TLS: &tls.Config{RootCAs: authority.Pool}}}
			defer client.Close()
			if how != "refused" {
				client.Dialer.TLS.Certificates = []tls.Certificate{authority.Issue(t, "client", "")}
			}
			s := &restartable{t: t, a: a, b: b, memory: make([]byte, 4096), tls: server}
			s.start(nil)
			handshakes := 0
			server.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
				if handshakes++; handshakes > 1 || how == "refused" {
					return nil, nil
				}
				time.AfterFunc(time.Minute, func() {
					b.Port.Plug()
					s.start(nil)
				})
				if how == "gone" {
					b.Port.Cut()
				}
				go s.l.Close() // which waits for this handshake
				synctest.Wait()
				return nil, nil
			}
			calls := 0
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			err := client.Do(ctx, add(ctx, &calls))
			if how == "refused" {
				if err == nil || !strings.Contains(err.Error(), "certificate required") || handshakes != 1 {
					t.Errorf("%s, after %d handshakes: %v", how, handshakes, err)
				}
			} else if err != nil || calls != 1 || handshakes != 2 {
				t.Errorf("%s, after %d handshakes and %d calls: %v", how, handshakes, calls, err)
			}
		})
	}
}

// OnConnect sees each connection first. A server that ends each of them at once
// is not dialled without end: the pauses grow.
func TestClientOnConnect(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newRestartable(t)
		s.start(func(c *Conn) { c.Close() })
		client, calls, greeted := s.client(), 0, 0
		client.OnConnect = func(ctx context.Context, c *Conn) error {
			greeted++
			_, err := c.Recv(ctx, nil)
			return err
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := client.Do(ctx, add(ctx, &calls)); !errors.Is(err, context.DeadlineExceeded) || calls != 0 {
			t.Errorf("after %d calls: %v", calls, err)
		}
		if greeted < 10 || greeted > 40 {
			t.Errorf("%d dials in a minute", greeted)
		}

		must(t, s.l.Close())
		s.start(nil)
		refused := errors.New("not this server")
		client.OnConnect = func(context.Context, *Conn) error { return refused }
		if err := client.Do(t.Context(), add(t.Context(), &calls)); err != refused || calls != 0 {
			t.Errorf("after %d calls: %v", calls, err)
		}
		client.OnConnect = nil
		must(t, client.Do(t.Context(), add(t.Context(), &calls)))
	})
}

// Access that the server does not allow any more ends the connection, and is
// not repeated: another connection would not help.
func TestClientRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, calls := newRestartable(t), 0
		client := s.client()
		s.start(nil)
		err := client.Repeat(t.Context(), func(c *Conn) error {
			calls++
			return c.Write(t.Context(), verbs.RemoteAddr{Addr: 64, RKey: 1}, []byte("x"))
		})
		if !errors.Is(err, ErrRefused) || !errors.Is(err, ErrUnknownOutcome) || calls != 1 {
			t.Errorf("after %d calls: %v", calls, err)
		}
		must(t, client.Do(t.Context(), add(t.Context(), &calls)))
	})
}
