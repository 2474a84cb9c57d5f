package rdma

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/verbs"
	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

// wire is a link between two connections of a test, without CM.
type wire struct {
	c    *Conn
	peer **Conn
	why  atomic.Pointer[error]
}

func (w *wire) LocalAddr() net.Addr { return &net.UDPAddr{IP: w.c.core.hub.dev.Addr().AsSlice()} }
func (w *wire) RemoteAddr() net.Addr {
	return &net.UDPAddr{IP: (*w.peer).core.hub.dev.Addr().AsSlice()}
}
func (w *wire) Err() error {
	if p := w.why.Load(); p != nil {
		return *p
	}
	return nil
}

func (w *wire) Close() error {
	gone := errors.Is(w.c.Err(), ErrPeerGone)
	w.end(errClosed)
	if !gone { // else nothing reaches it
		(*w.peer).core.link.(*wire).end(ErrPeerClosed)
	}
	return nil
}

func (w *wire) end(err error) {
	if w.why.CompareAndSwap(nil, &err) {
		w.c.core.qp.Modify(&verbs.Attr{State: verbs.StateErr}, verbs.AttrState)
	}
}

// pairConfig says what pair makes. The zero value works.
type pairConfig struct {
	tune    tuning
	foreign bool // neither side knows that the other one speaks the protocol
	devices verbstest.Config
	exports map[string]Region // of the second side
}

// pairOf are two hubs whose connections reach each other.
type pairOf struct {
	t     testing.TB
	cfg   pairConfig
	a, b  *hub
	ports [2]*fabric.Port
}

func newPair(t testing.TB, cfg pairConfig) *pairOf {
	t.Helper()
	if cfg.tune.size == 0 {
		cfg.tune.size = 16 << 10
	}
	if cfg.tune.depth == 0 {
		cfg.tune.depth = defaultDepth
	}
	sa, sb := verbstest.NewPair(t, cfg.devices)
	p := &pairOf{t: t, cfg: cfg, ports: [2]*fabric.Port{sa.Port, sb.Port}}
	d := &directory{}
	var err error
	if p.a, err = newHub(sa.Dev, cfg.tune, nil); err != nil {
		t.Fatal(err)
	}
	if p.b, err = newHub(sb.Dev, cfg.tune, d); err != nil {
		t.Fatal(err)
	}
	d.pd = p.b.pd
	for name, r := range cfg.exports {
		if _, err := d.export(name, r); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { p.a.close(); p.b.close() })
	return p
}

// connect makes a connection, which is closed when the test ends.
func (p *pairOf) connect() (a, b *Conn) {
	p.t.Helper()
	a, b = must1[*Conn](p.t)(newConn(p.a)), must1[*Conn](p.t)(newConn(p.b))
	a.core.link, b.core.link = &wire{c: a, peer: &b}, &wire{c: b, peer: &a}
	for _, s := range []struct {
		c *Conn
		h *hub
	}{{a, p.a}, {b, p.b}} {
		s.c.core.greeted(hello{credits: baseWindow, size: uint32(s.h.size)}, !p.cfg.foreign)
		must(p.t, s.c.core.in.listen(s.c.core.in.firstReceives()))
	}
	b.core.client = p.a.dev.Addr()
	verbstest.Connect(p.t, a.core.qp, b.core.qp)
	p.t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func must1[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		must(t, err)
		return v
	}
}
