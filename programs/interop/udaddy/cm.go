package udaddy

import (
	"context"
	"fmt"
	"net/netip"
	"sync"

	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/internal/link"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
)

// Run has paths to a server, over dev, all at once.
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
		return all, fmt.Errorf("udaddy: %w", interop.Cause(ctx, err))
	}
	return all, nil
}

// run has one path.
func run(ctx context.Context, dev *verbs.Device, server netip.AddrPort, c Config) (Result, error) {
	s, err := newSide(dev, c)
	if err != nil {
		return Result{}, err
	}
	defer s.Close()
	if err := s.QP.Activate(interop.CMQKey); err != nil {
		return Result{}, err
	}
	to, err := cm.Resolve(ctx, dev, server, cm.ResolveConfig{TrafficClass: c.TrafficClass})
	if err != nil {
		return Result{}, link.Explain(ctx, server, err)
	}
	av := to.AV
	av.SrcPort = c.SourcePort
	ah, err := s.PD.CreateAH(av)
	if err != nil {
		return Result{}, err
	}
	defer ah.Close()
	s.source, s.peer = to.QPN, to.QPN
	err = s.runClient(ctx, target{ah, to.QPN, to.QKey})
	return s.result(), err
}

// Serve is the server on a port of dev, until it has had Config.Clients, or ctx
// ends. A client counts when it has sent its first message. Where Clients is
// not 0 the error is that of the first of them that failed.
func Serve(ctx context.Context, dev *verbs.Device, at netip.AddrPort, c Config) error {
	c, err := c.withDefaults(dev)
	if err != nil {
		return err
	}
	err = link.Server[Result]{
		Listen: cm.ListenConfig{Space: cm.UDP}, Clients: c.Clients, AtOnce: c.AtOnce, Done: c.OnClient, Ready: c.OnListen,
		Serve: func(ctx context.Context, r *cm.Request, admit func() error) (Result, error) {
			return serve(ctx, r, c, admit)
		},
	}.Run(ctx, dev, at)
	if err != nil {
		return fmt.Errorf("udaddy: %w", err)
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

// serve answers the messages of one client, at the address that its request
// came from.
func serve(ctx context.Context, r *cm.Request, c Config, admit func() error) (Result, error) {
	s, err := newSide(r.Device(), c)
	if err != nil {
		return Result{}, link.Reject(r, err)
	}
	defer s.Close()
	ah, err := s.PD.CreateAH(verbs.AddressVector{
		DGID: r.RemoteAddr().(*cm.Addr).Addr(), TrafficClass: r.Params().TrafficClass, SrcPort: c.SourcePort,
	})
	if err == nil {
		defer ah.Close()
		err = s.QP.Activate(interop.CMQKey)
	}
	if err != nil {
		return Result{}, link.Reject(r, err)
	}
	if _, err := r.Accept(ctx, s.QP, cm.AcceptConfig{}); err != nil {
		return Result{}, err
	}
	if err := s.first(ctx); err != nil {
		return s.result(), err
	}
	if err := admit(); err != nil {
		return s.result(), err
	}
	err = s.runServer(ctx, ah)
	return s.result(), err
}
