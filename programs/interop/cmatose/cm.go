package cmatose

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/internal/link"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
)

// space is the port space of the connections.
func (c *Config) space() cm.PortSpace {
	if c.IBSpace {
		return cm.IB
	}
	return cm.TCP
}

// Run makes connections with a server, over dev, all at once.
func Run(ctx context.Context, dev *verbs.Device, server netip.AddrPort, c Config) (Result, error) {
	c, err := c.withDefaults(dev)
	if err != nil {
		return Result{}, err
	}
	var mu sync.Mutex
	var all Result
	err = link.All(ctx, c.Connections, func(ctx context.Context, _ int) error {
		res, err := run(ctx, dev, server, c)
		mu.Lock()
		defer mu.Unlock()
		all.add(res)
		return err
	})
	if err != nil {
		return all, fmt.Errorf("cmatose: %w", interop.Cause(ctx, err))
	}
	return all, nil
}

// run makes one connection.
func run(ctx context.Context, dev *verbs.Device, server netip.AddrPort, c Config) (Result, error) {
	s, err := newSide(dev, 0, c)
	if err != nil {
		return Result{}, err
	}
	defer s.Close()
	if err := s.ready(); err != nil {
		return Result{}, err
	}
	start := time.Now()
	conn, err := s.Dial(ctx, server, cm.DialConfig{
		Space: c.space(), ResponderResources: verbs.Set(1), InitiatorDepth: verbs.Set(1), RetryCount: verbs.Set(5), RNRRetry: verbs.Set(0),
		AckTimeout: c.AckTimeout, TrafficClass: c.TrafficClass, SourcePort: c.SourcePort,
	})
	if err != nil {
		return Result{}, err
	}
	defer conn.Close()
	s.Begin(ctx, "messages", conn, c.IdleTimeout)
	err = s.runClient()
	res := s.result(start)
	s.End()
	if err == nil {
		err = left(ctx, conn, c.IdleTimeout)
	}
	s.step(Disconnected)
	return res, err
}

// left waits for the server to disconnect.
func left(ctx context.Context, conn *cm.Conn, limit time.Duration) error {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-conn.Done():
		if err := link.Left(conn); !errors.Is(err, interop.ErrDisconnected) {
			return err
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return fmt.Errorf("the server has all messages and does not disconnect: %w for %v", interop.ErrNoProgress, limit)
	}
}

// ready takes the queue pair to INIT, with its receives posted.
func (s *side) ready() error {
	if err := s.QP.Init(); err != nil {
		return err
	}
	return s.prepare()
}

// Serve is the server on a port of dev, until it has had Config.Clients, or ctx
// ends. A client counts when it has taken a message. Where Clients is not 0 the
// error is that of the first of them that failed.
func Serve(ctx context.Context, dev *verbs.Device, at netip.AddrPort, c Config) error {
	c, err := c.withDefaults(dev)
	if err != nil {
		return err
	}
	err = link.Server[Result]{
		Listen: cm.ListenConfig{Space: c.space()}, Clients: c.Clients, AtOnce: c.AtOnce, Done: c.OnClient, Ready: c.OnListen,
		Serve: func(ctx context.Context, r *cm.Request, admit func() error) (Result, error) {
			return serve(ctx, r, c, admit)
		},
	}.Run(ctx, dev, at)
	if err != nil {
		return fmt.Errorf("cmatose: %w", err)
	}
	return nil
}

// Handle serves the client of one request, as Serve does.
func Handle(ctx context.Context, r *cm.Request, c Config) (Result, error) {
	c, err := c.withDefaults(r.Device())
	if err != nil {
		return Result{}, err
	}
	return serve(ctx, r, c, func() error { return nil })
}

func serve(ctx context.Context, r *cm.Request, c Config, admit func() error) (Result, error) {
	start := time.Now()
	s, err := newSide(r.Device(), r.QPN(), c)
	if err != nil {
		return Result{}, link.Reject(r, err)
	}
	defer s.Close()
	s.admit = admit
	if err := s.ready(); err != nil {
		return Result{}, link.Reject(r, err)
	}
	conn, err := r.Accept(ctx, s.QP, cm.AcceptConfig{SourcePort: c.SourcePort})
	if err != nil {
		return Result{}, err
	}
	defer conn.Close()
	s.Begin(ctx, "messages", conn, c.IdleTimeout)
	err = s.runServer()
	s.End()
	res := s.result(start)
	if err == nil {
		s.step(Disconnecting)
		_ = conn.Disconnect(ctx) // all messages are through
		s.step(Disconnected)
	}
	return res, err
}
