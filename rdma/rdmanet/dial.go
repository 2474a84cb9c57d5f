package rdmanet

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/gosoftroce/rocev2/internal/devices"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/rdma/rdmanet/rsocket"
	"github.com/gosoftroce/rocev2/rdma/secure"
	"github.com/gosoftroce/rocev2/verbs"
)

// Network is the name of the network of this package. Its addresses are of type
// *cm.Addr: the IP address of a device, and a port of the connection manager
// (port space TCP).
const Network = "rdma"

// Dialer says how connections are made. The zero value works.
type Dialer struct {
	Options

	// Device is the device to use. By default it is that of this process on
	// the address by which packets to the peer leave, or one is opened
	// there. Towards an IPv4 address of this host, which is the server's
	// to have, a device on another loopback address serves. IPv6 has none.
	// A port that has an owner is shared with the server.
	Device *verbs.Device

	// Timeout is how long a dial may take. 0 means that only the context
	// bounds it, and the connection manager, which gives up after a minute.
	Timeout time.Duration

	// TLS, if set, has the connection secured: both sides are authenticated
	// as with crypto/tls, and then the packets themselves are encrypted
	// (package rdma/secure). The listener needs a TLS configuration, too. A
	// ServerName of "" stands for the host that is dialled. There is no
	// falling back. A Device of the program's needs verbs.Config.Sealing.
	TLS *tls.Config

	// WaitForServer waits, as long as the context and Timeout allow, while
	// the port is closed or the peer does not answer. Without it those are
	// errors.
	WaitForServer bool
}

// Dial connects to the listener on an address, with a zero Dialer. See
// Dialer.DialContext.
func Dial(ctx context.Context, network, address string) (*Conn, error) {
	return new(Dialer).dial(ctx, network, address)
}

// DialContext connects to the listener on an address: "192.0.2.1:7471", or a
// name in place of the IP address: then each of its addresses is tried. No
// address, as in ":7471", is this host. The network is "rdma"; "rdma4" and
// "rdma6" take addresses of one IP version only. The names "tcp", "tcp4" and
// "tcp6" mean the same, so that the method fits where those of net.Dialer do,
// such as in http.Transport. The context is for the dial, and not for the
// connection.
//
// The error is a *net.OpError. If the port is closed, errors.Is(err,
// syscall.ECONNREFUSED) holds; that shows at once if the peer's host says so,
// see cm.Dial. The error wraps that of ctx, or rsocket.ErrBlock where
// the peer speaks another protocol, too.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := d.dial(ctx, network, address)
	if err != nil {
		return nil, err // not a nil *Conn
	}
	return c, nil
}

func (d *Dialer) dial(ctx context.Context, network, address string) (*Conn, error) {
	if d.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d.Timeout)
		defer cancel()
	}
	c, remote, err := d.dialAny(ctx, network, address)
	if err != nil {
		op := &net.OpError{Op: "dial", Net: network, Err: err}
		if remote.IsValid() {
			op.Addr = &cm.Addr{AddrPort: remote, Space: cm.TCP}
		}
		return nil, op
	}
	return c, nil
}

// dialAny tries the addresses of a name. The address is the one that the error
// is of.
func (d *Dialer) dialAny(ctx context.Context, network, address string) (c *Conn, remote netip.AddrPort, err error) {
	o, err := d.Options.withDefaults()
	if err != nil {
		return nil, remote, err
	}
	fits := families[network]
	if fits == nil {
		return nil, remote, unknownNetwork(network)
	}
	remotes, err := devices.Remotes(ctx, fits, address)
	if err != nil {
		return nil, remote, err
	}
	return devices.Dial(ctx, d.WaitForServer, remotes, func(remote netip.AddrPort) (*Conn, error) {
		return d.dialOne(ctx, remote, address, o)
	})
}

// unknownNetwork is the error of a network that families has not.
func unknownNetwork(name string) error {
	return fmt.Errorf("%w: there are rdma, rdma4 and rdma6, for which tcp, tcp4 and tcp6 stand as well", net.UnknownNetworkError(name))
}

func (d *Dialer) dialOne(ctx context.Context, remote netip.AddrPort, address string, o Options) (*Conn, error) {
	u := use{dev: d.Device}
	if d.Device == nil {
		ref, err := devices.Towards(remote.Addr())
		if err != nil {
			return nil, err
		}
		u = use{ref.Device(), ref}
	}
	c, err := d.dialOn(ctx, u, remote, o)
	if err != nil {
		u.end()
		return nil, err
	}
	if d.TLS != nil {
		if err := d.secure(ctx, c, address); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (d *Dialer) dialOn(ctx context.Context, u use, remote netip.AddrPort, o Options) (*Conn, error) {
	ep, err := newEndpoint(u.dev, o, 0, promise{})
	if err != nil {
		return nil, err
	}
	block := ep.block(o)
	config := cm.DialConfig{
		PrivateData: block.AppendTo(nil), Access: verbs.RemoteWrite, FlowControl: true,
		ResponderResources: verbs.Set(0), InitiatorDepth: verbs.Set(0),
	}
	if d.TLS != nil {
		if config.PathMTU, err = secure.MTU(ep.qp, remote.Addr()); err != nil {
			ep.close()
			return nil, err
		}
	}
	l, err := cm.Dial(ctx, ep.qp, remote, config)
	if err != nil {
		ep.close()
		return nil, err
	}
	peer, err := rsocket.ParseBlock(l.PrivateData())
	if err != nil {
		l.Close()
		ep.close()
		return nil, err
	}
	c := newConn(ep, cmLink{l, u}, o, &peer)
	if d.TLS != nil {
		c.secured = greeted(&block, &peer)
	}
	return c, nil
}

// use is the use of a device, by a connection or a listener.
type use struct {
	dev *verbs.Device
	ref *devices.Ref // nil: the device is the program's
}

// deviceLinger is how long an unused device stays open: a program that dials
// again has it at once, and the last words of a connection are repeated if they
// are lost.
const deviceLinger = time.Second

func (u use) end() {
	if u.ref != nil {
		time.AfterFunc(deviceLinger, u.ref.Release)
	}
}

// again returns a use of its own of the same device.
func (u use) again() (use, error) {
	if u.ref == nil {
		return u, nil
	}
	ref, err := devices.Local(u.dev.Addr())
	if err != nil {
		return use{}, err
	}
	return use{ref.Device(), ref}, nil
}

// cmLink is a connection of the connection manager.
type cmLink struct {
	*cm.Conn
	use use
}

func (l cmLink) Close() error {
	err := l.Conn.Close()
	l.use.end()
	return err
}

// families says which IP versions the networks have.
var families = map[string]func(netip.Addr) bool{
	"rdma": netip.Addr.IsValid, "rdma4": netip.Addr.Is4, "rdma6": netip.Addr.Is6,
	"tcp": netip.Addr.IsValid, "tcp4": netip.Addr.Is4, "tcp6": netip.Addr.Is6,
}
