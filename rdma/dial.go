package rdma

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/gosoftroce/rocev2/internal/devices"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/rdma/secure"
	"github.com/gosoftroce/rocev2/verbs"
)

// Dialer says how connections are made. The zero value works.
type Dialer struct {
	// Device is the device to use. By default it is that of this process on
	// the address by which packets to the peer leave, or one is opened
	// there. Towards an IPv4 address of this host, which is the server's
	// to have, a device on another loopback address serves. IPv6 has none.
	// A port that has an owner is shared with the server.
	Device *verbs.Device

	MessageSize int           // see ListenConfig
	Depth       int           // see ListenConfig
	KeepAlive   time.Duration // see ListenConfig

	// TLS, if set, has the connection secured: both sides are authenticated
	// as with crypto/tls, and all packets are encrypted (package
	// transport/psp). The listener needs a TLS configuration, too. A
	// ServerName of "" stands for the host that is dialled. There is no
	// falling back: what cannot be secured is an error. A Device of the
	// program's needs verbs.Config.Sealing. A KeyLogWriter gets the keys of
	// the packets, too: with them, rocev2 dump opens a capture.
	TLS *tls.Config

	// PrivateData is for the listener, at most 40 bytes; 56 if Foreign. It
	// goes in clear, and is not authenticated, also with TLS.
	PrivateData []byte

	// Foreign says that the listener does not speak the protocol of this
	// package, so that nothing of it is in the private data. Without it
	// such a listener is recognised by its answer.
	Foreign bool

	// WaitForServer waits, as long as the context allows, while the port
	// is closed or the peer does not answer. Without it those are errors.
	WaitForServer bool
}

// RejectedError is the error of a request that the peer has rejected:
// errors.As finds it.
type RejectedError = cm.RejectedError

// Dial connects to a listener: "192.0.2.1:7471", or a name in place of the
// address, of which each address is tried. No address, as in ":7471", is this
// host. The error wraps a *RejectedError, or that of ctx, or says what is
// wrong. If the port is closed, errors.Is(err, syscall.ECONNREFUSED) holds;
// that shows at once if the peer's host says so. See cm.Dial and
// Dialer.WaitForServer.
func Dial(ctx context.Context, addr string) (*Conn, error) {
	return new(Dialer).Dial(ctx, addr)
}

// Dial is as the function Dial.
func (d *Dialer) Dial(ctx context.Context, addr string) (*Conn, error) {
	c, err := d.dial(ctx, addr)
	if err != nil {
		return nil, &OpError{Op: "dial " + addr, Err: err}
	}
	return c, nil
}

func (d *Dialer) dial(ctx context.Context, addr string) (*Conn, error) {
	t, err := tuningOf(d.MessageSize, d.Depth, d.KeepAlive)
	if err != nil {
		return nil, err
	}
	most := maxRequestData
	if d.Foreign {
		most += helloLen
	}
	if len(d.PrivateData) > most {
		return nil, &verbs.RangeError{What: "length of PrivateData", Got: len(d.PrivateData), Max: most}
	}
	if d.TLS != nil && d.Foreign {
		return nil, errors.New("TLS is for listeners that speak the protocol of this package, and the listener is said to be Foreign")
	}
	remotes, err := devices.Remotes(ctx, netip.Addr.IsValid, addr)
	if err != nil {
		return nil, err
	}
	c, _, err := devices.Dial(ctx, d.WaitForServer, remotes, func(remote netip.AddrPort) (*Conn, error) {
		return d.dialOne(ctx, remote, addr, t)
	})
	return c, err
}

func (d *Dialer) dialOne(ctx context.Context, remote netip.AddrPort, addr string, t tuning) (*Conn, error) {
	shared, err := hubs.get(d.Device, remote.Addr(), t)
	if err != nil {
		return nil, err
	}
	c, err := d.connect(ctx, shared.hub, remote)
	if err != nil {
		hubs.put(shared)
		return nil, err
	}
	c.onClose = func() { hubs.put(shared) }
	if d.TLS == nil {
		return c, nil
	}
	if err := d.secure(ctx, c, addr); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (d *Dialer) connect(ctx context.Context, h *hub, remote netip.AddrPort) (*Conn, error) {
	c, err := newConn(h)
	if err != nil {
		return nil, err
	}
	if err = c.core.in.listen(baseWindow + spare); err != nil {
		c.discard()
		return nil, err
	}
	private := d.PrivateData
	if !d.Foreign {
		me := hello{secured: d.TLS != nil, credits: baseWindow, size: uint32(h.size), user: private}
		private = me.encode()
	}
	config := cm.DialConfig{PrivateData: private}
	if d.TLS != nil {
		c.core.secured = &secured{}
		config.Access = secure.Access
		if config.PathMTU, err = secure.MTU(c.core.qp, remote.Addr()); err != nil {
			c.discard()
			return nil, err
		}
	}
	conn, err := cm.Dial(ctx, c.core.qp, remote, config)
	if err != nil {
		c.discard()
		return nil, err
	}
	c.core.setLink(cmLink{conn})
	var peer hello
	native := false
	if d.Foreign {
		peer.user = conn.PrivateData()
	} else {
		peer, native, err = parseHello(conn.PrivateData())
	}
	if d.TLS != nil && err == nil && !peer.secured {
		err = ErrNotSecured
	}
	c.core.greeted(peer, native)
	c.private, c.exporter = slices.Clone(peer.user), peer.regions
	if err == nil && !native {
		err = c.core.in.listen(foreignDepth - baseWindow - spare)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// cmLink is a connection of CM.
type cmLink struct{ *cm.Conn }

func (l cmLink) Err() error {
	err := l.Conn.Err()
	switch {
	case err == nil:
		return nil
	case errors.Is(err, cm.ErrUnreachable):
		return fmt.Errorf("%w: %w", ErrPeerGone, err)
	case errors.Is(err, cm.ErrClosed):
		return errClosed
	}
	return fmt.Errorf("%w: %w", ErrPeerClosed, err)
}

// hubs are those of the connections that this process has dialled: one for each
// device and way to use it.
var hubs = hubTable{open: map[hubKey]*sharedHub{}}

type hubTable struct {
	mu   sync.Mutex
	open map[hubKey]*sharedHub
}

type hubKey struct {
	dev  *verbs.Device
	tune tuning
}

type sharedHub struct {
	key   hubKey
	hub   *hub
	ref   *devices.Ref // nil: the device is the program's
	users int
	turn  int // counts get, for the timer
}

// hubLinger is how long an unused hub is kept for the next dial.
const hubLinger = time.Second

// get returns a hub for connections to a peer, for put.
func (t *hubTable) get(dev *verbs.Device, remote netip.Addr, tune tuning) (*sharedHub, error) {
	var ref *devices.Ref
	if dev == nil {
		var err error
		if ref, err = devices.Towards(remote); err != nil {
			return nil, err
		}
		dev = ref.Device()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	key := hubKey{dev, tune}
	s := t.open[key]
	if s == nil {
		h, err := newHub(dev, tune, nil)
		if err != nil {
			if ref != nil {
				ref.Release()
			}
			return nil, err
		}
		s = &sharedHub{key: key, hub: h, ref: ref}
		t.open[key] = s
	} else if ref != nil {
		ref.Release() // the hub has one
	}
	s.users++
	s.turn++
	return s, nil
}

func (t *hubTable) put(s *sharedHub) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.users--; s.users > 0 {
		return
	}
	if s.ref == nil { // the program may close its device now
		t.closeLocked(s)
		return
	}
	turn := s.turn
	time.AfterFunc(hubLinger, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if s.users == 0 && s.turn == turn {
			t.closeLocked(s)
		}
	})
}

func (t *hubTable) closeLocked(s *sharedHub) {
	delete(t.open, s.key)
	s.hub.close()
	if s.ref != nil {
		s.ref.Release()
	}
}
