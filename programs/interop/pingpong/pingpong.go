// Package pingpong speaks the protocols of ibv_rc_pingpong, ibv_uc_pingpong,
// ibv_ud_pingpong, ibv_srq_pingpong and ibv_xsrq_pingpong (rdma-core 44), as
// server and as client: an exchange of addresses over TCP, then messages that
// go back and forth with SEND. The two sides negotiate nothing: both need the
// same service, size, number of iterations and path MTU. The first message
// shows another size, and the error names it. An original on the other side
// needs a GID index (-g): without it, its addresses have no GID.
//
// UC and UD do not repeat what is lost. Then an original waits for ever; here
// the run ends with an *interop.LossError.
//
// The package has no on-demand paging, device memory and hardware timestamps,
// for which the originals have flags, and its XRC server has one client.
package pingpong

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/gosoftroce/rocev2/hca/task"
	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/internal/control"
	"github.com/gosoftroce/rocev2/programs/interop/internal/lanes"
	"github.com/gosoftroce/rocev2/programs/interop/internal/work"
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
	c, err := c.withDefaults(dev)
	if err != nil {
		return Result{}, err
	}
	s := &session{dev: dev, role: role, cfg: c, ctl: control.New(conn, verbs.HCA(dev).Tasks(), role, c.HandshakeTimeout)}
	var first Address
	if role == interop.Server {
		if first, err = readFirst(ctx, s.ctl, dev, &c); err != nil {
			return Result{}, fmt.Errorf("pingpong: %w", interop.Cause(ctx, err))
		}
	}
	return s.all(ctx, first)
}

// Serve is Run as the server of the first client of ln that sends an address
// which it may have. All others are refused: they neither end the server nor
// hold it up. Serve closes ln.
func Serve(ctx context.Context, dev *verbs.Device, ln net.Listener, c Config) (Result, error) {
	defer ln.Close()
	c, err := c.withDefaults(dev)
	if err != nil {
		return Result{}, err
	}
	ctl, first, err := control.Admit(ctx, ln, control.Admission{Tasks: verbs.HCA(dev).Tasks(), Timeout: c.HandshakeTimeout, Refused: c.OnRefused},
		func(ctx context.Context, ctl *control.Conn) (Address, error) { return readFirst(ctx, ctl, dev, &c) })
	if err != nil {
		return Result{}, fmt.Errorf("pingpong: %w", err)
	}
	defer ctl.Close()
	s := &session{dev: dev, role: interop.Server, cfg: c, ctl: ctl}
	return s.all(ctx, first)
}

// all runs a session. first is the first address that the client sent, if this
// is the server.
func (s *session) all(ctx context.Context, first Address) (Result, error) {
	defer s.close()
	if err := s.setUp(); err != nil {
		return Result{}, fmt.Errorf("pingpong: %w", err)
	}
	if err := s.exchange(ctx, first); err != nil {
		return Result{}, fmt.Errorf("pingpong: %w", interop.Cause(ctx, err))
	}
	res, err := s.run(ctx)
	if err == nil && s.cfg.traits().end == endAfterRun {
		err = s.farewell(ctx)
	}
	if err != nil {
		return Result{}, fmt.Errorf("pingpong: %w", interop.Cause(ctx, err))
	}
	s.linger(ctx)
	return res, nil
}

// tasks starts what runs beside the session, and has the time.
func (s *session) tasks() task.Runner { return verbs.HCA(s.dev).Tasks() }

// session is one run.
type session struct {
	dev  *verbs.Device
	role interop.Role
	cfg  Config
	ctl  *control.Conn

	pd    *verbs.PD
	mr    *verbs.MR // what precedes a message, then the message
	grh   int       // bytes that precede it
	w     *work.Waiter
	lanes *lanes.Set
	recvs []verbs.RecvWR // a batch to post
	wc    [32]verbs.WC
}

func (s *session) close() {
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

const (
	recvID = 1
	sendID = 2

	fill = 0x7b
)

// message is the buffer of a message.
func (s *session) message() []byte { return s.mr.Bytes()[s.grh:] }

// setUp makes everything that the exchange of addresses needs, receives
// posted.
func (s *session) setUp() (err error) {
	c := &s.cfg
	if s.pd, err = s.dev.AllocPD(); err != nil {
		return err
	}
	// One buffer for both directions, as the originals have it: what comes
	// in is what goes out next, so the content that the first sender chose
	// survives.
	s.grh = lanes.GRH(c.traits().service)
	if s.mr, err = s.pd.AllocMemory(s.grh+c.Size, verbs.LocalWrite); err != nil {
		return err
	}
	buf := s.message()
	for i := range buf {
		buf[i] = fill
	}
	if c.Validate && s.sendsFirst() {
		for i := 0; i < len(buf); i += os.Getpagesize() {
			buf[i] = 0
		}
	}
	mode := work.Block
	if c.Events {
		mode = work.Events
	}
	if s.w, err = work.NewWaiter(s.dev, c.RxDepth+c.QPs, mode); err != nil {
		return err
	}
	s.lanes, err = lanes.New(lanes.Config{
		Dev: s.dev, PD: s.pd, Service: c.traits().service, Shared: c.traits().shared, Count: c.QPs, CQ: s.w.CQ,
		MaxSendWR: 1, MaxRecvWR: c.RxDepth, Sends: true, Receives: true,
	})
	if err != nil {
		return err
	}
	if err := s.lanes.Init(s.connectConfig()); err != nil {
		return err
	}
	sg := []verbs.SGE{s.mr.Slice(0, s.grh+c.Size)}
	s.recvs = make([]verbs.RecvWR, c.RxDepth)
	for i := range s.recvs {
		s.recvs[i] = verbs.RecvWR{ID: recvID, SGList: sg}
	}
	return s.lanes.PostRecv(0, s.recvs...)
}

func (s *session) connectConfig() verbs.ConnectConfig {
	return verbs.ConnectConfig{
		PathMTU:         s.cfg.MTU,
		Access:          verbs.LocalWrite, // nothing for the peer
		MaxRdAtomic:     verbs.Set(1),
		MaxDestRdAtomic: verbs.Set(1),
		SourcePort:      s.cfg.SourcePort,
		TrafficClass:    s.cfg.TrafficClass,
	}
}
