package perftest

import (
	"cmp"
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
	if g.own {
		s := &session{dev: dev, role: interop.Server, cfg: cfg}
		list, err := s.all(ctx, ctl, g)
		return Answered{Test: s.cfg.Test, Version: g.version, Own: true, Results: list}, err
	}
	r, err := answerOriginal(ctx, dev, ctl, &cfg, g, size)
	if err != nil {
		return Answered{Version: g.version}, fmt.Errorf("perftest: %w", interop.Cause(ctx, err))
	}
	return Answered{Test: r.Test, Version: g.version, Results: []Result{r}}, nil
}

// answerOriginal serves a client that does not say what it runs.
func answerOriginal(ctx context.Context, dev *verbs.Device, ctl *control.Conn, c *Config, g greeting, size int) (Result, error) {
	res, err := newClientResources(dev, c, g, size)
	if err != nil {
		return Result{}, err
	}
	defer res.close()
	tasks := tasksOf(dev)
	a := &answerer{
		tasks: tasks, cfg: c, res: res, echo: Test{Send, Bandwidth},
		replies: &replies{ctl: ctl, tasks: tasks, first: g.first, lane: func(ctx context.Context, remote Address) (Address, error) {
			return res.serve(ctx, remote, func() error { return checkAddress(remote, ctl, dev, c) })
		}},
	}
	if err := a.run(ctx); err != nil {
		return Result{}, err
	}
	return a.result(), nil
}

// answerer serves a client that does not say what it runs. One goroutine
// answers on the control connection (replies), another one takes completions,
// finds out what the client runs, and does what it waits for.
type answerer struct {
	tasks   task.Runner
	cfg     *Config
	res     *clientResources
	replies *replies

	echo  Test // what the traffic has shown of SEND and write_lat
	known bool
	meter meter
	times *Histogram
	bytes int // of a message

	due, pending int // answers of send_lat: to be sent, and not completed
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

func (a *answerer) run(ctx context.Context) (err error) {
	g := work.NewGuard(ctx, a.tasks, a.cfg.IdleTimeout, func() uint64 { return a.res.received() + uint64(a.replies.handshakes.Load()) }, nil)
	defer g.Stop()
	done := a.tasks.NewGroup()
	done.Go(func() {
		err = a.replies.run(g.Ctx)
		g.Cancel(errPeerDone)
	})
	terr := a.traffic(g) // never nil: g ends it
	g.Cancel(terr)
	done.Wait()
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
