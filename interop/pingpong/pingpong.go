// Package pingpong speaks the protocol of ibv_rc_pingpong (rdma-core 44), as
// server and as client: an exchange of addresses over TCP, then messages that
// go back and forth with SEND. The two sides negotiate nothing: both need the
// same size, number of iterations and path MTU. The first message shows another
// size, and the error names it. An ibv_rc_pingpong on the other side needs a
// GID index (-g): without it, its addresses have no GID. The package has no
// on-demand paging, device memory and hardware timestamps, for which the
// original has flags.
package pingpong

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/gosoftroce/rocev2/interop"
	"github.com/gosoftroce/rocev2/interop/internal/control"
	"github.com/gosoftroce/rocev2/interop/internal/work"
	"github.com/gosoftroce/rocev2/verbs"
)

// Result is what a run measured.
type Result struct {
	Bytes      uint64 // payload in both directions
	Iterations int
	Elapsed    time.Duration

	// Unconfirmed says that the acknowledgement of the very last message
	// never came: the peer was gone by then.
	Unconfirmed bool
}

// Gbps returns the rate in both directions together, in 10^9 bits a second.
func (r Result) Gbps() float64 { return float64(r.Bytes) * 8 / 1e9 / r.Elapsed.Seconds() }

// Run runs one ping-pong over dev with the peer at the other end of conn,
// which it closes. It returns when all messages are through, when something
// failed, or when ctx ends.
func Run(ctx context.Context, dev *verbs.Device, conn net.Conn, role interop.Role, c Config) (Result, error) {
	defer conn.Close()
	c, err := c.withDefaults()
	if err != nil {
		return Result{}, err
	}
	s := &session{dev: dev, role: role, cfg: c, ctl: control.New(conn, role, c.HandshakeTimeout)}
	var remote Address
	if role == interop.Server {
		if remote, err = readAddress(ctx, s.ctl, dev, &c); err != nil {
			return Result{}, fmt.Errorf("pingpong: %w", interop.Cause(ctx, err))
		}
	}
	return s.all(ctx, remote)
}

// Serve is Run as the server of the first client of ln that sends an address
// which it may have. All others are refused: they neither end the server nor
// hold it up. Serve closes ln.
func Serve(ctx context.Context, dev *verbs.Device, ln net.Listener, c Config) (Result, error) {
	defer ln.Close()
	c, err := c.withDefaults()
	if err != nil {
		return Result{}, err
	}
	ctl, remote, err := control.Admit(ctx, ln, control.Admission{Timeout: c.HandshakeTimeout, Refused: c.OnRefused},
		func(ctx context.Context, ctl *control.Conn) (Address, error) { return readAddress(ctx, ctl, dev, &c) })
	if err != nil {
		return Result{}, fmt.Errorf("pingpong: %w", err)
	}
	defer ctl.Close()
	s := &session{dev: dev, role: interop.Server, cfg: c, ctl: ctl}
	return s.all(ctx, remote)
}

// all runs a session. remote is the address that the client sent, if this is
// the server.
func (s *session) all(ctx context.Context, remote Address) (Result, error) {
	defer s.close()
	if err := s.setUp(); err != nil {
		return Result{}, fmt.Errorf("pingpong: %w", err)
	}
	if err := s.exchange(ctx, remote); err != nil {
		return Result{}, fmt.Errorf("pingpong: %w", interop.Cause(ctx, err))
	}
	res, err := s.run(ctx)
	if err != nil {
		return Result{}, fmt.Errorf("pingpong: %w", interop.Cause(ctx, err))
	}
	s.linger(ctx)
	return res, nil
}

// session is one run.
type session struct {
	dev  *verbs.Device
	role interop.Role
	cfg  Config
	ctl  *control.Conn

	pd    *verbs.PD
	mr    *verbs.MR
	w     *work.Waiter
	qp    *verbs.QP
	recvs []verbs.RecvWR // a batch to post
	wc    [32]verbs.WC
}

func (s *session) close() {
	if s.qp != nil {
		s.qp.Close()
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
	recvID = 1
	sendID = 2

	fill = 0x7b
)

// setUp makes everything that the exchange of addresses needs, receives
// posted.
func (s *session) setUp() (err error) {
	c := &s.cfg
	if s.pd, err = s.dev.AllocPD(); err != nil {
		return err
	}
	// One buffer for both directions, as the original has it: what comes in
	// is what goes out next, so the content that the client chose survives.
	if s.mr, err = s.pd.AllocMemory(c.Size, verbs.LocalWrite); err != nil {
		return err
	}
	buf := s.mr.Bytes()
	for i := range buf {
		buf[i] = fill
	}
	if c.Validate && s.role == interop.Client {
		for i := 0; i < len(buf); i += os.Getpagesize() {
			buf[i] = 0
		}
	}
	mode := work.Block
	if c.Events {
		mode = work.Events
	}
	if s.w, err = work.NewWaiter(s.dev, c.RxDepth+1, mode); err != nil {
		return err
	}
	s.qp, err = s.pd.CreateQP(verbs.QPConfig{SendCQ: s.w.CQ, RecvCQ: s.w.CQ, MaxSendWR: 1, MaxRecvWR: c.RxDepth})
	if err != nil {
		return err
	}
	if err := s.qp.Init(s.connectConfig()); err != nil {
		return err
	}
	sg := []verbs.SGE{s.mr.Slice(0, c.Size)}
	s.recvs = make([]verbs.RecvWR, c.RxDepth)
	for i := range s.recvs {
		s.recvs[i] = verbs.RecvWR{ID: recvID, SGList: sg}
	}
	return s.qp.PostRecv(s.recvs...)
}

func (s *session) connectConfig() verbs.ConnectOption {
	return verbs.WithConfig(verbs.ConnectConfig{
		PathMTU:         s.cfg.MTU,
		Access:          verbs.LocalWrite, // nothing for the peer
		MaxRdAtomic:     verbs.Set(1),
		MaxDestRdAtomic: verbs.Set(1),
		SourcePort:      s.cfg.SourcePort,
		TrafficClass:    s.cfg.TrafficClass,
	})
}

// readAddress receives the peer's address and checks it. It looks at the first
// bytes alone, since whoever speaks another protocol may send no more.
func readAddress(ctx context.Context, ctl *control.Conn, dev *verbs.Device, c *Config) (Address, error) {
	const step, head = "address", 5 // the LID and a colon
	var b [addressLen]byte
	if err := ctl.Read(ctx, step, b[:head]); err != nil {
		return Address{}, err
	}
	if _, ok := parseHex(b[:head-1]); !ok || b[head-1] != ':' {
		return Address{}, &interop.ProtocolError{Step: step, Got: b[:head], Want: addressForm}
	}
	if err := ctl.Read(ctx, step, b[head:]); err != nil {
		return Address{}, control.Whole(err, b[:], head, addressForm)
	}
	a, err := parseAddress(b[:])
	if err != nil {
		return Address{}, err
	}
	if err := a.GID.CheckPeer(dev.Addr()); err != nil {
		return Address{}, err
	}
	return a, c.Peers.Check(a.GID, ctl.Peer())
}

// exchange tells each side the address of the other. The server is ready to
// receive and to send before it answers; the client says "done" before it
// connects.
func (s *session) exchange(ctx context.Context, remote Address) (err error) {
	end := s.qp.Endpoint()
	local := Address{QPN: end.QPN, PSN: end.PSN, GID: interop.GIDOf(end.Addr)}
	mine := local.append(make([]byte, 0, addressLen))
	if s.role == interop.Client {
		if err := s.ctl.Write(ctx, "address", mine); err != nil {
			return err
		}
		if remote, err = readAddress(ctx, s.ctl, s.dev, &s.cfg); err != nil {
			return err
		}
	}
	if s.cfg.OnAddresses != nil {
		s.cfg.OnAddresses(local, remote)
	}
	peer := verbs.Endpoint{Addr: remote.GID.Addr(), QPN: remote.QPN, PSN: remote.PSN}
	if s.role == interop.Client {
		if err := s.ctl.Write(ctx, "end of the exchange", []byte(done)); err != nil {
			return err
		}
		s.ctl.Close()
		return s.qp.Connect(ctx, peer, s.connectConfig())
	}
	if err := s.qp.Connect(ctx, peer, s.connectConfig()); err != nil {
		return err
	}
	if err := s.ctl.Write(ctx, "address", mine); err != nil {
		return err
	}
	return s.readDone(ctx)
}

const done = "done\x00"

func (s *session) readDone(ctx context.Context) error {
	var b [len(done)]byte
	const step = "end of the exchange"
	if err := s.ctl.Read(ctx, step, b[:]); err != nil {
		return err
	}
	if string(b[:]) != done {
		return &interop.ProtocolError{Step: step, Got: b[:], Want: fmt.Sprintf("%q", done)}
	}
	s.ctl.Close()
	return nil
}

// counts is where a run stands.
type counts struct {
	posted, sent, received int
	reposted               int // receives that were posted in place of used ones
	sending                bool
	awaiting               bool
	foreign                int // bytes of a message of another size, or 0
}

// sizeError says that the peer was started with another message size.
func (s *session) sizeError(theirs string) error {
	return fmt.Errorf("the two sides run different tests: messages (-s) have %d bytes here, %s there", s.cfg.Size, theirs)
}

func (s *session) run(ctx context.Context) (Result, error) {
	c := &s.cfg
	var report func(uint64)
	if c.OnProgress != nil {
		report = func(n uint64) { c.OnProgress(n, 2*uint64(c.Iterations)) }
	}
	g := work.NewGuard(ctx, c.IdleTimeout, nil, report)
	defer g.Stop()
	res := Result{Bytes: 2 * uint64(c.Size) * uint64(c.Iterations), Iterations: c.Iterations}
	start := time.Now()
	n := counts{awaiting: true}
	if s.role == interop.Client {
		if err := s.send(&n); err != nil {
			return res, err
		}
	}
	for n.sent < c.Iterations || n.received < c.Iterations {
		k, err := s.w.Next(g, s.wc[:])
		if err != nil {
			return res, fmt.Errorf("after %d messages sent and %d received: %w", n.sent, n.received, err)
		}
		g.Add(k)
		if err := s.handle(s.wc[:k], &n); err != nil {
			if !s.lastUnconfirmed(err, &n) {
				return res, err
			}
			res.Unconfirmed = true
			break
		}
	}
	res.Elapsed = time.Since(start)
	return res, s.validate()
}

// handle takes completions. It sends the next message when the last one is
// complete and the peer's has arrived.
func (s *session) handle(wc []verbs.WC, n *counts) error {
	for i := range wc {
		switch {
		case n.foreign > 0 && wc[i].ID == sendID:
			return s.sizeError(fmt.Sprint(n.foreign))
		case wc[i].ID == recvID && wc[i].Status == verbs.StatusLocLenErr:
			return s.sizeError("more")
		case wc[i].Status != verbs.StatusSuccess:
			return &interop.CompletionError{Doing: "ping-pong", Done: uint64(n.sent + n.received), WC: wc[i]}
		case wc[i].ID == recvID && int(wc[i].ByteLen) != s.cfg.Size && n.foreign == 0:
			n.foreign = int(wc[i].ByteLen)
			if n.sent == s.cfg.Iterations {
				return s.sizeError(fmt.Sprint(n.foreign))
			}
		}
		if wc[i].ID == sendID {
			n.sent++
			n.sending = false
		} else {
			n.received++
			n.awaiting = false
		}
		if err := s.repost(n); err != nil {
			return err
		}
		if n.posted < s.cfg.Iterations && !n.sending && !n.awaiting {
			n.awaiting = true
			if err := s.send(n); err != nil {
				return err
			}
		}
	}
	return nil
}

// repost fills the receive queue up when it runs low.
func (s *session) repost(n *counts) error {
	used := n.received - n.reposted
	if len(s.recvs)-used > 1 || n.received >= s.cfg.Iterations || used == 0 {
		return nil
	}
	n.reposted += used
	return s.qp.PostRecv(s.recvs[:used]...)
}

func (s *session) send(n *counts) error {
	n.posted++
	n.sending = true
	return s.qp.PostSend(verbs.SendWR{
		ID: sendID, Opcode: verbs.OpSend, Signaled: true, SGList: s.recvs[0].SGList,
	})
}

// lastUnconfirmed reports whether the only failure is that the acknowledgement
// of the last message did not come. The originals exit at once when they are
// done, so nobody is left to repeat it if it is lost.
func (s *session) lastUnconfirmed(err error, n *counts) bool {
	var ce *interop.CompletionError
	return errors.As(err, &ce) && ce.WC.Status == verbs.StatusRetryExcErr &&
		n.received == s.cfg.Iterations && n.sent == s.cfg.Iterations-1 && n.posted == s.cfg.Iterations
}

// ErrContent is wrapped by the error of a run whose buffer does not hold what
// it should.
var ErrContent = errors.New("wrong content")

// validate checks the pattern that the client writes: a zero at the start of
// every page, the fill byte elsewhere.
func (s *session) validate() error {
	if !s.cfg.Validate {
		return nil
	}
	page := os.Getpagesize()
	for i, b := range s.mr.Bytes() {
		want := byte(fill)
		if i%page == 0 {
			want = 0
		}
		if b != want {
			return fmt.Errorf("%w: byte %d of the buffer is 0x%02x, expected 0x%02x (both sides must validate)", ErrContent, i, b, want)
		}
	}
	return nil
}

func (s *session) linger(ctx context.Context) {
	if s.cfg.Linger <= 0 {
		return
	}
	t := time.NewTimer(s.cfg.Linger)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
