package rdmanet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/gosoftroce/rocev2/cm"
	"github.com/gosoftroce/rocev2/internal/devices"
	"github.com/gosoftroce/rocev2/rdmanet/rsocket"
	"github.com/gosoftroce/rocev2/verbs"
)

// ListenConfig says how a Listener and its connections are made. The zero value
// works.
type ListenConfig struct {
	Options

	// Device is the device to use, which stays open as long as the listener
	// and its connections. By default the device of this process on the
	// address is used, or one is opened there.
	Device *verbs.Device

	// Backlog is how many requests may wait for Accept. 0 means 1024.
	Backlog int

	// MaxConns is how many connections there may be at once; further ones
	// are rejected. 0 means 65536.
	MaxConns int
}

// Listener takes connections, a net.Listener. Its methods may be called from
// any goroutine.
type Listener struct {
	cfg   ListenConfig
	use   use
	cm    *cm.Listener
	conns atomic.Int64 // that are open
	close sync.Once
}

// Listen takes connections on a local address, with a zero ListenConfig. See
// ListenConfig.Listen.
func Listen(network, address string) (*Listener, error) {
	return new(ListenConfig).Listen(context.Background(), network, address)
}

// Listen takes connections on a local address: "192.0.2.1:7471",
// "[2001:db8::1]:7471", or a name or an interface in place of the address. Port
// 0 stands for one that is free; see Listener.Addr. The networks are those of
// Dialer.DialContext. The error is a *net.OpError.
func (lc *ListenConfig) Listen(ctx context.Context, network, address string) (*Listener, error) {
	l, err := lc.listen(ctx, network, address)
	if err != nil {
		return nil, &net.OpError{Op: "listen", Net: network, Err: fmt.Errorf("%s: %w", address, err)}
	}
	return l, nil
}

func (lc *ListenConfig) listen(ctx context.Context, network, address string) (*Listener, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	l := &Listener{cfg: *lc}
	var err error
	if l.cfg.Options, err = lc.Options.withDefaults(); err != nil {
		return nil, err
	}
	if l.cfg.MaxConns == 0 {
		l.cfg.MaxConns = 1 << 16
	}
	local, err := localAddr(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if l.use = (use{dev: lc.Device}); lc.Device == nil {
		ref, err := devices.Local(local.Addr())
		if err != nil {
			return nil, err
		}
		l.use = use{ref.Device(), ref}
	}
	if l.cm, err = cm.Listen(l.use.dev, local, cm.ListenConfig{Backlog: lc.Backlog}); err != nil {
		l.use.end()
		return nil, err
	}
	l.cm.Greet(l.greet)
	return l, nil
}

// localAddr reads the address to listen on.
func localAddr(ctx context.Context, network, address string) (none netip.AddrPort, err error) {
	fits := families[network]
	if fits == nil {
		return none, net.UnknownNetworkError(network)
	}
	host, service, err := net.SplitHostPort(address)
	if err != nil {
		return none, err
	}
	if host == "" {
		return none, errors.New("no local address: a device has one, so name it, or its interface")
	}
	port, err := net.DefaultResolver.LookupPort(ctx, "tcp", service)
	if err != nil {
		return none, err
	}
	a, err := verbs.ResolveAddr(host)
	if err != nil {
		return none, err
	}
	if !fits(a.Unmap()) {
		return none, fmt.Errorf("%v does not fit the network %s", a, network)
	}
	return netip.AddrPortFrom(a, uint16(port)), nil
}

// Addr returns the address, with the port that was chosen.
func (l *Listener) Addr() net.Addr { return l.cm.Addr() }

// Device returns the device that the listener uses.
func (l *Listener) Device() *verbs.Device { return l.use.dev }

// Accept waits for the next connection, a *Conn.
func (l *Listener) Accept() (net.Conn, error) {
	c, err := l.AcceptContext(context.Background())
	if err != nil {
		return nil, err // not a nil *Conn
	}
	return c, nil
}

// AcceptContext waits for the next connection, whose peer has shown that it
// gets answers: before, nothing is made for it. Requests of peers that do not
// speak the protocol are rejected and passed over. The error is a *net.OpError
// that wraps net.ErrClosed, or that of ctx.
func (l *Listener) AcceptContext(ctx context.Context) (*Conn, error) {
	for {
		r, err := l.cm.Accept(ctx)
		if err != nil {
			if errors.Is(err, cm.ErrClosed) {
				err = net.ErrClosed
			}
			return nil, &net.OpError{Op: "accept", Net: Network, Addr: l.Addr(), Err: err}
		}
		if c := l.take(ctx, r); c != nil {
			return c, nil
		}
	}
}

// take accepts a request, or rejects it and returns nil.
func (l *Listener) take(ctx context.Context, r *cm.Request) *Conn {
	peer, err := rsocket.ParseBlock(r.PrivateData())
	if err != nil {
		r.Reject([]byte(err.Error()))
		return nil
	}
	if l.conns.Add(1) > int64(l.cfg.MaxConns) {
		l.conns.Add(-1)
		r.RejectReason(cm.ReasonNoResources, nil)
		return nil
	}
	c, err := l.accept(ctx, r, &peer)
	if err != nil {
		r.RejectReason(cm.ReasonNoResources, nil) // else the peer would wait
		l.conns.Add(-1)
		return nil
	}
	return c
}

// Accept makes a connection of a request that a listener of package cm has
// taken, for a program that has several services on one port. Of the
// configuration Options count. A request of a peer that does not speak the
// protocol is rejected, with an error.
func (lc *ListenConfig) Accept(ctx context.Context, r *cm.Request) (*Conn, error) {
	l := &Listener{cfg: *lc, use: use{dev: r.Device()}}
	var peer rsocket.Block
	var err error
	if l.cfg.Options, err = lc.Options.withDefaults(); err == nil {
		peer, err = rsocket.ParseBlock(r.PrivateData())
	}
	if err != nil {
		r.Reject([]byte(err.Error()))
	} else {
		l.conns.Add(1)
		var c *Conn
		if c, err = l.accept(ctx, r, &peer); err == nil {
			return c, nil
		}
	}
	return nil, &net.OpError{Op: "accept", Net: Network, Addr: r.RemoteAddr(), Err: err}
}

func (l *Listener) accept(ctx context.Context, r *cm.Request, peer *rsocket.Block) (*Conn, error) {
	u, err := l.use.again()
	if err != nil {
		return nil, err
	}
	params := r.Params()
	ep, err := newEndpoint(u.dev, l.cfg.Options, r.QPN(), promised(*r.RemoteAddr().(*cm.Addr), &params))
	if err != nil {
		u.end()
		return nil, err
	}
	block := ep.block(l.cfg.Options)
	c, err := r.Accept(ctx, ep.qp, accepting(&block))
	if err != nil {
		ep.close()
		u.end()
		return nil, err
	}
	return newConn(ep, acceptedLink{cmLink{c, u}, l}, l.cfg.Options, peer), nil
}

// acceptedLink is a link that counts among those of a listener.
type acceptedLink struct {
	cmLink
	l *Listener
}

func (l acceptedLink) Close() error {
	l.l.conns.Add(-1)
	return l.cmLink.Close()
}

// Close ends the listener. Its connections live on.
func (l *Listener) Close() error {
	err := error(&net.OpError{Op: "close", Net: Network, Addr: l.Addr(), Err: net.ErrClosed})
	l.close.Do(func() {
		err = l.cm.Close()
		l.use.end()
	})
	return err
}
