package perftest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/gosoftroce/rocev2/hca/task"
	"github.com/gosoftroce/rocev2/programs/interop"
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
	s := &session{dev: dev, role: interop.Client, cfg: c, managed: managed{server: server}}
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
	return (&session{dev: dev, role: interop.Server, cfg: c, managed: managed{listener: ln}}).serve(ctx, ln)
}

// managed are connections of the connection manager between the queue pairs of
// the two sides.
type managed struct {
	server   netip.AddrPort    // of a client
	listener *message.Listener // of a server
	conns    []*cm.Conn
}

// connect connects the lanes. The two sides say that they are ready, then
// the client dials as many connections as there are lanes, and both say that
// they are done.
func (m *managed) connect(ctx context.Context, x *exchange, res *resources) error {
	c, tasks, list := res.cfg, x.tasks, res.lanes.Lanes
	var claim *message.Claim
	if m.listener != nil {
		var err error
		if claim, err = m.listener.Claim(x.ctl.Peer(), c.QPs); err != nil {
			return err
		}
		defer claim.Release()
	}
	if err := x.noAddress(ctx, "handshake before connecting"); err != nil {
		return err
	}
	bounded, cancel := tasks.WithTimeoutCause(ctx, c.HandshakeTimeout, fmt.Errorf("no connection within %v: %w", c.HandshakeTimeout, interop.ErrNoProgress))
	defer cancel()
	for i := range list {
		var conn *cm.Conn
		var err error
		if claim != nil {
			conn, err = acceptLane(bounded, claim, list[i].Send, c)
		} else {
			conn, err = m.dial(bounded, tasks, list[i].Send, c.dialConfig(x.mtu))
		}
		if err != nil {
			return fmt.Errorf("connect queue pair %d of %d: %w", i+1, len(list), interop.Cause(bounded, err))
		}
		m.conns = append(m.conns, conn)
		if err := res.limitRate(i); err != nil {
			return err
		}
	}
	return x.noAddress(ctx, "handshake after connecting by the connection manager")
}

// disconnectLimit bounds the wait for the peer's answer to the end of the
// connections. A process that ends before it repeats nothing that is lost.
const disconnectLimit = time.Second

// disconnect ends the connections.
func (m *managed) disconnect(tasks task.Runner) {
	ctx, cancel := tasks.WithTimeout(context.Background(), disconnectLimit)
	defer cancel()
	wg := tasks.NewGroup()
	for _, c := range m.conns {
		wg.Go(func() { _ = c.Disconnect(ctx) }) // the peer may be gone
	}
	wg.Wait()
}

// reads is how many READs and atomics the two sides may have outstanding.
func (c *Config) reads() verbs.OptUint8 {
	if c.Test.hasReadDepth() {
		return verbs.Set(uint8(c.OutstandingReads))
	}
	return verbs.Set(0)
}

func (c *Config) dialConfig(mtu verbs.MTU) cm.DialConfig {
	return cm.DialConfig{
		ResponderResources: c.reads(), InitiatorDepth: c.reads(), PathMTU: mtu, AckTimeout: c.Timeout, RetryCount: c.RetryCount,
		Access: c.access(), TrafficClass: c.TrafficClass, SourcePort: c.SourcePort,
	}
}

// An original listens for these connections only after it has said that it is
// ready: until then it rejects them.
const (
	listenLimit = 5 * time.Second
	listenPause = 10 * time.Millisecond
)

// dial connects a queue pair, as soon as the server listens.
func (m *managed) dial(ctx context.Context, tasks task.Runner, qp *verbs.QP, c cm.DialConfig) (*cm.Conn, error) {
	for start := tasks.Now(); ; {
		conn, err := m.dialOnce(ctx, qp, c)
		var rejected *cm.RejectedError
		if !errors.As(err, &rejected) || rejected.Reason != cm.ReasonInvalidService || tasks.Since(start) > listenLimit {
			return conn, err
		}
		if tasks.Sleep(ctx, listenPause) != nil {
			return nil, err
		}
	}
}

func (m *managed) dialOnce(ctx context.Context, qp *verbs.QP, c cm.DialConfig) (*cm.Conn, error) {
	conn, err := cm.Dial(ctx, qp, m.server, c)
	return conn, link.Explain(ctx, m.server, err)
}

func acceptLane(ctx context.Context, claim *message.Claim, qp *verbs.QP, c *Config) (*cm.Conn, error) {
	r, err := claim.Next(ctx)
	if err != nil {
		return nil, err
	}
	return r.Accept(ctx, qp, cm.AcceptConfig{
		ResponderResources: c.reads(), InitiatorDepth: c.reads(), Access: c.access(), SourcePort: c.SourcePort,
	})
}
