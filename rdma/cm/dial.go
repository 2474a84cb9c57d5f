package cm

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/gosoftroce/rocev2/internal/devices"
	"github.com/gosoftroce/rocev2/rdma/cm/agent"
	"github.com/gosoftroce/rocev2/rocev2/mad"
	"github.com/gosoftroce/rocev2/verbs"
)

// DialConfig says how a connection is made. The zero value works.
type DialConfig struct {
	Space       PortSpace // 0 means TCP
	LocalPort   uint16    // 0 means one that is free
	PrivateData []byte    // for the peer's program, at most 56 bytes

	// ResponderResources is how many READs and atomics the peer may have
	// outstanding here, InitiatorDepth how many this side at the peer. The
	// default is 16; the peer may grant less.
	ResponderResources, InitiatorDepth verbs.OptUint8

	PathMTU     verbs.MTU      // of both sides; by default what the way between them carries: see Params
	AckTimeout  uint8          // code, of both sides, see verbs.ConnectConfig.Timeout; 14 by default. A peer that is this software takes 21 at most
	RetryCount  verbs.OptUint8 // of both sides, up to 7; 7 by default
	RNRRetry    verbs.OptUint8 // how often the peer repeats when this side has no receive posted; 7, the default, is for ever
	MinRNRTimer verbs.OptUint8 // see verbs.ConnectConfig; 12, 0.64 ms, by default
	Access      verbs.Access   // what the peer may do; by default WRITE, and with ResponderResources also READ, atomics and FLUSH
	FlowControl bool

	TrafficClass uint8  // of both sides, see verbs.ConnectConfig
	FlowLabel    uint32 // of both sides, 20 bits; 0 means one that the ports give, as Linux has it
	SourcePort   uint16 // see verbs.ConnectConfig

	// TLS has the connection secured: see the package documentation. Where
	// the configuration names no server it is the address. The device has
	// verbs.Config.Sealing. The error wraps ErrNotSecured if the listener
	// has no configuration of TLS.
	TLS *tls.Config

	// ECE is what this side says of itself; the zero value stands for what
	// this software says, so that two of its kind know each other.
	ECE ECE

	// NoECE says nothing. The driver of an adapter may refuse the requests
	// of vendors that it does not know. A dial that seems to be rejected
	// for that (ReasonVendorOption, or a rejection without a word from
	// another software) is made once more without, so that this is for
	// peers that must see only one request.
	NoECE bool

	// Retries is how often the request is sent again, up to 15, before the
	// peer counts as unreachable: the first time after 250 ms, then after
	// twice the time each, up to 4.6 s. 0 means 15, 59 s in all.
	Retries uint8

	// WaitForServer waits, as long as ctx allows, where nothing is there
	// yet: while no program listens on the port, UDP port 4791 is closed at
	// the peer, or the peer does not answer. Without it those are errors.
	WaitForServer bool
}

// Dial connects a queue pair, of RC, UC or XRCInitiator, with one of the
// program that listens on an address. The queue pair is in RESET or INIT; to
// have receives posted before the first message of the peer, call Init, post,
// then Dial. It is in RTS afterwards, by the terms that the two sides have
// agreed on. After an error it may be in INIT, RTR or RTS: reset it to dial
// again.
//
// The error wraps a *RejectedError, ErrNoDevice, ErrUnreachable, ErrClosed, a
// *PortError, verbs.ErrTransition, or that of ctx: the peer is told then that
// this side has given up.
//
// ErrNoDevice comes a few milliseconds after a request to a host on which no
// device is open. It is what the host says by ICMP, which the network can
// forge, and so ends only what has no answer. A host that says nothing counts
// as unreachable after a minute, see DialConfig.Retries.
func Dial(ctx context.Context, qp *verbs.QP, addr netip.AddrPort, cfg DialConfig) (*Conn, error) {
	d := &dialing{qp: qp, peer: netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())}
	once := func() error {
		mine := cfg // what one server rejects the next may take
		d.cfg = &mine
		err := d.dial(ctx)
		for err != nil && d.yield(err) {
			err = d.dial(ctx)
		}
		d.letGo()
		return err
	}
	var err error
	if cfg.WaitForServer && qp != nil {
		err = devices.Await(ctx, verbs.HCA(qp.Device()).Tasks().Sleep, once)
	} else {
		err = once()
	}
	if err != nil {
		return nil, fmt.Errorf("cm: dial %v: %w", addr, err)
	}
	return d.c, nil
}

// yield changes a setting that the peer has rejected, and that this side need
// not insist on, and reports whether it has. It does so at most once for each
// setting.
func (d *dialing) yield(err error) bool {
	cfg := d.cfg
	var rejected *RejectedError
	if !errors.As(err, &rejected) || cfg.TLS != nil && d.control == nil {
		return false
	}
	if !cfg.NoECE && rejected.foreign() {
		cfg.NoECE = true
		return true
	}
	if cfg.PathMTU == 0 {
		cfg.PathMTU = rejected.lessThan(d.req.PathMTU)
		return cfg.PathMTU != 0
	}
	return false
}

// acceptable returns the path MTU that the peer takes, if it has rejected for
// that and says so, and else 0 (IBTA 12.6.7.2).
func (e *RejectedError) acceptable() verbs.MTU {
	if e.Reason == ReasonMTU && len(e.Info) > 0 && verbs.MTU(e.Info[0]).Valid() {
		return verbs.MTU(e.Info[0])
	}
	return 0
}

// lessThan returns acceptable if it is less than was asked for, and else 0.
func (e *RejectedError) lessThan(asked uint8) verbs.MTU {
	if most := e.acceptable(); most < verbs.MTU(asked) {
		return most
	}
	return 0
}

// foreign reports whether a peer that is not this software may have rejected
// because of the ECE.
func (e *RejectedError) foreign() bool {
	switch e.Reason {
	case ReasonVendorOption:
		return true
	case ReasonConsumer:
		return privateOf(e.PrivateData).text == "" && !marked(e.Info)
	}
	return false
}

// dial asks once.
func (d *dialing) dial(ctx context.Context) error {
	if err := d.check(ctx); err != nil {
		return err
	}
	m, err := managerOf(d.qp.Device())
	if err != nil {
		return err
	}
	port, err := m.ports.takeSource(d.cfg.Space, d.cfg.LocalPort)
	if err != nil {
		return err
	}
	d.c = &Conn{m: m, qp: d.qp, ownPort: true, remote: Addr{d.peer, d.cfg.Space},
		local: Addr{netip.AddrPortFrom(d.qp.Device().Addr(), port), d.cfg.Space}}
	return d.run(ctx)
}

// dialing is a connection that is being made.
type dialing struct {
	qp   *verbs.QP
	cfg  *DialConfig
	peer netip.AddrPort
	c    *Conn
	req  mad.REQ

	control *control // of a secured connection
	hello   bool     // the connection is a control connection itself

	patience time.Duration // of agent.ConnectRequest
}

// check finds what cannot be, and fills in the defaults.
func (d *dialing) check(ctx context.Context) error {
	c := d.cfg
	if c.Space == 0 {
		c.Space = TCP
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case d.qp == nil:
		return errors.New("no queue pair")
	case !validSpace(c.Space):
		return fmt.Errorf("there is no port space 0x%x; use TCP or IB", uint16(c.Space))
	case d.peer.Port() == 0:
		return errors.New("port 0: no program listens there")
	case c.PathMTU != 0 && !c.PathMTU.Valid():
		return c.PathMTU.Err()
	case c.AckTimeout > 31:
		return fmt.Errorf("AckTimeout is %d; it is a code up to 31", c.AckTimeout)
	case c.RetryCount.Or(0) > 7:
		return &verbs.RangeError{What: "RetryCount", Got: int(c.RetryCount.Or(0)), Max: 7}
	case c.RNRRetry.Or(0) > 7:
		return &verbs.RangeError{What: "RNRRetry", Got: int(c.RNRRetry.Or(0)), Max: 7}
	case c.Retries > 15:
		return &verbs.RangeError{What: "Retries", Got: int(c.Retries), Max: 15}
	}
	switch t := d.qp.Type(); t {
	case verbs.RC, verbs.UC, verbs.XRCInitiator:
	case verbs.UD:
		return errors.New("a queue pair of type UD has no connection; use Resolve")
	default:
		return fmt.Errorf("a queue pair of type %v cannot dial", t)
	}
	if err := checkPeer(d.qp.Device(), d.peer.Addr()); err != nil {
		return err
	}
	if err := tooLong("REQ of RDMA-CM", len(c.PrivateData), MaxDialPrivate); err != nil {
		return err
	}
	if c.TLS != nil {
		if err := d.checkSecured(); err != nil {
			return err
		}
	}
	return toInit(d.qp)
}

// checkPeer checks that a device can send to an address.
func checkPeer(dev *verbs.Device, peer netip.Addr) error {
	switch {
	case !peer.IsValid() || peer.IsUnspecified() || peer.IsMulticast():
		return fmt.Errorf("%v is not the address of a host", peer)
	case peer.Is4() != dev.Addr().Unmap().Is4():
		return fmt.Errorf("address %v and device %v are of different IP versions", peer, dev.Addr())
	}
	return nil
}

// run exchanges the messages.
func (d *dialing) run(ctx context.Context) error {
	if err := d.secure(ctx); err != nil {
		d.c.giveUp()
		return err
	}
	w := newWaiter()
	if err := d.request(w); err != nil {
		d.c.giveUp()
		return err
	}
	if err := d.c.answer(ctx, w); err != nil {
		d.c.giveUp()
		return err
	}
	if w.event.Kind != agent.EventReply {
		d.c.giveUp()
		return endOf(&w.event)
	}
	return d.ready(w.event.Reply)
}

// answer waits for what comes of the request of c.
func (c *Conn) answer(ctx context.Context, w *waiter) error {
	defer c.probing()()
	err := c.m.await(ctx, w)
	switch {
	case err != nil:
		return unanswered(err)
	case w.noDevice:
		return ErrNoDevice
	}
	return nil
}

// unanswered says what was waited for when the context ended, as far as the
// program has given it no cause of its own.
func unanswered(err error) error {
	if err == context.DeadlineExceeded || err == context.Canceled {
		return fmt.Errorf("the peer has not answered: %w", err)
	}
	return err
}

// giveUp ends a connection that was not made. Its queue pair is not touched
// afterwards: the program may use it for the next one.
func (c *Conn) giveUp() {
	c.m.lock()
	if c.waiter = nil; c.ending {
		c.m.unlock()
		c.atEnd().Wait(context.Background()) // the peer has ended it, too
		return
	}
	defer c.m.unlock()
	c.ending, c.err = true, ErrClosed
	c.m.release(c.id)
	c.conclude()
}

// request sends the REQ; w is told what comes of it.
func (d *dialing) request(w *waiter) error {
	c := d.c
	d.req = d.cfg.request(d.qp.Type(), c.local.AddrPort, d.peer, randomPSN(c.m.dev))
	d.req.LocalQPN, d.req.SRQ = d.qp.QPN(), d.qp.Config().SRQ != nil
	d.req.ECE = c.m.withSlots(d.req.ECE)
	if d.req.PathMTU == 0 {
		d.req.PathMTU = uint8(mostMTU(d.qp.Device(), d.peer.Addr(), d.cfg.TLS != nil || d.hello))
	}
	if d.hello {
		d.req.ServiceID = controlService(d.req.ServiceID)
	}
	c.m.lock()
	defer c.m.unlock()
	if c.m.closed {
		return c.m.errOver()
	}
	id, err := c.m.agent.Connect(c.m.now(), &agent.ConnectRequest{
		Path: agent.Path{Local: c.local.Addr().WithZone(""), Remote: d.peer.Addr().WithZone(""), TrafficClass: d.cfg.TrafficClass, FlowLabel: d.req.Primary.FlowLabel, Control: d.control.name()},
		REQ:  d.req, Patience: d.patience,
	})
	if err != nil {
		return err
	}
	c.id, c.waiter = id, w
	c.m.ids[id] = c
	return nil
}

// ready takes the queue pair to RTS by the terms of the REP and sends the RTU.
func (d *dialing) ready(rep *mad.REP) error {
	c := d.c
	c.data, c.ece = privateOf(rep.Private), ECE(rep.ECE)
	w := d.cfg.wiring(d.qp.Type(), d.peer.Addr(), &d.req, rep)
	c.params, c.control = w.params, d.control
	w.seal = d.control.seal(mad.CommID(d.c.id), rep.LocalID)
	if err := w.apply(d.qp); err != nil {
		_ = c.m.reject(c.id, rejection(err), nil, nil) // the peer may have given up
		c.giveUp()
		return err
	}
	if err := c.establish(); err != nil {
		c.giveUp()
		return err
	}
	return nil
}

// establish sends the RTU.
func (c *Conn) establish() error {
	c.m.lock()
	defer c.m.unlock()
	switch {
	case c.ending: // meanwhile
		return c.err
	case c.m.closed:
		return c.m.errOver()
	case c.m.agent.Ready(c.m.now(), c.id, nil) != nil:
		return ErrUnreachable
	}
	return nil
}
