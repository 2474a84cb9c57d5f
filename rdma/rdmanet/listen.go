package rdmanet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"github.com/gosoftroce/rocev2/internal/devices"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/rdma/rdmanet/rsocket"
	"github.com/gosoftroce/rocev2/rdma/secure"
	"github.com/gosoftroce/rocev2/verbs"
)

// ListenConfig says how a Listener and its connections are made. The zero value
// works.
type ListenConfig struct {
	Options

	// Device is the device to use, which stays open as long as the listener
	// and its connections. By default the devices of this process on the
	// addresses are used, or opened there.
	Device *verbs.Device

	// Backlog is how many requests may wait for Accept. 0 means 1024.
	Backlog int

	// MaxConns is how many connections there may be at once; further ones
	// are rejected. 0 means 65536.
	MaxConns int

	// TLS, if set, has all connections secured, as Dialer.TLS has it; it
	// needs a certificate. The handshake of a peer that does not answer
	// ends after 10 s, and holds up no other. The peer's certificates are
	// in Conn.ConnectionState; the configuration's ClientAuth and
	// VerifyConnection say which peers there may be. A peer without TLS is
	// not told why its connection ends, as the protocol has no word for
	// that: its Read returns io.EOF.
	TLS *tls.Config

	// OnNotSecured, if set, is called when the handshake of a client has
	// failed: Accept passes such a client over. It must return at once.
	OnNotSecured func(client net.Addr, err error)
}

// Listener takes connections, a net.Listener. Its methods may be called from
// any goroutine.
type Listener struct {
	cfg   ListenConfig
	uses  []use // of each device
	cm    *cm.Listeners
	conns atomic.Int64 // that are open
	close sync.Once

	secures secure.Queue[*cm.Request, *Conn]
}

// Listen takes connections on a local address, with a zero ListenConfig. See
// ListenConfig.Listen.
func Listen(network, address string) (*Listener, error) {
	return new(ListenConfig).Listen(context.Background(), network, address)
}

// Listen takes connections on local addresses: "192.0.2.1:7471",
// "[2001:db8::1]:7471", or an interface or a name such as "localhost" in place
// of the address. A name stands for each address that it has. No address, as in
// ":7471", and an unspecified one stand for all addresses of this host, as they
// are now. Of several addresses those that cannot be had, because another
// process has their UDP port 4791, are left out; see Listener.Addrs. If that is
// all of them, the error says why for each.
//
// Port 0 stands for one that is free; see Listener.Addr. The networks are those
// of Dialer.DialContext. The error is a *net.OpError.
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
	l.secures.Request, l.secures.Accept, l.secures.Close = l.request, l.secure, func(c *Conn) { c.Close() }
	var err error
	if l.cfg.Options, err = lc.Options.withDefaults(); err != nil {
		return nil, err
	}
	if l.cfg.MaxConns == 0 {
		l.cfg.MaxConns = 1 << 16
	}
	fits := families[network]
	if fits == nil {
		return nil, unknownNetwork(network)
	}
	place, err := devices.PlaceOf(ctx, fits, address)
	if err != nil {
		return nil, err
	}
	devs, refs, at, err := place.Use(lc.Device)
	if err != nil {
		return nil, err
	}
	for i, dev := range devs {
		l.uses = append(l.uses, use{dev, refs[i]})
	}
	if l.cm, err = cm.ListenAll(devs, at, cm.ListenConfig{Backlog: lc.Backlog}); err != nil {
		l.end()
		return nil, err
	}
	l.cm.Greet(l.greet)
	return l, nil
}

// Addr returns the address, with the port that was chosen. It is the
// unspecified address, as "[::]:7471", where the listener is on all addresses
// of the host, and else that of the first device.
func (l *Listener) Addr() net.Addr { return l.cm.Addr() }

// Addrs returns the addresses that the listener is on, those of its devices.
func (l *Listener) Addrs() []net.Addr { return l.cm.Addrs() }

// Device returns the device that the listener uses, of several the first.
func (l *Listener) Device() *verbs.Device { return l.uses[0].dev }

// useOf returns the use of a device.
func (l *Listener) useOf(dev *verbs.Device) use {
	for _, u := range l.uses {
		if u.dev == dev {
			return u
		}
	}
	return use{dev: dev}
}

// end ends the use of the devices.
func (l *Listener) end() {
	for _, u := range l.uses {
		u.end()
	}
}

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
	if l.cfg.TLS != nil {
		c, err := l.secures.Next(ctx)
		if err != nil && ctx.Err() != nil {
			err = &net.OpError{Op: "accept", Net: Network, Addr: l.Addr(), Err: err}
		}
		return c, err
	}
	for {
		r, err := l.request(ctx)
		if err != nil {
			return nil, err
		}
		if c := l.take(ctx, r); c != nil {
			return c, nil
		}
	}
}

// request returns the next request.
func (l *Listener) request(ctx context.Context) (*cm.Request, error) {
	r, err := l.cm.Accept(ctx)
	if err == nil {
		return r, nil
	}
	if errors.Is(err, cm.ErrClosed) {
		err = net.ErrClosed
	}
	return nil, &net.OpError{Op: "accept", Net: Network, Addr: l.Addr(), Err: err}
}

// secure accepts a request and secures the connection.
func (l *Listener) secure(ctx context.Context, r *cm.Request) (*Conn, error) {
	c := l.take(ctx, r)
	if c == nil {
		return nil, net.ErrClosed
	}
	return l.handshake(ctx, c)
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
// configuration Options and TLS count. A request of a peer that does not speak
// the protocol is rejected, with an error.
func (lc *ListenConfig) Accept(ctx context.Context, r *cm.Request) (*Conn, error) {
	l := &Listener{cfg: *lc}
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
		if c, err = l.accept(ctx, r, &peer); err == nil && l.cfg.TLS != nil {
			c, err = l.handshake(ctx, c)
		}
		if err == nil {
			return c, nil
		}
	}
	return nil, &net.OpError{Op: "accept", Net: Network, Addr: r.RemoteAddr(), Err: err}
}

func (l *Listener) accept(ctx context.Context, r *cm.Request, peer *rsocket.Block) (*Conn, error) {
	u, err := l.useOf(r.Device()).again()
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
	made := newConn(ep, acceptedLink{cmLink{c, u}, l}, l.cfg.Options, peer)
	if l.cfg.TLS != nil {
		made.secured = greeted(peer, &block)
	}
	return made, nil
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
		if l.cfg.TLS != nil {
			l.secures.End()
		}
		l.end()
	})
	return err
}
