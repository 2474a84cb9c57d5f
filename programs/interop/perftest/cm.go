package perftest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/internal/lanes"
	"github.com/gosoftroce/rocev2/programs/interop/internal/link"
	"github.com/gosoftroce/rocev2/programs/interop/internal/message"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
)

// overTCP refuses what only RunCM and ServeCM do.
func (c *Config) overTCP() error {
	if c.CM != NoCM {
		return interop.BadConfig("%v: the connection manager takes the place of the TCP connection: call RunCM or ServeCM", c.Test)
	}
	return nil
}

// overCM fills in the defaults for a run without TCP.
func (c Config) overCM(dev *verbs.Device) (Config, error) {
	if c.CM == NoCM {
		c.CM = CMControl
	}
	c, err := c.withDefaults(dev)
	if err != nil {
		return c, fmt.Errorf("%v: %w", c.Test, err)
	}
	return c, nil
}

// RunCM is Run as the client of a server that it reaches by the connection
// manager. Config.CM says for what that is used, at least for the control
// connection.
func RunCM(ctx context.Context, dev *verbs.Device, server netip.AddrPort, c Config) ([]Result, error) {
	c, err := c.overCM(dev)
	if err != nil {
		return nil, err
	}
	s := &session{dev: dev, role: interop.Client, cfg: c, server: server}
	dialing, cancel := tasksOf(dev).WithTimeoutCause(ctx, c.HandshakeTimeout, fmt.Errorf("no answer within %v", c.HandshakeTimeout))
	defer cancel()
	conn, err := message.Dial(dialing, dev, server)
	if err != nil {
		return nil, s.explain(ctx, interop.Cause(dialing, err))
	}
	defer conn.Close()
	return s.overConn(ctx, conn)
}

// ServeCM is Serve on a port of the connection manager. Config.CM says for what
// that is used, at least for the control connection.
func ServeCM(ctx context.Context, dev *verbs.Device, at netip.AddrPort, c Config) ([]Result, error) {
	c, err := c.overCM(dev)
	if err != nil {
		return nil, err
	}
	ln, err := message.Listen(dev, at)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", c.Test, err)
	}
	defer ln.Shut()
	if c.OnListen != nil {
		c.OnListen()
	}
	return (&session{dev: dev, role: interop.Server, cfg: c, data: ln}).serve(ctx, ln)
}

// connecting has the connection manager connect the lanes of a session.
type connecting struct {
	dev    *verbs.Device
	cfg    *Config
	mtu    verbs.MTU
	lanes  *lanes.Set
	server netip.AddrPort    // of a client
	data   *message.Listener // of a server; nil for a client
	peer   net.Addr          // whose connections a server takes
	// ready exchanges a step with the peer.
	ready func(ctx context.Context, step string) error
}

// all connects the lanes. The two sides say that they are ready, then
// the client dials as many connections as there are lanes, and both say that
// they are done. The connections are returned with an error, too.
func (s *connecting) all(ctx context.Context) (conns []*cm.Conn, err error) {
	var claim *message.Claim
	if s.data != nil {
		if claim, err = s.data.Claim(s.peer, s.cfg.QPs); err != nil {
			return nil, err
		}
		defer claim.Release()
	}
	if err := s.ready(ctx, "handshake before connecting"); err != nil {
		return nil, err
	}
	bounded, cancel := tasksOf(s.dev).WithTimeoutCause(ctx, s.cfg.HandshakeTimeout, fmt.Errorf("no connection within %v: %w", s.cfg.HandshakeTimeout, interop.ErrNoProgress))
	defer cancel()
	for i := range s.lanes.Lanes {
		var conn *cm.Conn
		if claim != nil {
			conn, err = s.acceptLane(bounded, claim, i)
		} else {
			conn, err = s.dialLane(bounded, i)
		}
		if err != nil {
			return conns, fmt.Errorf("connect queue pair %d of %d: %w", i+1, len(s.lanes.Lanes), interop.Cause(bounded, err))
		}
		conns = append(conns, conn)
		if err := s.cfg.limitRate(s.lanes.Lanes[i].Send); err != nil {
			return conns, err
		}
	}
	return conns, s.ready(ctx, "handshake after connecting by the connection manager")
}

// reads is how many READs and atomics the two sides may have outstanding.
func (s *connecting) reads() verbs.OptUint8 {
	if s.cfg.Test.hasReadDepth() {
		return verbs.Set(uint8(s.cfg.OutstandingReads))
	}
	return verbs.Set(0)
}

// An original listens for these connections only after it has said that it is
// ready: until then it rejects them.
const (
	listenLimit = 5 * time.Second
	listenPause = 10 * time.Millisecond
)

func (s *connecting) dialLane(ctx context.Context, i int) (*cm.Conn, error) {
	for start := tasksOf(s.dev).Now(); ; {
		conn, err := s.dialLaneOnce(ctx, i)
		var rejected *cm.RejectedError
		if !errors.As(err, &rejected) || rejected.Reason != cm.ReasonInvalidService || tasksOf(s.dev).Since(start) > listenLimit {
			return conn, err
		}
		if tasksOf(s.dev).Sleep(ctx, listenPause) != nil {
			return nil, err
		}
	}
}

func (s *connecting) dialLaneOnce(ctx context.Context, i int) (*cm.Conn, error) {
	conn, err := cm.Dial(ctx, s.lanes.Lanes[i].Send, s.server, cm.DialConfig{
		ResponderResources: s.reads(), InitiatorDepth: s.reads(), PathMTU: s.mtu, AckTimeout: s.cfg.Timeout, RetryCount: s.cfg.RetryCount,
		Access: s.cfg.Test.access(), TrafficClass: s.cfg.TrafficClass, SourcePort: s.cfg.SourcePort,
	})
	return conn, link.Explain(ctx, s.server, err)
}

func (s *connecting) acceptLane(ctx context.Context, claim *message.Claim, i int) (*cm.Conn, error) {
	r, err := claim.Next(ctx)
	if err != nil {
		return nil, err
	}
	return r.Accept(ctx, s.lanes.Lanes[i].Send, cm.AcceptConfig{
		ResponderResources: s.reads(), InitiatorDepth: s.reads(), Access: s.cfg.Test.access(), SourcePort: s.cfg.SourcePort,
	})
}

// connectByCM connects the lanes by the connection manager.
func (s *session) connectByCM(ctx context.Context) (err error) {
	c := connecting{dev: s.dev, cfg: &s.cfg, mtu: s.mtu, lanes: s.lanes, server: s.server, ready: s.exchangeEmpty}
	if s.role == interop.Server {
		c.data, c.peer = s.data, s.ctl.Peer()
	}
	s.conns, err = c.all(ctx)
	return err
}

// exchangeEmpty exchanges address messages without an address.
func (s *session) exchangeEmpty(ctx context.Context, step string) error {
	a, err := s.exchangeMessage(ctx, step, make([]byte, binaryLen), true)
	if err == nil && a != (Address{}) {
		err = errors.New("the two sides run different tests: only this side connects its queue pairs by the connection manager (-R)")
	}
	return err
}
