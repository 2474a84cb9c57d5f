package message

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"

	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
)

// Listener takes control connections on a port, and connections for data from
// the peers that are expected to make them. It implements net.Listener for the
// first kind.
type Listener struct {
	ln     *cm.Listener
	ctx    context.Context
	end    context.CancelFunc
	closed chan struct{} // no control connections any more
	once   sync.Once
	wg     sync.WaitGroup

	arrivals chan *Conn

	mu     sync.Mutex
	claims map[netip.Addr]*Claim
}

// Claim is the expectation of connections for data from a peer.
type Claim struct {
	l        *Listener
	from     netip.Addr
	requests chan *cm.Request
}

// Listen listens on a port of dev. Call Shut at the end.
func Listen(dev *verbs.Device, at netip.AddrPort) (*Listener, error) {
	ln, err := cm.Listen(dev, at, cm.ListenConfig{})
	if err != nil {
		return nil, err
	}
	l := &Listener{ln: ln, closed: make(chan struct{}), arrivals: make(chan *Conn), claims: map[netip.Addr]*Claim{}}
	l.ctx, l.end = context.WithCancel(context.Background())
	ln.Greet(l.greet)
	l.wg.Go(l.run)
	return l, nil
}

// run hands requests to those who expect them, and makes control connections of
// the others.
func (l *Listener) run() {
	for {
		r, err := l.ln.Accept(l.ctx)
		if err != nil {
			return
		}
		if l.claimed(r) {
			continue
		}
		select {
		case <-l.closed:
			r.RejectReason(cm.ReasonNoResources, nil) // it may be gone
			continue
		default:
		}
		c, err := accept(l.ctx, r)
		if err != nil {
			continue
		}
		select {
		case l.arrivals <- c:
		case <-l.closed:
			c.Close()
		}
	}
}

// greet implements cm.Greeter. The queue pairs of connections for data are
// there already; only peers with a control connection have them.
func (l *Listener) greet(g *cm.Greeting) (cm.AcceptConfig, error) {
	if l.claimOf(g.Remote.Addr()) != nil {
		return cm.AcceptConfig{}, cm.ErrUndecided
	}
	select {
	case <-l.closed:
		return cm.AcceptConfig{}, &cm.RejectedError{Reason: cm.ReasonNoResources}
	default:
		return cm.AcceptConfig{}, nil
	}
}

func (l *Listener) claimOf(from netip.Addr) *Claim {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.claims[from.WithZone("")]
}

// claimed gives a request to the claim that expects it. One that was answered
// before there was a claim is of a control connection.
func (l *Listener) claimed(r *cm.Request) bool {
	if r.QPN() != 0 {
		return false
	}
	mine, room := l.hand(r)
	if mine && !room {
		r.RejectReason(cm.ReasonNoResources, nil) // it may be gone
	}
	return mine
}

// hand reports whether a claim expects a request, and has room for it.
func (l *Listener) hand(r *cm.Request) (mine, room bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.claims[hostOf(r.RemoteAddr())]
	if c == nil {
		return false, false
	}
	select {
	case c.requests <- r:
		return true, true
	default:
		return true, false
	}
}

func hostOf(a net.Addr) netip.Addr { return a.(*cm.Addr).Addr().WithZone("") }

// Accept waits for a control connection. After Close the error wraps
// net.ErrClosed.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.arrivals:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Addr returns the address: a *cm.Addr.
func (l *Listener) Addr() net.Addr { return l.ln.Addr() }

// Close ends the taking of control connections. Those that are open stay, and
// connections for data are still taken.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Shut ends the listener.
func (l *Listener) Shut() {
	l.Close()
	l.end()
	l.ln.Close()
	l.wg.Wait()
}

// Claim expects up to n connections for data from the peer of a control
// connection, until Release. There is one claim for a peer at a time.
func (l *Listener) Claim(peer net.Addr, n int) (*Claim, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	from := hostOf(peer)
	if l.claims[from] != nil {
		return nil, errors.New("another client of that host connects its queue pairs just now: try again")
	}
	c := &Claim{l, from, make(chan *cm.Request, n)}
	l.claims[from] = c
	return c, nil
}

// Next waits for the next request.
func (c *Claim) Next(ctx context.Context) (*cm.Request, error) {
	select {
	case r := <-c.requests:
		return r, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Release ends the expectation. Requests that were not taken are rejected.
func (c *Claim) Release() {
	c.l.mu.Lock()
	delete(c.l.claims, c.from)
	c.l.mu.Unlock()
	for {
		select {
		case r := <-c.requests:
			r.RejectReason(cm.ReasonNoResources, nil) // it may be gone
		default:
			return
		}
	}
}
