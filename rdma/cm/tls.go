package cm

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/netip"
	"time"

	"github.com/gosoftroce/rocev2/rdma/secure"
	"github.com/gosoftroce/rocev2/rocev2/mad"
	"github.com/gosoftroce/rocev2/verbs"
)

// securable returns an error for queue pairs of a type whose connections cannot
// be secured.
func securable(typ verbs.QPType) error {
	switch typ {
	case verbs.RC, verbs.XRCInitiator, verbs.XRCTarget:
		return nil
	}
	return fmt.Errorf("cm: queue pairs of type %v cannot be secured: TLS is for connections of RC and XRC", typ)
}

// mostMTU returns the largest path MTU of a connection to a peer.
func mostMTU(dev *verbs.Device, peer netip.Addr, secured bool) verbs.MTU {
	m := dev.PathMTU(peer)
	if secured {
		m = min(m, dev.SealedMTU(peer))
	}
	return m
}

func (l *Listener) mostMTU(peer netip.Addr) verbs.MTU {
	return mostMTU(l.m.dev, peer, l.cfg.TLS != nil)
}

// checkSecured finds what a secured connection cannot be.
func (d *dialing) checkSecured() error {
	if err := securable(d.qp.Type()); err != nil {
		return err
	}
	most := d.qp.Device().SealedMTU(d.peer.Addr())
	switch {
	case most == 0:
		return fmt.Errorf("dial with a TLS configuration: %w", verbs.ErrNotSealing)
	case d.cfg.PathMTU > most:
		return fmt.Errorf("PathMTU %d leaves no room for what seals a packet: %d at most, see verbs.Device.SealedMTU", d.cfg.PathMTU.Bytes(), most.Bytes())
	}
	return nil
}

// secure makes the control connection, if there is to be one and is none.
func (d *dialing) secure(ctx context.Context) (err error) {
	if d.cfg.TLS == nil || d.control != nil {
		return nil
	}
	call := calling{m: d.c.m, local: d.c.local, remote: d.c.remote, cfg: d.cfg}
	d.control, err = call.control(ctx)
	return err
}

// calling is a control connection that is being made.
type calling struct {
	m             *manager
	local, remote Addr
	cfg           *DialConfig // of the connection that it is for
	patience      time.Duration
}

// control makes it, held for the caller.
func (d *calling) control(ctx context.Context) (*control, error) {
	c, err := newControl(d.m, 0, nil)
	if err != nil {
		return nil, err
	}
	c.peer = d.remote.Addr()
	if err := d.connect(ctx, c); err != nil {
		c.destroy()
		return nil, fmt.Errorf("ask for a secured connection: %w", notSecured(err))
	}
	timed, cancel := d.m.tasks.WithTimeout(ctx, secure.Time)
	defer cancel()
	c.session, err = secure.Client(timed, c.toSecure(timed), d.cfg.TLS, c.peer.String())
	if err == nil {
		c.held = true
		err = d.m.controls.enter(c)
	}
	if err != nil {
		c.giveUp(ctx)
		return nil, err
	}
	return c, nil
}

// connect connects its queue pair.
func (d *calling) connect(ctx context.Context, c *control) error {
	of := &dialing{qp: c.qp, peer: d.remote.AddrPort, hello: true, patience: d.patience, cfg: &DialConfig{
		Space: d.remote.Space, PrivateData: controlHello, Access: secure.Access,
		ResponderResources: verbs.Set(0), InitiatorDepth: verbs.Set(0),
		TrafficClass: d.cfg.TrafficClass, SourcePort: d.cfg.SourcePort, Retries: d.cfg.Retries, AckTimeout: d.cfg.AckTimeout,
	}}
	of.c = &Conn{m: d.m, qp: c.qp, local: d.local, remote: d.remote}
	if err := of.run(ctx); err != nil {
		return err
	}
	c.conn = of.c
	return nil
}

// letGo says that the dial has ended. Without a connection the control
// connection ends, too.
func (d *dialing) letGo() {
	if c := d.control; c != nil {
		c.letGo()
		d.control = nil
	}
}

// name is what the agent knows c by; 0 if there is none.
func (c *control) name() uint32 {
	if c == nil {
		return 0
	}
	return c.number
}

// seal has a queue pair take no packet in clear, and send none.
type seal struct {
	session *secure.Session
	ids     [2]mad.CommID // of the side that has dialled, and of the other one
}

// receive takes a queue pair to RTR by a call.
func (s *seal) receive(q *verbs.QP, toRTR func() error) error {
	if err := s.session.Require(q); err != nil {
		return err
	}
	if err := toRTR(); err != nil {
		return err
	}
	return s.session.Seal(q, uint32(s.ids[0]), uint32(s.ids[1]))
}

// seal returns how a connection is sealed whose sides have communication IDs;
// nil without a control connection.
func (c *control) seal(client, server mad.CommID) *seal {
	if c == nil {
		return nil
	}
	return &seal{c.session, [2]mad.CommID{client, server}}
}

// ConnectionState returns what the handshake of a secured connection has shown,
// such as the certificates of the peer. It reports false for a connection that
// is not secured.
func (c *Conn) ConnectionState() (tls.ConnectionState, bool) { return c.control.state() }

// ConnectionState is Conn.ConnectionState of the connection that is asked for.
func (r *Request) ConnectionState() (tls.ConnectionState, bool) { return r.control.state() }

func (c *control) state() (state tls.ConnectionState, ok bool) {
	if c == nil {
		return state, false
	}
	return c.session.State()
}

// shown returns a copy of what the handshake of c has shown, nil without c.
func (c *control) shown() *tls.ConnectionState {
	state, ok := c.state()
	if !ok {
		return nil
	}
	return &state
}
