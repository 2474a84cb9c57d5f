package pingpong

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/internal/control"
	"github.com/gosoftroce/rocev2/programs/interop/internal/lanes"
	"github.com/gosoftroce/rocev2/programs/interop/internal/work"
	"github.com/gosoftroce/rocev2/verbs"
)

// AnswerConfig says how Answer serves clients. Zero values mean defaults.
type AnswerConfig struct {
	// Service is what a client is taken for whose first message does not
	// tell: RC, UC or UD.
	Service Service
	MTU     verbs.MTU // path MTU, not for UD; 0 means DefaultMTU
	MaxSize int       // bytes of the largest message; 0 means 1 MiB
	Peers   interop.Peers

	HandshakeTimeout time.Duration // as in Config; also for the first message
	// IdleTimeout is the silence after which a client is taken to be
	// through: the originals do not say so. 0 means 2 s.
	IdleTimeout time.Duration
}

// Answered is what came of a client.
type Answered struct {
	Service Service
	QPs     int
	Result
}

// Answer serves one client whose parameters are not known, and closes conn.
// Every message is sent back, so sizes and numbers need not be known. SRQ is
// recognised by its 256 addresses, and XRC by the form of its address, which it
// serves with its default parameters. RC, UC and UD say the same before they
// begin: AnswerConfig.Service says which it is.
func Answer(ctx context.Context, dev *verbs.Device, conn net.Conn, c AnswerConfig) (Answered, error) {
	defer conn.Close()
	if c.Service > UD {
		return Answered{}, interop.BadConfig("pingpong: a client that says nothing else is RC, UC or UD, not %v", c.Service)
	}
	cfg, err := Config{Service: c.Service, MTU: c.MTU, Peers: c.Peers, HandshakeTimeout: c.HandshakeTimeout}.withDefaults(dev)
	if err != nil {
		return Answered{}, err
	}
	s := &session{dev: dev, role: interop.Server, cfg: cfg, ctl: control.New(conn, verbs.HCA(dev).Tasks(), interop.Server, cfg.HandshakeTimeout)}
	a := &answerer{session: s, size: cmp.Or(c.MaxSize, 1<<20), idle: cmp.Or(c.IdleTimeout, 2*time.Second)}
	if s.cfg.Service, err = a.recognise(ctx); err == nil && s.cfg.Service == XRC {
		return a.fixed(ctx)
	}
	if err == nil {
		defer s.close()
		err = a.run(ctx)
	}
	if err != nil {
		return Answered{}, fmt.Errorf("pingpong: %w", interop.Cause(ctx, err))
	}
	return Answered{Service: s.cfg.Service, QPs: len(s.lanes.Lanes), Result: a.result}, nil
}

// answerer serves a client that does not say what it runs.
type answerer struct {
	*session
	size int
	idle time.Duration

	pending []int // of each lane: answers that have not completed
	due     []int // of each lane: answers for which there was no room
	bytes   int   // of the last message
	result  Result
}

// What an answer waits for, and how much is posted.
const (
	moreLimit   = 50 * time.Millisecond // a client of SRQ sends all addresses at once
	answerDepth = 64                    // receives of each queue pair
	answerSends = 16
)

// recognise looks at the first message. It may take long until it is whole.
func (a *answerer) recognise(ctx context.Context) (Service, error) {
	// After the third number the extended form has a fourth one, and the
	// plain one a GID.
	const at = lidDigits + 1 + 3*(numberDigits+1) - 1
	limit, cancel := a.tasks().WithTimeoutCause(ctx, a.cfg.HandshakeTimeout, errors.New("the client does not send its address"))
	defer cancel()
	b, err := a.ctl.Peek(limit, addressStep, at+1)
	if err != nil {
		return 0, interop.Cause(limit, err)
	}
	if b[at] == ':' {
		return XRC, nil
	}
	return a.cfg.Service, nil
}

// fixed serves a client by the default parameters of its service.
func (a *answerer) fixed(ctx context.Context) (Answered, error) {
	cfg, err := Config{Service: XRC, MTU: a.cfg.MTU, Peers: a.cfg.Peers, HandshakeTimeout: a.cfg.HandshakeTimeout}.withDefaults(a.dev)
	if err != nil {
		return Answered{}, err
	}
	a.cfg = cfg
	first, err := readFirst(ctx, a.ctl, a.dev, &a.cfg)
	if err != nil {
		return Answered{}, fmt.Errorf("pingpong: %w", interop.Cause(ctx, err))
	}
	r, err := a.all(ctx, first)
	return Answered{Service: XRC, QPs: 1, Result: r}, err
}

func (a *answerer) run(ctx context.Context) error {
	first, err := readFirst(ctx, a.ctl, a.dev, &a.cfg)
	if err != nil {
		return err
	}
	remote := []Address{first}
	if a.cfg.Service == RC && a.ctl.More(ctx, moreLimit) {
		a.cfg.Service = SRQ
		if remote, err = a.readAll(ctx, first); err != nil {
			return err
		}
	}
	if err := a.make(len(remote)); err != nil {
		return err
	}
	a.cfg.QPs = len(remote)
	if err := a.connect(ctx, remote); err != nil {
		return err
	}
	if err := a.ctl.Write(ctx, addressStep, a.cfg.traits().messages(a.addresses())); err != nil {
		return err
	}
	if err := a.readEnd(ctx, done); err != nil {
		return err
	}
	a.ctl.Close()
	return a.echo(ctx)
}

// readAll receives the other addresses of a client of SRQ. The first unused one
// ends those of queue pairs.
func (a *answerer) readAll(ctx context.Context, first Address) ([]Address, error) {
	list := []Address{first}
	t := a.cfg.traits()
	unused := false
	for i := 1; i < t.addresses; i++ {
		addr, err := readAddress(ctx, a.ctl, t.form)
		if err != nil {
			return nil, fmt.Errorf("address %d of %d, as %s sends: %w", i+1, t.addresses, t.tool, err)
		}
		if unused = unused || addr.unused(); unused {
			continue
		}
		if err := checkAddress(addr, a.ctl, a.dev, &a.cfg); err != nil {
			return nil, fmt.Errorf("address %d of %d: %w", i+1, t.addresses, err)
		}
		list = append(list, addr)
	}
	return list, nil
}

// make makes the queue pairs, receives posted. All have one buffer.
func (a *answerer) make(n int) (err error) {
	if a.pd, err = a.dev.AllocPD(); err != nil {
		return err
	}
	a.grh = lanes.GRH(a.cfg.traits().service)
	if a.mr, err = a.pd.AllocMemory(a.grh+a.size, verbs.LocalWrite); err != nil {
		return err
	}
	if a.w, err = work.NewWaiter(a.dev, n*(answerDepth+answerSends), work.Block); err != nil {
		return err
	}
	a.lanes, err = lanes.New(lanes.Config{
		Dev: a.dev, PD: a.pd, Service: a.cfg.traits().service, Count: n, CQ: a.w.CQ,
		MaxSendWR: answerSends, MaxRecvWR: answerDepth, Sends: true, Receives: true,
	})
	if err != nil {
		return err
	}
	if err := a.lanes.Init(a.connectConfig()); err != nil {
		return err
	}
	a.pending, a.due = make([]int, n), make([]int, n)
	for i := range n {
		for range answerDepth {
			if err := a.postRecv(i); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *answerer) postRecv(i int) error {
	return a.lanes.PostRecv(i, verbs.RecvWR{ID: recvID, SGList: []verbs.SGE{a.mr.Slice(0, a.grh+a.size)}})
}

// echo sends back what comes, until nothing has come for a while.
func (a *answerer) echo(ctx context.Context) error {
	limit := a.cfg.HandshakeTimeout
	var first, last time.Time
	for {
		wait, cancel := a.tasks().WithTimeout(ctx, limit)
		n, err := a.w.CQ.Wait(wait, a.wc[:])
		cancel()
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case wait.Err() == nil:
			return err
		case first.IsZero():
			return a.nothing(limit)
		default:
			a.result.Elapsed = last.Sub(first)
			return nil
		}
		limit = a.idle
		if last = a.tasks().Now(); first.IsZero() {
			first = last
		}
		for i := range a.wc[:n] {
			if err := a.take(&a.wc[i]); err != nil {
				if a.leaves(&a.wc[i]) {
					a.result.Elapsed, a.result.Unconfirmed = last.Sub(first), true
					return nil
				}
				return err
			}
		}
	}
}

// leaves reports whether a failed completion is that of an answer to a client
// that has left meanwhile.
func (a *answerer) leaves(wc *verbs.WC) bool {
	return wc.ID == sendID && a.result.Iterations > 0 && (wc.Status == verbs.StatusRetryExcErr || wc.Status == verbs.StatusRNRRetryExcErr)
}

// nothing says why no message came.
func (a *answerer) nothing(within time.Duration) error {
	for i := range a.lanes.Lanes {
		if q := a.lanes.Lanes[i].Recv; q.Stats().Drops.Service > 0 {
			return fmt.Errorf("the client runs another transport service than %v: they cannot be told from each other before they begin, so give each a port of its own", a.cfg.Service)
		}
	}
	return fmt.Errorf("%w: no message came within %v: a first message of UC or UD may be lost, or the client runs another transport service than %v", interop.ErrNoProgress, within, a.cfg.Service)
}

func (a *answerer) take(wc *verbs.WC) error {
	if wc.Status != verbs.StatusSuccess {
		return &interop.CompletionError{Doing: "ping-pong", Done: uint64(a.result.Iterations), WC: *wc}
	}
	at, err := a.lanes.Find(wc.QPN)
	if err != nil {
		return err
	}
	if wc.ID == recvID {
		a.bytes = int(wc.ByteLen) - a.grh
		a.due[at]++
		a.result.Iterations++
		a.result.Bytes += 2 * uint64(a.bytes)
		if err := a.postRecv(at); err != nil {
			return err
		}
	} else {
		a.pending[at]--
	}
	for ; a.due[at] > 0 && a.pending[at] < answerSends; a.due[at]-- {
		wr := verbs.SendWR{ID: sendID, Opcode: verbs.OpSend, Signaled: true, SGList: []verbs.SGE{a.mr.Slice(a.grh, a.bytes)}}
		a.lanes.Address(at, &wr)
		if err := a.lanes.Lanes[at].Send.PostSend(wr); err != nil {
			return err
		}
		a.pending[at]++
	}
	return nil
}
