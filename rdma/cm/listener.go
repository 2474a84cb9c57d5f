package cm

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"

	"github.com/gosoftroce/rocev2/hca/task"
	"github.com/gosoftroce/rocev2/internal/list"
	"github.com/gosoftroce/rocev2/rdma/cm/agent"
	"github.com/gosoftroce/rocev2/rocev2/mad"
	"github.com/gosoftroce/rocev2/verbs"
)

// ListenConfig says what a listener takes. The zero value works.
type ListenConfig struct {
	Space PortSpace // 0 means UDP for the Type UD, and else TCP

	// Type is the type of queue pair: RC, UC or UD, or XRCTarget. 0 means
	// UD in the port spaces UDP and IPoIB, and else RC. Requests for others
	// are rejected.
	Type verbs.QPType

	// TLS has the listener, of RC or XRCTarget, take secured connections
	// alone: see the package documentation. The device has
	// verbs.Config.Sealing.
	TLS *tls.Config
	// OnNotSecured is told of peers whose handshake has failed, and why. It
	// may be nil.
	OnNotSecured func(client net.Addr, err error)

	// Backlog is how many requests wait for Accept, or for their answer, at
	// most; 0 means 1024. When it is reached, a new request is taken only
	// if it comes again, as those of honest peers do.
	Backlog int
}

func (c *ListenConfig) fill() error {
	switch {
	case c.Space == 0 && c.Type == verbs.UD:
		c.Space = UDP
	case c.Space == 0:
		c.Space = TCP
	case !validSpace(c.Space):
		return fmt.Errorf("cm: there is no port space 0x%x; use TCP, UDP, IPoIB or IB", uint16(c.Space))
	}
	if c.Type == 0 {
		c.Type = verbs.RC
		if datagrams(c.Space) {
			c.Type = verbs.UD
		}
	}
	switch c.Type {
	case verbs.RC, verbs.UC, verbs.XRCTarget:
		if datagrams(c.Space) {
			return fmt.Errorf("cm: port space %v is for queue pairs of type UD, not of type %v", c.Space, c.Type)
		}
	case verbs.UD:
		if c.Space == TCP {
			return fmt.Errorf("cm: port space TCP is for connections, not for queue pairs of type UD")
		}
	default:
		return fmt.Errorf("cm: there is no listener for queue pairs of type %v; use RC, UC, UD or XRCTarget", c.Type)
	}
	if c.TLS != nil {
		return securable(c.Type)
	}
	return nil
}

// Listener takes requests that are for a port. Its methods may be called from
// any goroutine.
type Listener struct {
	m     *manager
	cfg   ListenConfig
	addr  Addr
	ready *task.Bell // there may be requests

	entrance *entrance // of secured connections; nil: there are none

	// Guarded by the lock of m:
	queue  list.List[Request]
	ended  int // of queue: connections that are over
	closed bool
}

// Listen takes requests on a port of a device. The address is the device's, or
// unspecified; port 0 stands for one that is free. The first use of a device
// makes its management queue pair.
//
// The error wraps a *PortError for a port that is in use, ErrClosed or
// verbs.ErrClosed for a device that is closed, or verbs.ErrGSIInUse.
func Listen(dev *verbs.Device, addr netip.AddrPort, cfg ListenConfig) (*Listener, error) {
	return listenShared(dev, addr, cfg, nil)
}

// listenShared is Listen with a bell that several listeners share, or nil.
func listenShared(dev *verbs.Device, addr netip.AddrPort, cfg ListenConfig, ready *task.Bell) (*Listener, error) {
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	if err := checkLocal(dev, addr.Addr()); err != nil {
		return nil, err
	}
	m, err := managerOf(dev)
	if err != nil {
		return nil, err
	}
	port, err := m.ports.take(cfg.Space, addr.Port(), false)
	if err != nil {
		return nil, err
	}
	if ready == nil {
		ready = m.tasks.NewBell()
	}
	l := &Listener{m: m, cfg: cfg, ready: ready,
		addr: Addr{netip.AddrPortFrom(dev.Addr(), port), cfg.Space}}
	if err := l.open(); err != nil {
		m.ports.give(cfg.Space, port)
		return nil, err
	}
	return l, nil
}

// open begins to listen.
func (l *Listener) open() (err error) {
	if l.cfg.TLS == nil {
		return l.m.listen(l.service(), l.cfg.Backlog, l)
	}
	if l.m.dev.SealedMTU(netip.Addr{}) == 0 {
		return fmt.Errorf("cm: listen on %v with a TLS configuration: %w", &l.addr, verbs.ErrNotSealing)
	}
	if l.entrance, err = l.m.controls.openEntrance(l.addr, l.cfg.TLS, l.cfg.OnNotSecured); err != nil {
		return err
	}
	if err = l.m.listen(l.service(), l.cfg.Backlog, l); err == nil {
		l.Greet(nil)
		return nil
	}
	l.m.lock()
	defer l.m.unlock()
	l.entrance.close(0)
	return err
}

// checkLocal checks that an address to listen on, or to send from, is the
// device's.
func checkLocal(dev *verbs.Device, addr netip.Addr) error {
	switch {
	case dev == nil:
		return fmt.Errorf("cm: no device")
	case !addr.IsValid() || addr.IsUnspecified() || addr.Unmap().WithZone("") == dev.Addr().WithZone(""):
		return nil
	}
	return fmt.Errorf("cm: %v is not the address of the device, which is %v; open a device on it", addr, dev.Addr())
}

func (l *Listener) service() mad.ServiceID { return l.cfg.Space.Service(l.addr.Port()) }

// Addr returns the address, with the port that was chosen: an *Addr.
func (l *Listener) Addr() net.Addr { return &l.addr }

// Accept waits for the next request. The error wraps ErrClosed, or that of ctx.
func (l *Listener) Accept(ctx context.Context) (*Request, error) {
	return accept(ctx, l.ready, &l.addr, l.next)
}

// accept waits until next returns a request or an error.
func accept(ctx context.Context, ready *task.Bell, addr *Addr, next func() (*Request, error)) (*Request, error) {
	err := ctx.Err()
	if err != nil {
		err = context.Cause(ctx)
	}
	for err == nil {
		if r, err := next(); r != nil || err != nil {
			return r, err
		}
		// A call that has taken a ring looks, even if ctx has ended
		// meanwhile: no other one will.
		err = ready.Wait(ctx)
	}
	return nil, fmt.Errorf("cm: accept on %v: %w", addr, err)
}

func (l *Listener) next() (*Request, error) {
	r, err := l.poll()
	if err != nil {
		l.ready.Ring() // for the next Accept that waits
	}
	return r, err
}

// poll takes a request, if there is one.
func (l *Listener) poll() (*Request, error) {
	l.m.lock()
	defer l.m.unlock()
	if l.closed {
		return nil, fmt.Errorf("cm: accept on %v: %w", &l.addr, ErrClosed)
	}
	r := l.queue.Front()
	if r == nil {
		return nil, nil
	}
	if id, ok := l.m.agent.Claimant(l.service()); ok {
		if c, is := l.m.ids[id].(*Request); is && c.queued.In() {
			r = c
		}
	}
	l.queue.Remove(&r.queued)
	if r.answered {
		l.ended--
	} else if !l.m.closed {
		l.m.agent.Take(r.id)
	}
	if l.queue.Len() > 0 {
		l.ready.Ring() // another Accept may wait
	}
	return r, nil
}

// Close ends the listener. Requests that still wait for Accept are rejected;
// those that Accept has returned can still be answered.
func (l *Listener) Close() error {
	l.m.lock()
	defer l.m.unlock()
	if l.closed {
		return nil
	}
	l.m.unlisten(l.service())
	l.entrance.close(0)
	for l.queue.Len() > 0 {
		r := l.queue.PopFront()
		if r.answered {
			continue
		}
		r.answered = true
		if r.number != 0 {
			r.decline()
		} else {
			l.m.release(r.id)
		}
	}
	l.m.ports.give(l.cfg.Space, l.addr.Port())
	l.over()
	return nil
}

// over implements sink.
func (l *Listener) over() {
	if !l.closed {
		l.closed = true
		l.ready.Ring()
	}
}

// event implements sink: a request has come.
func (l *Listener) event(e *agent.Event) {
	var a asked
	reason, info := a.of(l, e)
	if reason == 0 && l.entrance.admit(l.m, &e.Path) != nil {
		reason = ReasonConsumer // meanwhile
	}
	if reason != 0 {
		verbs.HCA(l.m.dev).ReleaseQPN(e.QPN)
		l.m.refuse(e, reason, info)
		return
	}
	r := newRequest(l, e, &a)
	l.m.ids[r.id] = r
	l.queue.PushBack(&r.queued)
	l.ready.Ring()
}
