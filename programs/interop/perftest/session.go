package perftest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/gosoftroce/rocev2/hca/task"
	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/internal/control"
	"github.com/gosoftroce/rocev2/programs/interop/internal/work"
	"github.com/gosoftroce/rocev2/verbs"
)

// Run runs one test over dev with the peer at the other end of conn, which it
// closes. It returns the results, one for each size: when the test is over,
// or, with an error, those that there were until something failed or ctx
// ended.
func Run(ctx context.Context, dev *verbs.Device, conn net.Conn, role interop.Role, c Config) ([]Result, error) {
	defer conn.Close()
	if err := c.overTCP(); err != nil {
		return nil, err
	}
	c, err := c.withDefaults(dev)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", c.Test, err)
	}
	return (&session{dev: dev, role: role, cfg: c}).overConn(ctx, conn)
}

// overConn runs a session over a control connection.
func (s *session) overConn(ctx context.Context, conn net.Conn) ([]Result, error) {
	ctl := control.New(conn, tasksOf(s.dev), s.role, s.cfg.HandshakeTimeout)
	g, err := greet(ctx, ctl, s.dev, &s.cfg)
	if err != nil {
		return nil, s.explain(ctx, err)
	}
	return s.all(ctx, ctl, g)
}

// Serve is Run as the server of the first client of ln that runs the same test
// from an address which it may have. All others are refused: they neither end
// the server nor hold it up. Serve closes ln.
func Serve(ctx context.Context, dev *verbs.Device, ln net.Listener, c Config) ([]Result, error) {
	defer ln.Close()
	if err := c.overTCP(); err != nil {
		return nil, err
	}
	c, err := c.withDefaults(dev)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", c.Test, err)
	}
	return (&session{dev: dev, role: interop.Server, cfg: c}).serve(ctx, ln)
}

// serve takes the first client of ln.
func (s *session) serve(ctx context.Context, ln net.Listener) ([]Result, error) {
	c, dev := &s.cfg, s.dev
	ctl, g, err := control.Admit(ctx, ln, control.Admission{Tasks: tasksOf(s.dev), Timeout: c.HandshakeTimeout, Refused: c.OnRefused},
		func(ctx context.Context, ctl *control.Conn) (greeting, error) { return greet(ctx, ctl, dev, &s.cfg) })
	if err != nil {
		return nil, s.explain(ctx, err)
	}
	defer ctl.Close()
	return s.all(ctx, ctl, g)
}

// tasksOf returns what starts what runs beside a session, and has the time.
func tasksOf(dev *verbs.Device) task.Runner { return verbs.HCA(dev).Tasks() }

// session is one test with one peer. It joins what the two sides say
// (exchange), what this side has for the test (resources), how its queue pairs
// are connected (itself, or managed), the operations of one size (flow, pinger)
// and the results:
//
//  1. greet: what is to be known before anything is made.
//  2. newResources: memory, completion queue and queue pairs.
//  3. connect: addresses, and connections.
//  4. runBandwidth, runLatency: the operations, size after size. Between two
//     sizes the sides wait for each other.
//  5. record: a result is kept and told.
type session struct {
	dev     *verbs.Device
	role    interop.Role
	cfg     Config
	managed managed

	exchange *exchange  // from 1 on
	res      *resources // from 2 on
	results  []Result
}

func (s *session) explain(ctx context.Context, err error) error {
	return fmt.Errorf("%v %v: %w", s.cfg.Test, s.role, interop.Cause(ctx, err))
}

// all runs a session whose greeting is over.
func (s *session) all(ctx context.Context, ctl *control.Conn, g greeting) ([]Result, error) {
	defer s.close()
	s.exchange = newExchange(ctl, tasksOf(s.dev), &s.cfg, g)
	if err := s.run(ctx); err != nil {
		return s.results, s.explain(ctx, err)
	}
	return s.results, nil
}

func (s *session) run(ctx context.Context) error {
	if err := s.cfg.fitMTU(s.exchange.mtu); err != nil {
		return err
	}
	if err := s.setUp(); err != nil {
		return err
	}
	if err := s.connect(ctx); err != nil {
		return err
	}
	if s.cfg.OnStart != nil {
		s.cfg.OnStart(Setup{
			Test: s.cfg.Test, Role: s.role, MTU: s.exchange.mtu.Bytes(), TxDepth: s.cfg.TxDepth, RxDepth: s.cfg.RxDepth,
			CQMod: s.cfg.CQMod, RemoteVersion: s.exchange.version, Local: s.exchange.local, Remote: s.exchange.remote,
			Secured: s.exchange.secured,
		})
	}
	if s.cfg.Test.Kind == Latency {
		return s.runLatency(ctx)
	}
	if err := s.runBandwidth(ctx); err != nil {
		return s.endOfEndless(err)
	}
	return nil
}

// endOfEndless takes the error of a run that only its client ends: the server
// is done when the client leaves.
func (s *session) endOfEndless(err error) error {
	if s.cfg.Endless && s.role == interop.Server && errors.Is(err, interop.ErrPeerClosed) {
		return nil
	}
	return err
}

func (s *session) close() {
	s.managed.disconnect(tasksOf(s.dev))
	if s.res != nil {
		s.res.close()
	}
}

// setUp makes what the test needs.
func (s *session) setUp() (err error) {
	x := s.exchange
	if s.res, err = newResources(s.dev, s.role, &s.cfg, x.cycle); err != nil {
		return err
	}
	x.received = s.res.lanes.Received
	x.local = s.res.addresses()
	x.remote = make([]Address, len(x.local))
	return nil
}

// connect exchanges addresses, connects the queue pairs, and repeats the
// handshake as often as the test does.
func (s *session) connect(ctx context.Context) error {
	x, t := s.exchange, s.cfg.Test
	if s.cfg.CM == CMAll {
		if err := s.managed.connect(ctx, x, s.res); err != nil {
			return err
		}
	}
	if t.Kind == Latency && t.Verb != Send {
		if err := x.handshake(ctx, "first handshake"); err != nil {
			return err
		}
	}
	for i := range x.local {
		if err := x.address(ctx, i, s.dev); err != nil {
			return err
		}
	}
	for i := range s.cfg.QPs {
		if s.cfg.CM != CMAll {
			if err := s.connectLane(ctx, i); err != nil {
				return err
			}
		}
		if err := s.secureLane(i); err != nil {
			return err
		}
	}
	if t.Verb == Send {
		if err := x.handshake(ctx, "handshake after connecting"); err != nil {
			return err
		}
	}
	for i := range x.local {
		if err := x.addressAgain(ctx, i); err != nil {
			return err
		}
	}
	if t.Verb == Send {
		return nil // the last one comes when receives are posted
	}
	return x.handshake(ctx, "handshake before the run")
}

// access is what the peer may do on a connection.
func (t Test) access() verbs.Access {
	switch t.Verb {
	case Write:
		return verbs.RemoteWrite
	case Read:
		return verbs.RemoteRead
	case Atomic:
		return verbs.RemoteAtomic
	}
	return verbs.LocalWrite | verbs.RemoteWrite
}

func (s *session) connectLane(ctx context.Context, i int) error {
	most := s.dev.Query().MaxRdAtomic
	if s.cfg.Test.hasReadDepth() {
		most = min(most, s.cfg.OutstandingReads)
	}
	x := s.exchange
	err := s.res.lanes.Connect(ctx, i, x.peerOf(i), verbs.ConnectConfig{
		PathMTU: x.mtu, Access: s.cfg.access(), Timeout: s.cfg.Timeout, RetryCount: s.cfg.RetryCount,
		MaxRdAtomic:     verbs.Set(uint8(max(min(most, int(x.remoteOf(i).OutReads)), 1))),
		MaxDestRdAtomic: verbs.Set(uint8(x.local[0].OutReads)),
		SourcePort:      s.cfg.SourcePort,
		TrafficClass:    s.cfg.TrafficClass,
	})
	if err != nil {
		return err
	}
	return s.res.limitRate(i)
}

// guard starts the watch over a part of the run, that of the control
// connection included. end must be called before the connection is used again.
func (s *session) guard(ctx context.Context, size int, total uint64, idle time.Duration) (g *work.Guard, end func()) {
	var report func(uint64)
	if s.cfg.OnProgress != nil {
		report = func(n uint64) { s.cfg.OnProgress(size, n, total) }
	}
	g = work.NewGuard(ctx, tasksOf(s.dev), idle, nil, report)
	var said func()
	if !s.cfg.Service.Reliable() {
		said = func() { g.CancelWhenQuiet(lossQuiet, errPeerDone) }
	}
	unwatch := s.exchange.ctl.Watch(g.Cancel, said)
	return g, func() {
		unwatch()
		g.Stop()
	}
}

// record keeps a result.
func (s *session) record(r Result) {
	r.Test, r.Service, r.Role, r.QPs, r.MTU = s.cfg.Test, s.cfg.Service, s.role, s.cfg.QPs, s.exchange.mtu.Bytes()
	r.Bidirectional, r.Secured = s.cfg.Bidirectional, s.exchange.secured
	if s.cfg.Endless {
		s.results = s.results[:0] // the last one is enough
	}
	s.results = append(s.results, r)
	if s.cfg.OnResult != nil {
		s.cfg.OnResult(r)
	}
}
