// Package stream has what the tools over streams share: a connection that ends
// with a context, and when nothing moves for too long, and a server of them.
package stream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/internal/link"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/rdma/rdmanet"
	"github.com/gosoftroce/rocev2/verbs"
)

// Conn is a connection whose Read and Write end with a context, or when none
// has moved a byte for a time.
type Conn struct {
	*rdmanet.Conn
	ctx    context.Context
	idle   time.Duration
	moved  atomic.Uint64 // reads and writes
	silent atomic.Bool
	stop   func() bool
	timer  *time.Timer
}

// Guard takes over a connection. idle is 0 for no limit.
func Guard(ctx context.Context, c *rdmanet.Conn, idle time.Duration) *Conn {
	g := &Conn{Conn: c, ctx: ctx, idle: idle}
	g.stop = context.AfterFunc(ctx, g.interrupt)
	if idle > 0 {
		seen := uint64(0)
		g.timer = time.AfterFunc(time.Hour, func() {
			if now := g.moved.Load(); now != seen {
				seen = now
				g.timer.Reset(idle)
				return
			}
			g.silent.Store(true)
			g.interrupt()
		})
		g.timer.Reset(idle)
	}
	return g
}

func (g *Conn) interrupt() { g.SetDeadline(time.Unix(1, 0)) }

// Read implements io.Reader.
func (g *Conn) Read(p []byte) (int, error) {
	n, err := g.Conn.Read(p)
	g.moved.Add(1)
	return n, g.explain(err)
}

// Write implements io.Writer.
func (g *Conn) Write(p []byte) (int, error) {
	n, err := g.Conn.Write(p)
	g.moved.Add(1)
	return n, g.explain(err)
}

func (g *Conn) explain(err error) error {
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	if g.ctx.Err() != nil {
		return context.Cause(g.ctx)
	}
	return fmt.Errorf("%w for %v", interop.ErrNoProgress, g.idle)
}

// Close ends the connection, and waits until the peer knows: the program may
// end next.
func (g *Conn) Close() error {
	g.stop()
	if g.timer != nil {
		g.timer.Stop()
	}
	err := g.Conn.Close()
	<-g.Conn.Parted()
	return err
}

// Dial connects to a server over dev.
func Dial(ctx context.Context, dev *verbs.Device, to netip.AddrPort, o rdmanet.Options, idle time.Duration) (*Conn, error) {
	d := rdmanet.Dialer{Device: dev, Options: o}
	c, err := d.DialContext(ctx, "rdma", to.String())
	if err != nil {
		return nil, link.Explain(ctx, to, err)
	}
	return Guard(ctx, c.(*rdmanet.Conn), idle), nil
}

// Server serves clients on a port of a device.
type Server struct {
	Options rdmanet.Options
	Idle    time.Duration
	// Clients is how many clients are served, one after the other; 0 means
	// many at once, until the context ends.
	Clients int
	// Serve serves a connection. It reports whether the client is done.
	Serve func(ctx context.Context, c *Conn) (done bool, err error)
	// Ready, if not nil, is called once clients can connect.
	Ready func()
	// Failed, if not nil, is told of clients that come to nothing.
	Failed func(from net.Addr, err error)
}

// maxAtOnce is how many clients a server without end serves at once.
const maxAtOnce = 256

// Run serves until the clients are served, or ctx ends: that is no error where
// Clients is 0. Otherwise the error is that of the first client.
func (s *Server) Run(ctx context.Context, dev *verbs.Device, at netip.AddrPort) error {
	lc := rdmanet.ListenConfig{Device: dev, Options: s.Options, MaxConns: maxAtOnce}
	ln, err := lc.Listen(ctx, "rdma", at.String())
	if err != nil {
		return err
	}
	defer ln.Close()
	if s.Ready != nil {
		s.Ready()
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	for served := 0; s.Clients == 0 || served < s.Clients; {
		c, err := ln.AcceptContext(ctx)
		if err != nil {
			if s.Clients == 0 && ctx.Err() != nil {
				return nil
			}
			return interop.Cause(ctx, err)
		}
		if s.Clients == 0 {
			wg.Go(func() { s.one(ctx, c) })
			continue
		}
		done, err := s.one(ctx, c)
		if err != nil {
			return err
		}
		if done {
			served++
		}
	}
	return nil
}

// Greet is the cm.Greeter of such a listener, for requests of streams.
func (s *Server) Greet(g *cm.Greeting) (cm.AcceptConfig, error) {
	lc := rdmanet.ListenConfig{Options: s.Options}
	return lc.Greet(g)
}

// Handle serves the connection of a request that another listener has taken. A
// request that is not of a stream is rejected.
func (s *Server) Handle(ctx context.Context, r *cm.Request) error {
	lc := rdmanet.ListenConfig{Options: s.Options}
	c, err := lc.Accept(ctx, r)
	if err == nil {
		_, err = s.one(ctx, c)
	}
	return err
}

func (s *Server) one(ctx context.Context, c *rdmanet.Conn) (bool, error) {
	g := Guard(ctx, c, s.Idle)
	defer g.Close()
	done, err := s.Serve(ctx, g)
	if err != nil && s.Failed != nil {
		s.Failed(c.RemoteAddr(), err)
	}
	return done, err
}
