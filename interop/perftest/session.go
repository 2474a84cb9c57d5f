package perftest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/gosoftroce/rocev2/interop"
	"github.com/gosoftroce/rocev2/interop/internal/control"
	"github.com/gosoftroce/rocev2/interop/internal/work"
	"github.com/gosoftroce/rocev2/verbs"
)

// Run runs one test over dev with the peer at the other end of conn, which it
// closes. It returns the results, one for each size: when the test is over,
// or, with an error, those that there were until something failed or ctx
// ended.
func Run(ctx context.Context, dev *verbs.Device, conn net.Conn, role interop.Role, c Config) ([]Result, error) {
	defer conn.Close()
	c, err := c.withDefaults(dev)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", c.Test, err)
	}
	s := &session{dev: dev, role: role, cfg: c, ctl: control.New(conn, role, c.HandshakeTimeout)}
	defer s.close()
	if err := s.run(ctx); err != nil {
		return s.results, fmt.Errorf("%v %v: %w", c.Test, role, interop.Cause(ctx, err))
	}
	return s.results, nil
}

// session is one test with one peer.
type session struct {
	dev  *verbs.Device
	role interop.Role
	cfg  Config
	ctl  *control.Conn

	remoteVersion string
	cycle, line   int // bytes in which addresses go round, and their least step
	mtu           verbs.MTU

	pd   *verbs.PD
	mr   *verbs.MR
	w    *work.Waiter
	qps  []*verbs.QP
	slot int // bytes of one buffer; the first QPs slots are for sending, the others for the peer

	local, remote []Address
	results       []Result
}

func (s *session) run(ctx context.Context) error {
	if err := s.agree(ctx); err != nil {
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
			CQMod: s.cfg.CQMod, RemoteVersion: s.remoteVersion, Local: s.local, Remote: s.remote,
		})
	}
	if s.cfg.Test.Kind == Latency {
		return s.runLatency(ctx)
	}
	return s.runBandwidth(ctx)
}

func (s *session) close() {
	for _, q := range s.qps {
		q.Close()
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

const (
	pageSize  = 4096 // of the machine, as announced
	cacheLine = 64
)

// agree exchanges version, page size, cache line size and path MTU.
func (s *session) agree(ctx context.Context) error {
	var b [versionLen]byte
	if err := s.ctl.Exchange(ctx, "version", appendVersion(nil), b[:]); err != nil {
		return err
	}
	var err error
	if s.remoteVersion, err = parseVersion(b[:]); err != nil {
		return err
	}
	if s.cycle, err = s.agreeNumber(ctx, "page size", pageSize, maxCycle); err != nil {
		return err
	}
	if s.line, err = s.agreeNumber(ctx, "cache line size", cacheLine, maxCacheLine); err != nil {
		return err
	}
	m := b[:mtuLen]
	if err := s.ctl.Exchange(ctx, "path MTU", appendMTU(nil, s.cfg.MTU), m); err != nil {
		return err
	}
	theirs, err := parseMTU(m)
	if err != nil {
		return err
	}
	s.mtu = min(s.cfg.MTU, theirs)
	return nil
}

// agreeNumber exchanges a number of which both sides take the larger.
func (s *session) agreeNumber(ctx context.Context, step string, mine, most int) (int, error) {
	var b [numberLen]byte
	if err := s.ctl.Exchange(ctx, step, appendNumber(nil, mine), b[:]); err != nil {
		return 0, err
	}
	theirs, err := parseNumber(step, b[:], most)
	if err != nil {
		return 0, err
	}
	return max(mine, theirs), nil
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
	s.slot = slotSize(c.Size, s.cycle)
	if s.mr, err = s.pd.AllocMemory(2*c.QPs*s.slot, access); err != nil {
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
	if s.w, err = work.NewWaiter(s.dev, c.QPs*(c.TxDepth+rx), mode); err != nil {
		return err
	}
	for range c.QPs {
		q, err := s.pd.CreateQP(verbs.QPConfig{
			SendCQ: s.w.CQ, RecvCQ: s.w.CQ, MaxSendWR: c.TxDepth, MaxRecvWR: rx, MaxInline: c.Inline,
		})
		if err != nil {
			return err
		}
		s.qps = append(s.qps, q)
	}
	s.makeAddresses()
	return nil
}

func (s *session) makeAddresses() {
	out := 1
	if s.cfg.Test.hasReadDepth() {
		out = s.cfg.OutstandingReads
	}
	for i, q := range s.qps {
		end := q.Endpoint()
		s.local = append(s.local, Address{
			OutReads: uint16(out), QPN: end.QPN, PSN: end.PSN, RKey: s.mr.RKey(),
			VAddr: s.mr.Addr() + uint64(s.targetOffset(i)), GID: interop.GIDOf(end.Addr),
		})
	}
	s.remote = make([]Address, len(s.qps))
}

// sourceOffset and targetOffset say where in the region the two buffers of a
// queue pair are.
func (s *session) sourceOffset(i int) int { return i * s.slot }
func (s *session) targetOffset(i int) int { return (len(s.qps) + i) * s.slot }

// connect exchanges addresses, connects the queue pairs, and meets the peer
// again as often as the test wants it.
func (s *session) connect(ctx context.Context) error {
	sync := func(step string) error {
		_, err := s.shake(ctx, step, 0, true)
		return err
	}
	t := s.cfg.Test
	if t.Kind == Latency && t.Verb != Send {
		if err := sync("first handshake"); err != nil {
			return err
		}
	}
	for i := range s.qps {
		if err := s.meet(ctx, i); err != nil {
			return err
		}
	}
	for i, q := range s.qps {
		if err := s.connectQP(ctx, q, s.remote[i]); err != nil {
			return err
		}
	}
	if t.Verb == Send {
		if err := sync("handshake after connecting"); err != nil {
			return err
		}
	}
	for i := range s.qps {
		if _, err := s.shake(ctx, fmt.Sprintf("second address of queue pair %d of %d", i+1, len(s.qps)), i, true); err != nil {
			return err
		}
	}
	if t.Verb == Send {
		return nil // the last one comes when receives are posted
	}
	return sync("handshake before the run")
}

// meet exchanges the addresses of one queue pair.
func (s *session) meet(ctx context.Context, i int) error {
	a, err := s.shake(ctx, fmt.Sprintf("address of queue pair %d of %d", i+1, len(s.qps)), i, true)
	if err != nil {
		return err
	}
	if err := a.GID.CheckPeer(s.dev.Addr()); err != nil {
		return err
	}
	if i > 0 && a.QPN == s.remote[i-1].QPN {
		return fmt.Errorf("the peer has %d queue pairs and this side %d: give both the same number (-q)", i, len(s.qps))
	}
	s.remote[i] = a
	return nil
}

func (s *session) connectQP(ctx context.Context, q *verbs.QP, r Address) error {
	var access verbs.Access
	switch s.cfg.Test.Verb {
	case Send:
		access = verbs.LocalWrite | verbs.RemoteWrite
	case Write:
		access = verbs.RemoteWrite
	case Read:
		access = verbs.RemoteRead
	case Atomic:
		access = verbs.RemoteAtomic
	}
	most := s.dev.Query().MaxQPInitRdAtom
	if s.cfg.Test.hasReadDepth() {
		most = min(most, s.cfg.OutstandingReads)
	}
	return q.Connect(ctx, verbs.Endpoint{Addr: r.GID.Addr(), QPN: r.QPN, PSN: r.PSN}, verbs.WithConfig(verbs.ConnectConfig{
		PathMTU: s.mtu, Access: access, Timeout: s.cfg.Timeout,
		MaxRdAtomic:     verbs.Set(uint8(max(min(most, int(r.OutReads)), 1))),
		MaxDestRdAtomic: verbs.Set(uint8(s.local[0].OutReads)),
		SourcePort:      s.cfg.SourcePort,
		TrafficClass:    s.cfg.TrafficClass,
	}))
}

// shake sends an own address message and takes one from the peer, which
// answers at once unless soon is false.
func (s *session) shake(ctx context.Context, step string, i int, soon bool) (Address, error) {
	mine := s.local[i].append(make([]byte, 0, addressLen))
	var theirs [addressLen]byte
	exchange := s.ctl.Join
	if soon {
		exchange = s.ctl.Exchange
	}
	if err := exchange(ctx, step, mine, theirs[:]); err != nil {
		var pe *interop.ProtocolError
		if errors.As(err, &pe) && len(pe.Got) == shortAddressLen && isShortAddress(pe.Got) {
			pe.Want = "an address with a GID, 108 bytes: the peer runs without one, start it with a GID index (-x)"
		}
		return Address{}, err
	}
	return parseAddress(step, theirs[:])
}

// ready is the handshake before a run of SEND: receives are posted.
func (s *session) ready(ctx context.Context) error {
	_, err := s.shake(ctx, "handshake before the run", 0, false)
	return err
}

// over is the handshake after a run.
func (s *session) over(ctx context.Context) error {
	_, err := s.shake(ctx, "handshake after the run", 0, false)
	return err
}

// swapReports exchanges results.
func (s *session) swapReports(ctx context.Context, mine report) (report, error) {
	var theirs [5]uint64
	for i, v := range mine.items() {
		var b [reportLen]byte
		step := fmt.Sprintf("report, item %d of 5", i+1)
		if err := s.ctl.Join(ctx, step, binary.BigEndian.AppendUint64(nil, v), b[:]); err != nil {
			return report{}, err
		}
		theirs[i] = binary.BigEndian.Uint64(b[:])
	}
	return reportOf(theirs), nil
}

// finishLimit bounds the wait for the peer to end the connection too.
const finishLimit = 2 * time.Second

// bye closes the connection: a handshake, then both sides say that they are
// done and read no more.
func (s *session) bye(ctx context.Context) error {
	if err := s.over(ctx); err != nil {
		return err
	}
	s.ctl.Write(ctx, "end", []byte(done)) // the peer may be gone by now, and may
	s.ctl.Finish(finishLimit)
	return nil
}

// guard starts the watch over a part of the run, that of the control
// connection included. end must be called before the connection is used again.
func (s *session) guard(ctx context.Context, size int, total uint64) (g *work.Guard, end func()) {
	var report func(uint64)
	if s.cfg.OnProgress != nil {
		report = func(n uint64) { s.cfg.OnProgress(size, n, total) }
	}
	g = work.NewGuard(ctx, s.cfg.IdleTimeout, report)
	unwatch := s.ctl.Watch(g.Cancel)
	return g, func() {
		unwatch()
		g.Stop()
	}
}

// record keeps a result.
func (s *session) record(r Result) {
	r.Test, r.Role, r.QPs, r.MTU, r.Bidirectional = s.cfg.Test, s.role, s.cfg.QPs, s.mtu.Bytes(), s.cfg.Bidirectional
	s.results = append(s.results, r)
	if s.cfg.OnResult != nil {
		s.cfg.OnResult(r)
	}
}
