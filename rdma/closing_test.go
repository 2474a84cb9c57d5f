package rdma

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/gosoftroce/rocev2/verbs"
	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

// mapped reports whether the memory of a hub is there, and there is some.
func mapped(h *hub) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.slabs) > 0
}

// dialed makes a listener, and a connection to it through a port that can be
// cut. The test closes them.
func dialed(t *testing.T) (l *Listener, client, server *Conn, cut func()) {
	t.Helper()
	sa, sb := verbstest.NewPair(t, verbstest.Config{})
	l, err := (&ListenConfig{Device: sb.Dev}).Listen(t.Context(), sb.Dev.Addr().String()+":0")
	must(t, err)
	accepted := make(chan *Conn)
	go func() {
		c, err := l.Accept(t.Context())
		if err != nil {
			t.Error(err)
		}
		accepted <- c
	}()
	client, err = (&Dialer{Device: sa.Dev}).Dial(t.Context(), l.Addr().String())
	must(t, err)
	return l, client, <-accepted, sb.Port.Cut
}

// A connection lingers in its Close, because the peer has not acknowledged what
// was sent. Another Close of it meanwhile, or of its listener, waits too: the
// memory of the messages goes last. All return the same result.
func TestCloseBesideClose(t *testing.T) {
	t.Parallel()
	for name, beside := range map[string]func(*Listener, *Conn) error{
		"the connection": func(_ *Listener, c *Conn) error { return c.Close() },
		"the listener":   func(l *Listener, _ *Conn) error { return l.Close() },
		"both": func(l *Listener, c *Conn) error {
			var wg sync.WaitGroup
			wg.Go(func() { c.Close() })
			wg.Go(func() { l.Close() })
			wg.Wait()
			return l.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l, client, server, cut := dialed(t)
				cut()
				must(t, server.Send(t.Context(), []byte("nothing acknowledges it")))
				first := make(chan struct{})
				go func() { server.Close(); close(first) }()
				synctest.Wait() // it lingers
				must(t, beside(l, server))
				synctest.Wait() // no time passes: it lingers, if it has
				select {
				case <-first:
				default:
					t.Error("returns before the first Close")
				}
				if closed := name != "the connection"; mapped(l.doors[0].hub) == closed {
					t.Errorf("closed: %v, and the memory is there: %v", closed, !closed)
				}
				must(t, l.Close())
				must(t, server.Close())
				client.Close()
			})
		})
	}
}

// Two goroutines close a listener whose connection lingers: both return when it
// is closed.
func TestListenerCloseBesideItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, client, server, cut := dialed(t)
		cut()
		must(t, server.Send(t.Context(), []byte("nothing acknowledges it")))
		go l.Close()
		synctest.Wait()
		must(t, l.Close())
		if mapped(l.doors[0].hub) {
			t.Error("returns before the first Close is over")
		}
		client.Close()
	})
}

// A READ copies its data when it has the lock again. Its connection may be
// released by then, and the hub closed: the memory waits for the call.
func TestMemoryOfACallUnderWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, pairConfig{})
		a, b := p.connect()
		mr := must1[*verbs.MR](t)(b.Register(make([]byte, 64), verbs.RemoteRead))
		p.ports[1].Cut()
		read := make(chan error)
		go func() { read <- a.Read(t.Context(), mr.RemoteAt(0), make([]byte, 64)) }()
		synctest.Wait()
		p.a.close()
		a.core.hub.unhold() // as if the connection were released
		if !mapped(p.a) {
			t.Error("the memory is gone that the call copies from")
		}
		a.core.hub.hold()
		go a.core.link.Close()
		if err := <-read; !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		must(t, a.Close())
		if mapped(p.a) {
			t.Error("the memory stays when the last call has returned")
		}
	})
}

// closeWriter closes a connection when it is written to.
type closeWriter struct {
	bytes.Buffer
	close func() error
}

func (w *closeWriter) Write(p []byte) (int, error) {
	w.close()
	return w.Buffer.Write(p)
}

// A writer that CopyTo writes to closes the connection, and with it all that
// the two sides have: the bytes that the writer was given are still there.
func TestCloseWithinCopyTo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		text := bytes.Repeat([]byte("rdma"), 1000)
		l, client, _, _ := dialed(t)
		_, err := l.Export("r", Region{Memory: text})
		must(t, err)
		r, err := client.Region(testContext(t), "r")
		must(t, err)
		w := &closeWriter{close: func() error { client.Close(); return l.Close() }}
		if _, err := r.CopyTo(testContext(t), w, 0, r.Size(), nil); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		if !bytes.Equal(w.Bytes(), text) {
			t.Error("other bytes were written")
		}
	})
}

// Connections and their listeners are closed in every order and at the same
// time, while both sides send, receive, read memory, and hold buffers.
func TestCloseInEveryOrder(t *testing.T) {
	t.Parallel()
	rounds := 24
	if testing.Short() {
		rounds = 6
	}
	for round := range rounds {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l, client, server, _ := dialed(t)
				_, err := l.Export("r", Region{Size: 1 << 20, Writable: true})
				must(t, err)
				var work, ends sync.WaitGroup
				for _, c := range []*Conn{client, server} {
					for _, f := range []func(*Conn) error{sendAll, sendBuffers, receiveAll, receiveCopies} {
						work.Go(func() {
							for f(c) == nil {
							}
						})
					}
				}
				for range 3 {
					work.Go(func() {
						for accessRegion(client) == nil {
						}
					})
				}
				closers := []func() error{client.Close, server.Close, l.Close, l.Close, client.Close, server.Close}
				for i := range closers {
					f := closers[(i+round)%len(closers)]
					if round%2 == 0 {
						ends.Go(func() { f() })
					} else {
						f()
					}
				}
				ends.Wait()
				work.Wait()
				if mapped(l.doors[0].hub) {
					t.Error("the memory of the listener stays")
				}
			})
		})
	}
}

func sendAll(c *Conn) error {
	return c.Send(context.Background(), make([]byte, 3000))
}

func sendBuffers(c *Conn) error {
	b, err := c.Buffer(context.Background())
	if err != nil {
		return err
	}
	defer b.Discard()
	clear(b.Bytes())
	return c.SendBuffer(context.Background(), b, 5000)
}

func receiveAll(c *Conn) error {
	m, err := c.RecvMsg(context.Background())
	if err != nil {
		return err
	}
	defer m.Release()
	_, err = io.Discard.Write(bytes.Clone(m.Bytes()))
	return err
}

func receiveCopies(c *Conn) error {
	_, err := c.Recv(context.Background(), make([]byte, 64<<10))
	return err
}

func accessRegion(c *Conn) error {
	ctx := context.Background()
	r, err := c.Region(ctx, "r")
	if err != nil {
		return err
	}
	for _, n := range []int{8, 4000, 100 << 10} {
		if err := r.Read(ctx, make([]byte, n), 0); err != nil {
			return err
		}
		if err := r.Write(ctx, make([]byte, n), 64); err != nil {
			return err
		}
	}
	_, err = r.CopyTo(ctx, io.Discard, 0, r.Size(), nil)
	return err
}
