package server

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/gosoftroce/rocev2/cm"
	"github.com/gosoftroce/rocev2/verbs"
)

// switchboard is a port of the connection manager with the targets that share
// it. Which one a client is for is seen from its request.
type switchboard struct {
	d       *device
	port    int
	space   string
	targets []*Target
	hosts   []*Host
	states  []*targetState
}

// choose returns the target that a request is for: the first that it fits, or
// one that takes all. It is -1 if there is none.
func (b *switchboard) choose(r *cm.Request) int {
	rest := -1
	for i, t := range b.targets {
		if t.Fits == nil {
			rest = i
		} else if t.Fits(r) {
			return i
		}
	}
	return rest
}

// run takes requests until ctx ends, and waits for those under way.
func (b *switchboard) run(ctx context.Context, s *Server) error {
	cfg := cm.ListenConfig{Backlog: 4 * s.Config().Targets.Clients}
	if b.space == spaceRDMAUDP {
		cfg.Space, cfg.Type = cm.UDP, verbs.UD
	}
	ln, err := cm.Listen(b.d.dev, netip.AddrPortFrom(b.d.dev.Addr(), uint16(b.port)), cfg)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer ln.Close()
	for _, st := range b.states {
		s.targets.set(st, "serving", nil)
	}
	for {
		r, err := ln.Accept(ctx)
		if err != nil {
			return err
		}
		i := b.choose(r)
		if i < 0 {
			b.unknown(s, r)
			continue
		}
		h, t := b.hosts[i], b.targets[i]
		run, cancel := context.WithCancelCause(ctx)
		g, err := h.takeRequest(ctx, r, cancel)
		if err != nil {
			cancel(nil)
			h.Refused(r.RemoteAddr(), err)
			_ = r.RejectReason(cm.ReasonNoResources, nil) // the peer may be gone
			continue
		}
		wg.Go(func() {
			defer cancel(nil)
			g.Is(t.Tools[0], 0)
			result, err := t.Request(run, h, r)
			g.End(result, err)
		})
	}
}

// takeRequest is Begin for the client of a request. Where there are too many,
// one that was forged, as far as can be seen, has to go.
func (h *Host) takeRequest(ctx context.Context, r *cm.Request, cancel context.CancelCauseFunc) (*Guest, error) {
	g, err := h.Begin(r.RemoteAddr())
	if errors.Is(err, errCrowded) && h.s.visits.makeRoom(ctx, time.Now()) {
		g, err = h.Begin(r.RemoteAddr())
	}
	if err != nil {
		return nil, err
	}
	h.s.visits.mu.Lock()
	defer h.s.visits.mu.Unlock()
	g.confirmed, g.cancel, g.left = r.Confirmed, cancel, make(chan struct{})
	return g, nil
}

// unknown refuses a client that no target is for.
func (b *switchboard) unknown(s *Server, r *cm.Request) {
	p := r.Params()
	var names []string
	for _, t := range b.targets {
		names = append(names, t.Tools...)
	}
	err := fmt.Errorf("the request on port %d is like that of none of %s: retries %d, RNR retries %d, READs %d and %d",
		b.port, strings.Join(names, ", "), p.RetryCount, p.RNRRetry, p.ResponderResources, p.InitiatorDepth)
	b.hosts[0].Refused(r.RemoteAddr(), err)
	_ = r.RejectReason(cm.ReasonConsumer, nil) // the peer may be gone
}

// runSwitchboard is runTarget of all the targets of a port.
func (s *Server) runSwitchboard(ctx context.Context, b *switchboard) {
	err := b.run(ctx, s)
	for i, st := range b.states {
		s.targetEnded(ctx, b.d, b.targets[i].Name, st, err)
	}
}

// ended reports whether the error of a target only says that it was to end.
func endedBy(ctx context.Context, err error) bool {
	return err == nil || ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, errNetClosed) || errors.Is(err, cm.ErrClosed))
}
