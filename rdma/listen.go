package rdma

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gosoftroce/rocev2/internal/devices"
	"github.com/gosoftroce/rocev2/memreg/mapping"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/rdma/secure"
	"github.com/gosoftroce/rocev2/verbs"
)

// ListenConfig says how a Listener and its connections are made. The zero value
// works.
type ListenConfig struct {
	// Device is the device to use, which stays open as long as the
	// listener. By default the devices of this process on the addresses are
	// used, or opened there.
	Device *verbs.Device

	// MessageSize is the longest message that this side takes, in bytes:
	// 512 to 1 GiB. 0 means 64 KiB. Memory that no message has touched
	// costs nothing.
	MessageSize int

	// Depth is how many requests of a connection may be outstanding, 8 to
	// 4096. 0 means 64.
	Depth int

	// KeepAlive is how long a connection is without a sign of the peer, at
	// most, until the peer is asked for one. It is asked after half of that
	// at the earliest. If it does not answer, for about a second, the
	// connection ends with ErrPeerGone. 0 means 30 s; a negative number
	// means never.
	KeepAlive time.Duration

	// Backlog is how many requests for connections may wait. 0 means 1024.
	Backlog int

	// MaxConns is how many connections there may be at once; further ones
	// are rejected. 0 means 65536.
	MaxConns int

	// TLS, if set, has all connections secured, as Dialer.TLS has it; it
	// needs a certificate. Peers without TLS are refused. The peer's
	// certificates are in Conn.ConnectionState; the configuration's
	// ClientAuth and VerifyConnection say which peers there may be.
	TLS *tls.Config

	// AdmitClear, if set, has peers without TLS taken, too, beside those
	// whose connections are secured: it is asked about each as Admit is,
	// which comes first. Such a peer gets regions that are not Secured
	// alone. It needs TLS.
	AdmitClear func(client netip.Addr) error

	// OnNotSecured, if set, is called when the handshake of a client has
	// failed: Accept passes such a client over. It must return at once.
	OnNotSecured func(client net.Addr, err error)

	// PrivateData is for the peers whose connections are accepted, at most
	// 180 bytes; see Request.Accept.
	PrivateData []byte

	// Foreign says that no peer speaks the protocol of this package, also
	// if its private data looks so.
	Foreign bool

	// Admit, if set, is asked about each request before anything is made
	// for it: an error refuses the peer, which is told its text. foreign
	// says that the peer does not speak the protocol of this package.
	// Attackers can forge any number of requests, so the call must return
	// at once, and use nothing of the listener.
	Admit func(client netip.Addr, foreign bool) error

	// OnRegion, if set, is called when a client has asked for a region by
	// its name, and whether it got it: it does not if there is no such
	// region, or if it may not have it. The call must return at once, and
	// use nothing of the listener or the connection.
	OnRegion func(client netip.Addr, name string, granted bool)

	regions []namedRegion
}

type namedRegion struct {
	name   string
	region Region
}

// Export has the listeners that are made from now on export a region. The error
// of what is not possible is that of Listen.
func (lc *ListenConfig) Export(name string, r Region) {
	lc.regions = append(lc.regions, namedRegion{name, r})
}

func tuningOf(size, depth int, keepAlive time.Duration) (tuning, error) {
	t := tuning{size: size, depth: depth, keepAlive: keepAlive}
	if size == 0 {
		t.size = defaultMessage
	}
	if depth == 0 {
		t.depth = defaultDepth
	}
	if keepAlive == 0 {
		t.keepAlive = defaultKeepAlive
	}
	switch {
	case t.size < minMessage || t.size > maxMessage:
		return t, &verbs.RangeError{What: "MessageSize", Got: t.size, Min: minMessage, Max: maxMessage}
	case t.depth < 2*reserved || t.depth > maxDepth:
		return t, &verbs.RangeError{What: "Depth", Got: t.depth, Min: 2 * reserved, Max: maxDepth}
	case t.keepAlive > 0 && t.keepAlive < time.Millisecond:
		return t, fmt.Errorf("KeepAlive is %v, and must be at least 1 ms", keepAlive)
	}
	t.size = (t.size + 63) &^ 63
	return t, nil
}

const maxDepth = 4096

// Listener takes connections. Its methods may be called from any goroutine.
type Listener struct {
	cfg   ListenConfig
	doors []*door // one for each device; with AdmitClear two: in clear, then secured
	cm    *cm.Listeners
	conns atomic.Int64

	mu        sync.Mutex
	open      map[*Conn]struct{}
	accepting sync.WaitGroup // calls of accept; none is added after Close
	closed    chan struct{}  // made by Close; closed when that is over

	secures  secure.Queue[*Request, *Conn]
	greeting sync.Mutex
	greets   bool // requests are answered before the program sees them
	asks     bool // never, because the program decides about them

	exporting sync.Mutex // regions are the same on each device
	fresh     map[string]*mapping.Mapping
}

// Listen takes connections on local addresses: "192.0.2.1:7471",
// "[2001:db8::1]:7471", or an interface or a name such as "localhost" in place
// of the address. A name stands for each address that it has. No address, as in
// ":7471", and an unspecified one stand for all addresses of this host, as they
// are now: "0.0.0.0:7471" for those of IPv4 alone. Of several addresses those
// that cannot be had, because another process has their UDP port 4791, are left
// out; see Listener.Addrs. If that is all of them, the error says why for each.
//
// Port 0 stands for one that is free; see Listener.Addr.
func Listen(ctx context.Context, addr string) (*Listener, error) {
	return new(ListenConfig).Listen(ctx, addr)
}

// Listen is as the function Listen.
func (lc *ListenConfig) Listen(ctx context.Context, addr string) (*Listener, error) {
	l, err := lc.listen(ctx, addr)
	if err != nil {
		return nil, &OpError{Op: "listen on " + addr, Err: err}
	}
	return l, nil
}

func (lc *ListenConfig) listen(ctx context.Context, addr string) (*Listener, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if lc.TLS != nil && lc.Foreign {
		return nil, errors.New("TLS is for peers that speak the protocol of this package, and they are said to be Foreign")
	}
	if lc.AdmitClear != nil && lc.TLS == nil {
		return nil, errors.New("AdmitClear is for listeners with TLS: without, all peers are in clear")
	}
	t, err := tuningOf(lc.MessageSize, lc.Depth, lc.KeepAlive)
	if err != nil {
		return nil, err
	}
	if len(lc.PrivateData) > maxReplyData {
		return nil, &verbs.RangeError{What: "length of PrivateData", Got: len(lc.PrivateData), Max: maxReplyData}
	}
	place, err := devices.PlaceOf(ctx, netip.Addr.IsValid, addr)
	if err != nil {
		return nil, err
	}
	l := &Listener{cfg: *lc, open: map[*Conn]struct{}{}}
	l.secures.Request = l.request
	l.secures.Close = func(c *Conn) { c.Close() }
	l.secures.Accept = func(ctx context.Context, r *Request) (*Conn, error) {
		c, err := r.Accept(ctx, l.cfg.PrivateData)
		if err != nil {
			r.Reject(nil) // if it is not answered: the peer would wait
		}
		return c, err
	}
	if l.cfg.MaxConns == 0 {
		l.cfg.MaxConns = 1 << 16
	}
	if err = l.start(&place, t); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func (l *Listener) start(place *devices.Place, t tuning) error {
	devs, refs, at, err := place.Use(l.cfg.Device)
	if err != nil {
		return err
	}
	for i, dev := range devs {
		if err := l.openDoors(dev, refs[i], t); err != nil {
			for _, r := range refs[i+1:] {
				r.Release()
			}
			return err
		}
	}
	for _, r := range l.cfg.regions {
		if _, err := l.export(r.name, r.region); err != nil {
			return fmt.Errorf("export region %q: %w", r.name, err)
		}
	}
	l.cm, err = cm.ListenAll(devs, at, cm.ListenConfig{Backlog: l.cfg.Backlog})
	return err
}

// Addr returns the address, with the port that was chosen. It is the
// unspecified address, as "[::]:7471", where the listener is on all addresses
// of the host, and else that of the first device.
func (l *Listener) Addr() net.Addr { return l.cm.Addr() }

// Addrs returns the addresses that the listener is on, those of its devices.
func (l *Listener) Addrs() []net.Addr { return l.cm.Addrs() }

// Accept waits for the next connection. From the first call on the listener
// answers requests itself, at once: nothing is made for a peer before it has
// shown that it gets answers. A peer whose request comes to nothing is passed
// over. The error wraps net.ErrClosed, or that of ctx.
func (l *Listener) Accept(ctx context.Context) (*Conn, error) {
	l.greet(true)
	if l.cfg.TLS != nil {
		c, err := l.secures.Next(ctx)
		if err != nil && ctx.Err() != nil {
			err = &OpError{Op: "accept", Err: err}
		}
		return c, err
	}
	for {
		r, err := l.request(ctx)
		if err != nil {
			return nil, err
		}
		c, err := r.Accept(ctx, l.cfg.PrivateData)
		if err == nil {
			return c, nil
		}
		r.Reject(nil) // if it is not answered: the peer would wait
		if ctx.Err() != nil {
			return nil, err
		}
	}
}

// Request waits for the next request for a connection, which the program
// accepts or rejects. A listener has either Accept called or Request. Where
// strangers can send requests prefer Accept with ListenConfig.Admit: Request
// returns those that are forged, too. The error is as that of Accept.
func (l *Listener) Request(ctx context.Context) (*Request, error) {
	l.greet(false)
	return l.request(ctx)
}

func (l *Listener) request(ctx context.Context) (*Request, error) {
	for {
		req, err := l.cm.Accept(ctx)
		if errors.Is(err, cm.ErrClosed) {
			err = errClosed
		}
		if err != nil {
			return nil, &OpError{Op: "accept", Err: err}
		}
		r := &Request{l: l, req: req}
		r.hello, r.native, err = l.admit(client(req.RemoteAddr()), req.PrivateData())
		if err == nil {
			return r, nil
		}
		if said := (*RejectedError)(nil); errors.As(err, &said) {
			req.RejectReason(said.Reason, said.PrivateData)
		} else {
			req.RejectReason(cm.ReasonConsumer, []byte(err.Error()))
		}
	}
}

// Close ends the listener, its connections, and its exports. It waits for the
// Close of a connection that is under way, and further calls wait for the first
// one.
func (l *Listener) Close() error {
	l.mu.Lock()
	if over := l.closed; over != nil {
		l.mu.Unlock()
		<-over
		return nil
	}
	l.closed = make(chan struct{})
	defer close(l.closed)
	open := l.open
	l.open = nil
	l.mu.Unlock()
	if l.cm != nil {
		l.cm.Close()
	}
	if l.cfg.TLS != nil {
		l.secures.End()
	}
	var wg sync.WaitGroup
	for c := range open {
		wg.Go(func() { c.Close() })
	}
	wg.Wait()
	l.accepting.Wait()
	for _, d := range slices.Backward(l.doors) { // the first of a device has its reference
		d.close()
	}
	l.dropMemory()
	return nil
}

// Request is a peer's wish for a connection. Answer it once, by Accept or
// Reject.
type Request struct {
	l      *Listener
	req    *cm.Request
	hello  hello
	native bool
}

// LocalAddr returns the address that the request has come to.
func (r *Request) LocalAddr() net.Addr { return r.req.LocalAddr() }

// RemoteAddr returns the address of the peer.
func (r *Request) RemoteAddr() net.Addr { return r.req.RemoteAddr() }

// PrivateData returns what the peer has given the request on the way; see
// Conn.PrivateData.
func (r *Request) PrivateData() []byte { return r.hello.user }

// Foreign reports whether the peer does not speak the protocol of this package.
func (r *Request) Foreign() bool { return !r.native }

// Reject refuses the connection, with at most 148 bytes for the peer: see
// RejectedError.
func (r *Request) Reject(data []byte) error { return r.req.Reject(data) }

// Accept makes the connection. private is for the peer, at most 180 bytes, or
// 196 for a foreign one.
func (r *Request) Accept(ctx context.Context, private []byte) (*Conn, error) {
	c, err := r.accept(ctx, private)
	if err != nil {
		return nil, &OpError{Op: "accept", Remote: r.RemoteAddr(), Err: err}
	}
	return c, nil
}

func (r *Request) accept(ctx context.Context, private []byte) (*Conn, error) {
	l := r.l
	if most := map[bool]int{true: maxReplyData, false: maxReplyData + helloLen}[r.native]; len(private) > most {
		return nil, &verbs.RangeError{What: "length of the private data", Got: len(private), Max: most}
	}
	if !l.enter() {
		r.req.RejectReason(cm.ReasonNoResources, nil)
		return nil, errClosed
	}
	defer l.accepting.Done()
	if l.conns.Add(1) > int64(l.cfg.MaxConns) { // others were quicker
		l.conns.Add(-1)
		r.req.RejectReason(cm.ReasonNoResources, nil)
		return nil, verbs.ErrNoResources
	}
	c, err := r.connect(ctx, private)
	if err != nil {
		l.conns.Add(-1)
		return nil, err
	}
	c.onClose = func() { l.forget(c) }
	l.mu.Lock()
	closed := l.closed != nil
	if !closed {
		l.open[c] = struct{}{}
	}
	l.mu.Unlock()
	if closed {
		c.Close()
		return nil, errClosed
	}
	if !r.hello.secured {
		return c, nil
	}
	if err := l.secure(ctx, c); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// enter has Close wait for the caller, which calls accepting.Done, and reports
// whether the listener is open.
func (l *Listener) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed != nil {
		return false
	}
	l.accepting.Add(1)
	return true
}

// connect makes the connection, or rejects the request.
func (r *Request) connect(ctx context.Context, private []byte) (*Conn, error) {
	l := r.l
	c, err := newNumbered(l.door(r.req.Device(), r.hello.secured).hub, r.req.QPN())
	if err != nil {
		r.req.RejectReason(cm.ReasonNoResources, nil)
		return nil, err
	}
	c.core.client = client(r.RemoteAddr())
	c.private = slices.Clone(r.hello.user)
	c.core.greeted(r.hello, r.native)
	if err := c.core.in.listen(c.core.in.firstReceives()); err != nil {
		c.discard()
		r.req.RejectReason(cm.ReasonNoResources, nil)
		return nil, err
	}
	if r.native {
		private = l.hello(r.hello.secured, private)
	}
	if r.hello.secured {
		c.core.secured = &secured{}
	}
	conn, err := r.req.Accept(ctx, c.core.qp, acceptConfig(r.hello.secured, private))
	if err != nil {
		c.discard()
		return nil, err
	}
	c.core.setLink(cmLink{conn})
	return c, nil
}

func (l *Listener) forget(c *Conn) {
	l.conns.Add(-1)
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, c)
}
