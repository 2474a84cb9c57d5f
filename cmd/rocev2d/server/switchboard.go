package server

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"

	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
)

// switchboard is a port of the connection manager with the targets that share
// it. Which one a client is for is seen from its request.
type switchboard struct {
	d       *device
	records *records
	clients int // of a target, at most
	port    int
	space   string
	targets []*Target
	hosts   []*Host
	states  []*targetState
}

// choose returns the target that a request is for: the first that it fits, or
// one that takes all. It is -1 if there is none.
func (b *switchboard) choose(p cm.Params, private []byte) int {
	rest := -1
	for i, t := range b.targets {
		if t.Fits == nil {
			rest = i
		} else if t.Fits(p, private) {
			return i
		}
	}
	return rest
}

// run takes requests until ctx ends, and waits for those under way. It calls
// serving when clients can come.
func (b *switchboard) run(ctx context.Context, serving func()) error {
	cfg := cm.ListenConfig{Backlog: 4 * b.clients}
	if b.space == spaceRDMAUDP {
		cfg.Space, cfg.Type = cm.UDP, verbs.UD
	}
	ln, err := cm.Listen(b.d.dev, netip.AddrPortFrom(b.d.dev.Addr(), uint16(b.port)), cfg)
	if err != nil {
		return err
	}
	if b.space == spaceRDMATCP {
		ln.Greet(b.greet)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer ln.Close()
	serving()
	for {
		r, err := ln.Accept(ctx)
		if err != nil {
			return err
		}
		i := b.choose(r.Params(), r.PrivateData())
		if i < 0 {
			b.unknown(r)
			continue
		}
		h, t := b.hosts[i], b.targets[i]
		g, err := h.Begin(r.RemoteAddr())
		if err != nil {
			h.Refused(r.RemoteAddr(), err)
			_ = r.RejectReason(cm.ReasonNoResources, nil) // the peer may be gone
			continue
		}
		wg.Go(func() {
			g.Is(t.Tools[0], 0)
			result, err := t.Request(ctx, h, r)
			g.End(result, err)
		})
	}
}

// greet answers a request before anything is made for its peer, which may not
// exist. What fits no target comes to run, which records it.
func (b *switchboard) greet(g *cm.Greeting) (cm.AcceptConfig, error) {
	i := b.choose(g.Params, g.PrivateData)
	if i < 0 {
		return cm.AcceptConfig{}, cm.ErrUndecided
	}
	if b.records.draining.Load() || b.records.visits.room(b.targets[i].Name, g.Remote.Addr().String(), b.clients) != nil {
		return cm.AcceptConfig{}, &cm.RejectedError{Reason: cm.ReasonNoResources}
	}
	if greet := b.targets[i].Greet; greet != nil {
		return greet(g)
	}
	return cm.AcceptConfig{}, nil
}

// unknown refuses a client that no target is for.
func (b *switchboard) unknown(r *cm.Request) {
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
