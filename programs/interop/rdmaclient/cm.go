package rdmaclient

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/internal/link"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
)

// listen says what a server takes.
func (c *Config) listen() cm.ListenConfig {
	if c.Mode == XRC {
		return cm.ListenConfig{Space: cm.IB, Type: verbs.XRCTarget}
	}
	return cm.ListenConfig{Space: cm.TCP}
}

// Run is the client of a server, over dev.
func Run(ctx context.Context, dev *verbs.Device, server netip.AddrPort, c Config) (Result, error) {
	c, err := c.withDefaults()
	if err != nil {
		return Result{}, err
	}
	res, err := run(ctx, dev, server, c)
	if err != nil {
		return res, fmt.Errorf("rdmaclient: %w", interop.Cause(ctx, err))
	}
	return res, nil
}

func run(ctx context.Context, dev *verbs.Device, server netip.AddrPort, c Config) (Result, error) {
	s, err := newSide(dev, 0, interop.Client, c)
	if err != nil {
		return Result{}, err
	}
	defer s.Close()
	if err := s.ready(); err != nil {
		return Result{}, err
	}
	conn, err := s.Dial(ctx, server, cm.DialConfig{
		Space: c.listen().Space, ResponderResources: verbs.Set(128), InitiatorDepth: verbs.Set(128),
		TrafficClass: c.TrafficClass, SourcePort: c.SourcePort,
	})
	if err != nil {
		return Result{}, err
	}
	defer conn.Close()
	if c.Mode == XRC {
		b := conn.PrivateData()
		if len(b) < 4 || binary.BigEndian.Uint32(b) == 0 {
			return Result{}, errors.New("the server did not tell the number of its shared receive queue: both sides need -c x")
		}
		s.srqn = binary.BigEndian.Uint32(b)
	}
	s.Begin(ctx, "messages", conn, c.IdleTimeout)
	err = s.run(nil)
	s.End()
	if err == nil {
		_ = conn.Disconnect(ctx) // what was to be done is done
	}
	return s.result(), err
}

// ready takes the queue pair to INIT, with its receives posted.
func (s *side) ready() error {
	if err := s.QP.Init(); err != nil {
		return err
	}
	return s.prepare()
}

// Serve is the server on a port of dev, until it has had Config.Clients, or ctx
// ends. A client counts when it has sent its message. Where Clients is not 0
// the error is that of the first of them that failed.
func Serve(ctx context.Context, dev *verbs.Device, at netip.AddrPort, c Config) error {
	c, err := c.withDefaults()
	if err != nil {
		return err
	}
	err = link.Server[Result]{
		Listen: c.listen(), Clients: c.Clients, AtOnce: c.AtOnce, Done: c.OnClient, Ready: c.OnListen,
		Serve: func(ctx context.Context, r *cm.Request, admit func() error) (Result, error) {
			return serve(ctx, r, c, admit)
		},
	}.Run(ctx, dev, at)
	if err != nil {
		return fmt.Errorf("rdmaclient: %w", err)
	}
	return nil
}

// Handle serves the client of one request, as Serve does.
func Handle(ctx context.Context, r *cm.Request, c Config) (Result, error) {
	c, err := c.withDefaults()
	if err != nil {
		return Result{}, err
	}
	return serve(ctx, r, c, func() error { return nil })
}

func serve(ctx context.Context, r *cm.Request, c Config, admit func() error) (Result, error) {
	s, err := newSide(r.Device(), r.QPN(), interop.Server, c)
	if err != nil {
		return Result{}, link.Reject(r, err)
	}
	defer s.Close()
	if err := s.ready(); err != nil {
		return Result{}, link.Reject(r, err)
	}
	a := cm.AcceptConfig{SourcePort: c.SourcePort}
	if s.SRQ != nil {
		a.PrivateData = binary.BigEndian.AppendUint32(nil, s.SRQ.Number())
	}
	conn, err := r.Accept(ctx, s.QP, a)
	if err != nil {
		return Result{}, err
	}
	defer conn.Close()
	s.Begin(ctx, "messages", conn, c.IdleTimeout)
	err = s.run(admit)
	s.End()
	if err == nil {
		_ = conn.Disconnect(ctx) // what was to be done is done
	}
	return s.result(), err
}
