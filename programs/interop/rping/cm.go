package rping

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/internal/link"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
)

// Run makes pings with a server, over dev. With a Count of 0 the end of ctx is
// no error.
func Run(ctx context.Context, dev *verbs.Device, server netip.AddrPort, c Config) (Result, error) {
	c, err := c.withDefaults(interop.Client)
	if err != nil {
		return Result{}, err
	}
	res, err := run(ctx, dev, server, c)
	if c.Count == 0 && res.Pings > 0 && errors.Is(err, context.Canceled) {
		err = nil
	}
	if err != nil {
		return res, fmt.Errorf("rping: %w", interop.Cause(ctx, err))
	}
	return res, nil
}

func run(ctx context.Context, dev *verbs.Device, server netip.AddrPort, c Config) (Result, error) {
	s, err := newClient(dev, c)
	if err != nil {
		return Result{}, err
	}
	defer s.close()
	if err := s.ready(); err != nil {
		return Result{}, err
	}
	conn, err := s.Dial(ctx, server, cm.DialConfig{
		ResponderResources: verbs.Set(1), InitiatorDepth: verbs.Set(1), TrafficClass: c.TrafficClass, SourcePort: c.SourcePort,
	})
	if err != nil {
		return Result{}, err
	}
	defer conn.Close()
	s.Begin(ctx, "rping", conn, c.IdleTimeout)
	res, err := s.runClient()
	s.End()
	if err == nil {
		_ = conn.Disconnect(ctx) // what was to be done is done
	}
	return res, err
}

// ready takes the queue pair to INIT, with its receives posted.
func (s *side) ready() error {
	if err := s.QP.Init(); err != nil {
		return err
	}
	return s.prepare()
}

// Serve is the server on a port of dev, until it has had Config.Clients, or ctx
// ends. A client counts when it has sent its first message. Where Clients is
// not 0 the error is that of the first of them that failed.
func Serve(ctx context.Context, dev *verbs.Device, at netip.AddrPort, c Config) error {
	c, err := c.withDefaults(interop.Server)
	if err != nil {
		return err
	}
	err = link.Server[Result]{
		Clients: c.Clients, AtOnce: c.AtOnce, Done: c.OnClient, Ready: c.OnListen,
		Serve: func(ctx context.Context, r *cm.Request, admit func() error) (Result, error) {
			return serve(ctx, r, c, admit)
		},
	}.Run(ctx, dev, at)
	if err != nil {
		return fmt.Errorf("rping: %w", err)
	}
	return nil
}

// Handle serves the client of one request, as Serve does.
func Handle(ctx context.Context, r *cm.Request, c Config) (Result, error) {
	c, err := c.withDefaults(interop.Server)
	if err != nil {
		return Result{}, err
	}
	return serve(ctx, r, c, func() error { return nil })
}

func serve(ctx context.Context, r *cm.Request, c Config, admit func() error) (Result, error) {
	s, err := newServer(r.Device(), r.QPN(), c)
	if err != nil {
		return Result{}, link.Reject(r, err)
	}
	defer s.close()
	s.admit = admit
	if err := s.ready(); err != nil {
		return Result{}, link.Reject(r, err)
	}
	conn, err := r.Accept(ctx, s.QP, cm.AcceptConfig{SourcePort: c.SourcePort})
	if err != nil {
		return Result{}, err
	}
	defer conn.Close()
	s.Begin(ctx, "rping", conn, c.IdleTimeout)
	return s.runServer()
}
