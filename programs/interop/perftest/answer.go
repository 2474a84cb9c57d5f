package perftest

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/internal/control"
	"github.com/gosoftroce/rocev2/programs/interop/internal/lanes"
	"github.com/gosoftroce/rocev2/programs/interop/internal/work"
	"github.com/gosoftroce/rocev2/verbs"
)

// AnswerConfig says how Answer serves clients. Zero values mean defaults.
type AnswerConfig struct {
	Service interop.Service // of clients that are not this software; not XRC
	MTU     verbs.MTU       // as in Config
	MaxSize int             // bytes of the largest message; 0 means 8 MiB, the largest of -a
	Peers   interop.Peers   // as in Config

	HandshakeTimeout time.Duration // as in Config
	IdleTimeout      time.Duration // as in Config
}

// Answered is what came of a client.
type Answered struct {
	Test    Test
	Version string // of the client
	Own     bool   // the client is this software, and has said what it runs

	// Results are what this side measured, or what the client reports.
	Results []Result
}

// maxAnswered is how many queue pairs one client may have.
const maxAnswered = 128

// Answer serves one client whose test is not known, and closes conn.
//
// A client of this software says what it runs, so all tests, services and
// numbers are served. An original does not say. Answer finds out by what it
// does: its queue pairs by the addresses that it sends; READ, WRITE and atomics
// need nothing of this side; one message that waits for an answer is send_lat,
// others are send_bw; a client with one queue pair that does nothing waits for
// the first WRITE of write_lat. That WRITE fills 4096 bytes, the least that an
// original has room for, so that the client finds its byte whatever the size is
// up to that. The answer shows the size.
//
// Some things do not show: the transport service other than by
// AnswerConfig.Service, -b, --use-srq of XRC, and write_lat with -a, or with
// more than 4096 bytes. For them a server must be told: Run.
func Answer(ctx context.Context, dev *verbs.Device, conn net.Conn, c AnswerConfig) (Answered, error) {
	defer conn.Close()
	if c.Service == interop.XRC {
		return Answered{}, interop.BadConfig("clients of XRC cannot be told from each other: name the test")
	}
	size := cmp.Or(c.MaxSize, 1<<allSizesLast)
	cfg, err := Config{
		Test: Test{Send, Bandwidth}, Service: c.Service, MTU: c.MTU, Peers: c.Peers, Timeout: answerTimeout, HandshakeTimeout: c.HandshakeTimeout, IdleTimeout: c.IdleTimeout,
	}.withDefaults(dev)
	if err != nil {
		return Answered{}, fmt.Errorf("perftest: %w", err)
	}
	cfg.adopt = 8 * size
	ctl := control.New(conn, tasksOf(dev), interop.Server, cfg.HandshakeTimeout)
	g, err := greet(ctx, ctl, dev, &cfg)
	if err != nil {
		return Answered{}, fmt.Errorf("perftest: %w", interop.Cause(ctx, err))
	}
	s := &session{dev: dev, role: interop.Server, cfg: cfg, ctl: ctl, greeting: g}
	if g.own {
		list, err := s.all(ctx)
		return Answered{Test: cfg.Test, Version: g.version, Own: true, Results: list}, err
	}
	a := &answerer{session: s, size: size, echo: Test{Send, Bandwidth}}
	defer a.close()
	if err := a.run(ctx); err != nil {
		return Answered{Version: g.version}, fmt.Errorf("perftest: %w", interop.Cause(ctx, err))
	}
	return Answered{Test: a.test(), Version: g.version, Results: []Result{a.result()}}, nil
}

// answerer serves a client that does not say what it runs. One goroutine
// answers on the control connection, another one takes completions.
type answerer struct {
	*session
	size int // bytes of a message at most

	mu      sync.Mutex
	clients []*answerLane

	shakes   atomic.Int64 // answered handshakes
	last     atomic.Int64 // when the last one was, in Unix nanoseconds
	slow     atomic.Int64 // the longest that the client took to answer, in nanoseconds
	reported *report

	echo  Test // what the traffic has shown of SEND and write_lat
	known bool
	meter meter
	times *Histogram
	bytes int // of a message

	due, pending int // answers of send_lat: to be sent, and not completed
}

// answerLane is a queue pair of the client, and the one that serves it.
type answerLane struct {
	*lanes.Set
	local, remote Address
	owed          int // receives used and not posted again
}

// What a decision waits for at least. A second message of send_bw comes within
// a round trip; the first of any test but write_lat, at once after the last
// handshake. A client that is slow to answer gets more time.
const (
	answerDepth = 512
	answerSends = 64

	// answerTimeout is the local ACK timeout, 4.3 s with all retries: a
	// host that is busy is not one that is gone. The control connection
	// shows that.
	answerTimeout = 17

	secondLimit = 30 * time.Millisecond
	firstLimit  = time.Second // a wrong guess ends a client, and a busy guest was seen to pause for 0.3 s
	decideTick  = 5 * time.Millisecond
	blockSize   = pageSize // of the first WRITE of write_lat
)

func (a *answerer) close() {
	for _, l := range a.clients {
		l.Close()
	}
	a.session.close()
}

func (a *answerer) run(ctx context.Context) (err error) {
	if a.pd, err = a.dev.AllocPD(); err != nil {
		return err
	}
	// What the client writes, then what this side sends. All queue pairs
	// share it: the content is never read.
	a.grh = lanes.GRH(a.cfg.Service)
	all := verbs.LocalWrite | verbs.RemoteWrite | verbs.RemoteRead | verbs.RemoteAtomic
	if a.mr, err = a.pd.AllocMemory(a.source()+blockSize, all); err != nil {
		return err
	}
	if a.w, err = work.NewWaiter(a.dev, maxAnswered*(answerDepth+answerSends), work.Spin); err != nil {
		return err
	}
	g := work.NewGuard(ctx, tasksOf(a.dev), a.cfg.IdleTimeout, a.received, nil)
	defer g.Stop()
	var err2 error
	done := tasksOf(a.dev).NewGroup()
	done.Go(func() {
		err2 = a.control(g.Ctx)
		g.Cancel(errPeerDone)
	})
	terr := a.traffic(g) // never nil: g ends it
	g.Cancel(terr)
	done.Wait()
	err = err2
	if !a.cfg.Service.Reliable() {
		a.settle()
	}
	if !errors.Is(terr, errPeerDone) {
		return terr
	}
	if a.known && a.echo == (Test{Write, Latency}) && errors.Is(err, interop.ErrPeerClosed) {
		return nil // the original just leaves
	}
	return err
}

// source is where in the region this side's own messages are.
func (a *answerer) source() int {
	return (max(a.grh+a.size, 2*a.cycle) + pageSize - 1) &^ (pageSize - 1)
}

// snapshot returns the queue pairs that there are now.
func (a *answerer) snapshot() []*answerLane {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.clients
}

func (a *answerer) received() (n uint64) {
	for _, l := range a.snapshot() {
		n += l.Received()
	}
	return n + uint64(a.shakes.Load())
}

// control answers what comes on the control connection, until the client says
// that it is done.
func (a *answerer) control(ctx context.Context) error {
	for {
		if a.first == nil {
			b, err := a.ctl.Peek(ctx, "next item", 1)
			if err != nil {
				return err
			}
			switch b[0] {
			case done[0]:
				return a.finish(ctx)
			case 0: // the first byte of a size
				if err := a.takeReport(ctx); err != nil {
					return err
				}
				continue
			}
		}
		if err := a.answerShake(ctx); err != nil {
			return err
		}
	}
}

// takeReport exchanges results: the client's for none.
func (a *answerer) takeReport(ctx context.Context) error {
	var theirs [5]uint64
	for i, mine := range (report{}).items() {
		var b [reportLen]byte
		if err := a.ctl.Join(ctx, fmt.Sprintf("report, item %d of 5", i+1), binary.BigEndian.AppendUint64(nil, mine), b[:]); err != nil {
			return err
		}
		theirs[i] = binary.BigEndian.Uint64(b[:])
	}
	r := reportOf(theirs)
	a.reported = &r
	return nil
}

// finish reads the client's last word.
func (a *answerer) finish(ctx context.Context) error {
	b := make([]byte, len(done))
	if err := a.ctl.Read(ctx, "end", b); err != nil {
		return err
	}
	if string(b) != done {
		return &interop.ProtocolError{Step: "end", Got: b, Want: fmt.Sprintf("%q, or an address", done)}
	}
	a.ctl.Write(ctx, "end", []byte(done)) // the client may be gone by now, and may
	a.ctl.Finish(finishLimit)
	return nil
}

// answerShake reads an address, and answers with that of the queue pair which
// serves it: a new one if the address is new.
func (a *answerer) answerShake(ctx context.Context) error {
	const step = "handshake"
	b := a.first
	if a.first = nil; b == nil {
		b = make([]byte, addressLen)
		if err := readAddress(ctx, a.ctl.Read, step, b); err != nil {
			return err
		}
	}
	remote, err := parseAddress(step, b)
	if err != nil {
		return err
	}
	if last := a.last.Load(); last != 0 {
		a.slow.Store(max(a.slow.Load(), tasksOf(a.dev).Now().UnixNano()-last))
	}
	lane, err := a.laneOf(ctx, remote)
	if err != nil {
		return err
	}
	if err := a.ctl.Write(ctx, step, lane.local.append(make([]byte, 0, addressLen))); err != nil {
		return err
	}
	a.last.Store(tasksOf(a.dev).Now().UnixNano())
	a.shakes.Add(1)
	return nil
}

// laneOf returns what serves a queue pair of the client.
func (a *answerer) laneOf(ctx context.Context, remote Address) (*answerLane, error) {
	list := a.snapshot()
	for _, l := range list {
		if l.remote.QPN == remote.QPN {
			return l, nil
		}
	}
	if len(list) >= maxAnswered {
		return nil, fmt.Errorf("the client has more than %d queue pairs (-q)", maxAnswered)
	}
	if err := checkAddress(remote, a.ctl, a.dev, &a.cfg); err != nil {
		return nil, err
	}
	set, err := lanes.New(lanes.Config{
		Dev: a.dev, PD: a.pd, Service: a.cfg.Service, Count: 1, CQ: a.w.CQ,
		MaxSendWR: answerSends, MaxRecvWR: answerDepth, Sends: true, Receives: true,
	})
	if err != nil {
		return nil, err
	}
	l := &answerLane{Set: set, remote: remote, owed: answerDepth}
	// Completions may come as soon as it is connected.
	a.mu.Lock()
	a.clients = append(list[:len(list):len(list)], l)
	a.mu.Unlock()
	return l, a.connectLane(ctx, len(list), l)
}

// connectLane makes a queue pair ready for all that a client may do.
func (a *answerer) connectLane(ctx context.Context, i int, l *answerLane) error {
	out := a.dev.Query().MaxDestRdAtomic
	c := verbs.ConnectConfig{
		PathMTU: a.mtu, Access: verbs.LocalWrite | verbs.RemoteWrite | verbs.RemoteRead | verbs.RemoteAtomic, Timeout: a.cfg.Timeout,
		MaxRdAtomic: verbs.Set(uint8(1)), MaxDestRdAtomic: verbs.Set(uint8(out)),
	}
	if err := l.Init(c); err != nil {
		return err
	}
	end := l.Lanes[0].Recv.Endpoint()
	l.local = Address{
		OutReads: uint16(out), QPN: end.QPN, PSN: end.PSN, RKey: a.mr.RKey(), VAddr: a.mr.Addr(), GID: interop.GIDOf(end.Addr),
	}
	if err := a.repost(i, l); err != nil {
		return err
	}
	r := &l.remote
	return l.Connect(ctx, 0, lanes.Peer{Addr: r.GID.Addr(), SendQPN: r.QPN, SendPSN: r.PSN, RecvQPN: r.QPN, RecvPSN: r.PSN}, c)
}
