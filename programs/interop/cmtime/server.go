package cmtime

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/internal/link"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
)

// Serve is the server on a port of dev, until it has had Config.Clients
// connections, or ctx ends. A connection counts when the client has ended it.
func Serve(ctx context.Context, dev *verbs.Device, at netip.AddrPort, c Config) error {
	c, err := c.withDefaults(dev)
	if err != nil {
		return err
	}
	s, err := newServer(dev, c)
	if err != nil {
		return fmt.Errorf("cmtime: %w", err)
	}
	defer s.close()
	err = link.Server[time.Duration]{
		Clients: c.Clients, AtOnce: c.AtOnce, Done: c.OnClient, Ready: c.OnListen, Serve: s.serve,
	}.Run(ctx, dev, at)
	if err != nil {
		return fmt.Errorf("cmtime: %w", err)
	}
	return nil
}

// Handle serves one connection, as Serve does. It returns for how long it
// lasted.
func Handle(ctx context.Context, r *cm.Request, c Config) (time.Duration, error) {
	c, err := c.withDefaults(r.Device())
	if err != nil {
		return 0, err
	}
	s, err := newServer(r.Device(), c)
	if err != nil {
		return 0, link.Reject(r, err)
	}
	defer s.close()
	return s.serve(ctx, r, func() error { return nil })
}

// server has what all connections share: nothing completes on any of them.
type server struct {
	cfg Config
	pd  *verbs.PD
	cq  *verbs.CQ
}

func newServer(dev *verbs.Device, c Config) (*server, error) {
	pd, err := dev.AllocPD()
	if err != nil {
		return nil, err
	}
	cq, err := dev.CreateCQ(1)
	if err != nil {
		pd.Close()
		return nil, err
	}
	return &server{c, pd, cq}, nil
}

func (s *server) close() {
	s.cq.Close()
	s.pd.Close()
}

// serve accepts a connection and waits until the client ends it.
func (s *server) serve(ctx context.Context, r *cm.Request, admit func() error) (time.Duration, error) {
	start := time.Now()
	qp, err := s.pd.CreateQP(verbs.QPConfig{SendCQ: s.cq, RecvCQ: s.cq, MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1, Number: r.QPN()})
	if err != nil {
		return 0, link.Reject(r, err)
	}
	defer qp.Close()
	conn, err := r.Accept(ctx, qp, cm.AcceptConfig{})
	if errors.Is(err, cm.ErrGone) && r.QPN() != 0 { // it has come and gone
		return time.Since(start), admit()
	}
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	t := time.NewTimer(s.cfg.IdleTimeout)
	defer t.Stop()
	select {
	case <-conn.Done():
		if err = link.Left(conn); errors.Is(err, interop.ErrDisconnected) {
			err = admit()
		}
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-t.C:
		err = fmt.Errorf("the client does not end the connection: %w for %v", interop.ErrNoProgress, s.cfg.IdleTimeout)
	}
	return time.Since(start), err
}
