package perftest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/gosoftroce/rocev2/hca/task"
	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/internal/control"
	"github.com/gosoftroce/rocev2/programs/interop/internal/lanes"
	"github.com/gosoftroce/rocev2/programs/interop/internal/message"
	"github.com/gosoftroce/rocev2/programs/interop/internal/work"
	"github.com/gosoftroce/rocev2/rdma/cm"
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
func (s *session) overConn(ctx context.Context, conn net.Conn) (_ []Result, err error) {
	s.ctl = control.New(conn, tasksOf(s.dev), s.role, s.cfg.HandshakeTimeout)
	if s.greeting, err = greet(ctx, s.ctl, s.dev, &s.cfg); err != nil {
		return nil, s.explain(ctx, err)
	}
	return s.all(ctx)
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
func (s *session) serve(ctx context.Context, ln net.Listener) (_ []Result, err error) {
	c, dev := &s.cfg, s.dev
	s.ctl, s.greeting, err = control.Admit(ctx, ln, control.Admission{Tasks: tasksOf(s.dev), Timeout: c.HandshakeTimeout, Refused: c.OnRefused},
		func(ctx context.Context, ctl *control.Conn) (greeting, error) { return greet(ctx, ctl, dev, &s.cfg) })
	if err != nil {
		return nil, s.explain(ctx, err)
	}
	defer s.ctl.Close()
	return s.all(ctx)
}

// tasksOf returns what starts what runs beside a session, and has the time.
func tasksOf(dev *verbs.Device) task.Runner { return verbs.HCA(dev).Tasks() }

// session is one test with one peer.
type session struct {
	dev  *verbs.Device
	role interop.Role
	cfg  Config
	ctl  *control.Conn
	greeting

	pd     *verbs.PD
	mr     *verbs.MR
	w      *work.Waiter
	lanes  *lanes.Set
	grh    int   // bytes that precede a message in a receive
	slot   int   // bytes of one buffer; the first QPs slots are for sending, the others for the peer
	posted []int // receives posted and not used yet, by lane, or all in the first

	local, remote []Address
	results       []Result

	server netip.AddrPort    // with CMAll: of a client
	data   *message.Listener // with CMAll: of a server
	conns  []*cm.Conn        // with CMAll: of the lanes
}

func (s *session) explain(ctx context.Context, err error) error {
	return fmt.Errorf("%v %v: %w", s.cfg.Test, s.role, interop.Cause(ctx, err))
}

// all runs a session whose greeting is over.
func (s *session) all(ctx context.Context) ([]Result, error) {
	defer s.close()
	if err := s.run(ctx); err != nil {
		return s.results, s.explain(ctx, err)
	}
	return s.results, nil
}

func (s *session) run(ctx context.Context) error {
	if err := s.fitMTU(); err != nil {
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
			Test: s.cfg.Test, Role: s.role, MTU: s.mtu.Bytes(), TxDepth: s.cfg.TxDepth, RxDepth: s.cfg.RxDepth,
			CQMod: s.cfg.CQMod, RemoteVersion: s.version, Local: s.local, Remote: s.remote,
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

// disconnectLimit bounds the wait for the peer's answer to the end of the
// connections. A process that ends before it repeats nothing that is lost.
const disconnectLimit = time.Second

// disconnect ends what the connection manager has connected.
func disconnect(tasks task.Runner, conns []*cm.Conn) {
	ctx, cancel := tasks.WithTimeout(context.Background(), disconnectLimit)
	defer cancel()
	wg := tasks.NewGroup()
	for _, c := range conns {
		wg.Go(func() { _ = c.Disconnect(ctx) }) // the peer may be gone
	}
	wg.Wait()
}

func (s *session) close() {
	disconnect(tasksOf(s.dev), s.conns)
	if s.lanes != nil {
		s.lanes.Close()
	}
	if s.w != nil {
		s.w.Close()
	}
	if s.mr != nil {
		s.mr.Close()
	}
	if s.pd != nil {
		s.pd.Close()
	}
}

// slotSize is the distance of two buffers: a message, or the cycle in which
// small messages go round, in whole pages.
func slotSize(size, cycle int) int {
	return (max(size, cycle) + pageSize - 1) &^ (pageSize - 1)
}

// setUp makes memory, completion queue and queue pairs.
func (s *session) setUp() (err error) {
	c := &s.cfg
	if s.pd, err = s.dev.AllocPD(); err != nil {
		return err
	}
	access := verbs.LocalWrite | verbs.RemoteWrite
	switch c.Test.Verb {
	case Read:
		access |= verbs.RemoteRead
	case Atomic:
		access |= verbs.RemoteAtomic
	}
	s.grh = lanes.GRH(c.Service)
	s.slot = slotSize(s.grh+c.Size, s.cycle)
	if s.mr, err = s.pd.AllocMemory((c.QPs+s.records())*s.slot, access); err != nil {
		return err
	}
	rx := 1
	if c.Test.Verb == Send {
		rx = c.RxDepth
	}
	mode := work.Block
	switch {
	case c.Events:
		mode = work.Events
	case c.Test.Kind == Latency:
		mode = work.Spin
	}
	if s.w, err = work.NewWaiter(s.dev, c.QPs*(c.sendDepth()+rx), mode); err != nil {
		return err
	}
	if err := s.makeLanes(rx); err != nil {
		return err
	}
	s.posted = make([]int, c.QPs)
	s.makeAddresses()
	return nil
}

func (s *session) makeAddresses() {
	out := 1
	if s.cfg.Test.hasReadDepth() {
		out = s.cfg.OutstandingReads
	}
	for i := range s.records() {
		end := s.recordQP(i).Endpoint()
		s.local = append(s.local, Address{
			OutReads: uint16(out), QPN: end.QPN, PSN: end.PSN, RKey: s.mr.RKey(),
			VAddr: s.mr.Addr() + uint64(s.recordOffset(i)), GID: interop.GIDOf(end.Addr), SRQN: s.lanes.SRQN(),
		})
	}
	s.remote = make([]Address, s.records())
}

// sourceOffset and targetOffset say where in the region the two buffers of a
// lane are, recordOffset where the one is that an address tells of.
func (s *session) sourceOffset(i int) int { return i * s.slot }
func (s *session) targetOffset(i int) int { return s.recordOffset(s.receivers() + i) }
func (s *session) recordOffset(i int) int { return (s.cfg.QPs + i) * s.slot }

// connect exchanges addresses, connects the queue pairs, and repeats the
// handshake as often as the test does.
func (s *session) connect(ctx context.Context) error {
	sync := func(step string) error {
		_, err := s.exchangeAddress(ctx, step, 0, true)
		return err
	}
	t := s.cfg.Test
	if s.cfg.CM == CMAll {
		if err := s.connectByCM(ctx); err != nil {
			return err
		}
	}
	if t.Kind == Latency && t.Verb != Send {
		if err := sync("first handshake"); err != nil {
			return err
		}
	}
	for i := range s.local {
		if err := s.exchange(ctx, i); err != nil {
			return err
		}
	}
	for i := range s.cfg.QPs {
		if s.cfg.CM == CMAll {
			break
		}
		if err := s.connectLane(ctx, i); err != nil {
			return err
		}
	}
	if t.Verb == Send {
		if err := sync("handshake after connecting"); err != nil {
			return err
		}
	}
	for i := range s.local {
		if _, err := s.exchangeAddress(ctx, fmt.Sprintf("second address of queue pair %d of %d", i+1, len(s.local)), i, true); err != nil {
			return err
		}
	}
	if t.Verb == Send {
		return nil // the last one comes when receives are posted
	}
	return sync("handshake before the run")
}

// exchange exchanges the addresses of one queue pair.
func (s *session) exchange(ctx context.Context, i int) error {
	a, err := s.exchangeAddress(ctx, fmt.Sprintf("address of queue pair %d of %d", i+1, len(s.local)), i, true)
	if err != nil {
		return err
	}
	if err := checkAddress(a, s.ctl, s.dev, &s.cfg); err != nil {
		return err
	}
	if i > 0 && a.QPN == s.remote[i-1].QPN {
		return fmt.Errorf("the peer has %d queue pairs and this side %d: give both the same number (-q)", i, len(s.local))
	}
	s.remote[i] = a
	return nil
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
	err := s.lanes.Connect(ctx, i, s.peerOf(i), verbs.ConnectConfig{
		PathMTU: s.mtu, Access: s.cfg.Test.access(), Timeout: s.cfg.Timeout, RetryCount: s.cfg.RetryCount,
		MaxRdAtomic:     verbs.Set(uint8(max(min(most, int(s.remoteOf(i).OutReads)), 1))),
		MaxDestRdAtomic: verbs.Set(uint8(s.local[0].OutReads)),
		SourcePort:      s.cfg.SourcePort,
		TrafficClass:    s.cfg.TrafficClass,
	})
	if err != nil {
		return err
	}
	return s.cfg.limitRate(s.lanes.Lanes[i].Send)
}

// limitRate limits what a queue pair sends, if there is one.
func (c *Config) limitRate(sender *verbs.QP) error {
	if c.RateLimit > 0 && sender != nil {
		return sender.SetRateLimit(c.RateLimit, 0)
	}
	return nil
}

// exchangeAddress sends an own address message and takes one from the peer,
// which answers at once unless atOnce is false.
func (s *session) exchangeAddress(ctx context.Context, step string, i int, atOnce bool) (Address, error) {
	return s.exchangeMessage(ctx, step, s.cfg.appendAddress(nil, s.local[i]), atOnce)
}

// exchangeMessage is exchangeAddress with a message of the caller.
func (s *session) exchangeMessage(ctx context.Context, step string, mine []byte, atOnce bool) (Address, error) {
	read := s.ctl.Await
	if atOnce {
		read = s.ctl.Read
	}
	if s.role == interop.Client {
		if err := s.ctl.Write(ctx, step, mine); err != nil {
			return Address{}, err
		}
	}
	theirs := s.first
	if s.first = nil; theirs == nil {
		var err error
		if theirs, err = s.cfg.readAddress(ctx, read, step); err != nil {
			return Address{}, err
		}
	}
	if s.role == interop.Server {
		if err := s.ctl.Write(ctx, step, mine); err != nil {
			return Address{}, err
		}
	}
	return s.cfg.parseAddress(step, theirs)
}

// join is a handshake for which the peer may take long, as long as its packets
// keep coming.
func (s *session) join(ctx context.Context, step string) error {
	return s.await(ctx, func(ctx context.Context) error {
		_, err := s.exchangeAddress(ctx, step, 0, false)
		if err != nil && !s.cfg.Service.Reliable() {
			return fmt.Errorf("%w (the peer may wait for messages that were lost: %v does not repeat them)", err, s.cfg.Service)
		}
		return err
	})
}

// await bounds the silence of the peer while f waits for it on the control
// connection.
func (s *session) await(ctx context.Context, f func(context.Context) error) error {
	g := work.NewGuard(ctx, tasksOf(s.dev), s.cfg.IdleTimeout, s.lanes.Received, nil)
	defer g.Stop()
	err := f(g.Ctx)
	if g.Ctx.Err() != nil && err != nil {
		return fmt.Errorf("wait for the peer: %w", context.Cause(g.Ctx))
	}
	return err
}

// ready is the handshake before a run: receives are posted.
func (s *session) ready(ctx context.Context) error { return s.join(ctx, "handshake before the run") }

// over is the handshake after a run.
func (s *session) over(ctx context.Context) error { return s.join(ctx, "handshake after the run") }

// swapReports exchanges results.
func (s *session) swapReports(ctx context.Context, mine report) (report, error) {
	var theirs [5]uint64
	err := s.await(ctx, func(ctx context.Context) error {
		for i, v := range mine.items() {
			var b [reportLen]byte
			step := fmt.Sprintf("report, item %d of 5", i+1)
			if err := s.ctl.Join(ctx, step, binary.BigEndian.AppendUint64(nil, v), b[:]); err != nil {
				return err
			}
			theirs[i] = binary.BigEndian.Uint64(b[:])
		}
		return nil
	})
	return reportOf(theirs), err
}

// finishLimit bounds the wait for the peer to end the connection too.
const finishLimit = 2 * time.Second

// bye closes the connection: a handshake, then both sides say that they are
// done and read no more.
func (s *session) bye(ctx context.Context) error {
	if err := s.over(ctx); err != nil {
		return err
	}
	if s.cfg.CM == NoCM {
		s.ctl.Write(ctx, "end", []byte(done)) // the peer may be gone by now, and may
	}
	s.ctl.Finish(finishLimit)
	return nil
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
	unwatch := s.ctl.Watch(g.Cancel, said)
	return g, func() {
		unwatch()
		g.Stop()
	}
}

// record keeps a result.
func (s *session) record(r Result) {
	r.Test, r.Service, r.Role, r.QPs, r.MTU = s.cfg.Test, s.cfg.Service, s.role, s.cfg.QPs, s.mtu.Bytes()
	r.Bidirectional = s.cfg.Bidirectional
	if s.cfg.Endless {
		s.results = s.results[:0] // the last one is enough
	}
	s.results = append(s.results, r)
	if s.cfg.OnResult != nil {
		s.cfg.OnResult(r)
	}
}
