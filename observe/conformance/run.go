package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/gosoftroce/rocev2/observe/conformance/rules"
	"github.com/gosoftroce/rocev2/observe/conformance/stage"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// Config says what is tested, and how long is waited.
type Config struct {
	Rules []Rule // nil means all

	// Dial opens a control connection to the target. Each rule has one of
	// its own.
	Dial func(context.Context) (net.Conn, error)
	// Listener is a port of the RDMA port space TCP at Peer, where a
	// program takes connections by the connection manager, such as rping -s
	// -P: it stands in for the target, for the rules that need no more. 0
	// means that there is a target.
	Listener uint16
	Peer     netip.Addr

	// Link has the address that packets are sent from. It belongs to Run.
	Link transport.Link

	Timeout time.Duration // for an answer that must come; 0 means 2 s
	Quiet   time.Duration // in which nothing may come; 0 means 200 ms
	Limit   time.Duration // for one rule; 0 means 30 s, or four times Timeout

	// Again is how often a rule that has failed is tried again. Where the
	// network loses packets, it was not the peer that broke the rule.
	Again int

	// Kind is the kind of peer whose known deviations are no failures, in
	// place of the one that the target says; "none" means that all are.
	Kind string

	OnResult func(*Result) // told of every rule when it is done, or nil
}

// When the other rules are not tried.
const (
	maxGone   = 2 // rules in turn did not reach the target
	maxSilent = 5 // rules have failed, and no packet of the peer has come
)

// errGone says why a rule is not tried.
var errGone = errors.New("the target does not answer any more: see the rules before")

// errInterrupted says why a rule is not tried.
var errInterrupted = errors.New("the test was interrupted before")

// Run tests the rules one after the other. The error is about this side, or
// about a target that was never there; what the peer does is in the report. If
// ctx ends, there is a report of what was tested until then, beside the error.
func Run(ctx context.Context, c Config) (*Report, error) {
	if c.Rules == nil {
		c.Rules = rules.All()
	}
	c.Timeout, c.Quiet = cmp.Or(c.Timeout, 2*time.Second), cmp.Or(c.Quiet, 200*time.Millisecond)
	c.Limit = cmp.Or(c.Limit, max(30*time.Second, 4*c.Timeout))
	r := runner{cfg: &c, local: c.Link.Addr().WithZone("")}
	start := time.Now()
	target, err := r.ask(ctx)
	if err != nil {
		return nil, errors.Join(err, c.Link.Close())
	}
	r.stage = stage.New(c.Link, target.Addr, stage.Times{Answer: c.Timeout, Quiet: c.Quiet})
	report := &Report{Target: target, Local: r.local, Started: start}
	for i := range c.Rules {
		res := &Result{Rule: c.Rules[i]}
		report.Results = append(report.Results, res)
		if ctx.Err() == nil {
			r.try(ctx, res)
		}
		switch {
		case ctx.Err() != nil && res.Verdict == NotTested:
			res.Record, res.capture = stage.Record{Why: errInterrupted.Error()}, nil
		case c.OnResult != nil:
			c.OnResult(res)
		}
	}
	report.Elapsed = time.Since(start)
	return report, errors.Join(context.Cause(ctx), r.stage.Close())
}

type runner struct {
	cfg    *Config
	local  netip.Addr
	stage  *stage.Stage
	gone   int // rules in turn that did not find the target
	silent int // rules that failed before any packet of the peer was seen
}

// try tests a rule, unless the peer is known to be silent or gone.
func (r *runner) try(ctx context.Context, res *Result) {
	if r.gone >= maxGone {
		res.Why = errGone.Error()
		return
	}
	silence := r.stage.Silence()
	if r.silent >= maxSilent && silence != nil {
		res.Why = silence.Error()
		return
	}
	for {
		if err := r.rule(ctx, res); err != nil {
			r.gone++
			return
		}
		r.gone = 0
		if res.Verdict != Fail || len(res.Before) >= r.cfg.Again {
			break
		}
		res.Before = append(res.Before, fmt.Sprintf("expected %s; came %s", res.Expected, res.Came))
		res.Record = stage.Record{}
	}
	if res.Verdict == Fail {
		r.silent++
	}
}

// maker returns what makes queue pairs for a rule.
func (r *runner) maker(ctx context.Context) (stage.Maker, Target, error) {
	if r.cfg.Listener == 0 {
		return r.dial(ctx)
	}
	return &stage.Listener{Port: r.cfg.Listener}, r.listener(), nil
}

// listener is the target that a listener is.
func (r *runner) listener() Target {
	return Target{
		Kind: cmp.Or(r.cfg.Kind, "unknown"), Release: "-", Device: fmt.Sprintf("a listener on port %d", r.cfg.Listener),
		Addr: r.cfg.Peer, MTU: rocev2.MTU4096.Bytes(), Services: []string{"rc", "atomic"}, Bare: true,
	}
}

// dial opens a control connection, and has the target say what it is.
func (r *runner) dial(ctx context.Context) (*stage.Conn, Target, error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Limit)
	defer cancel()
	c, err := r.cfg.Dial(ctx)
	if err != nil {
		return nil, Target{}, fmt.Errorf("reach the target: %w: one has to run on the host of the peer (rocev2 conformance --serve, or the program that --helper prints)", err)
	}
	conn := stage.NewConn(c, r.cfg.Timeout)
	t, err := conn.Hello()
	if err != nil {
		conn.Close()
		return nil, t, err
	}
	t.TakenFor = r.cfg.Kind
	return conn, t, nil
}

func (r *runner) ask(ctx context.Context) (Target, error) {
	m, t, err := r.maker(ctx)
	if err != nil {
		return t, err
	}
	m.Close()
	if t.Addr.Is4() != r.local.Is4() {
		return t, fmt.Errorf("the target has the address %v, this side %v: both must be IPv4 or IPv6", t.Addr, r.local)
	}
	return t, nil
}

// rule tests one rule. The error says that the target is gone.
func (r *runner) rule(ctx context.Context, res *Result) error {
	ctx, cancel := context.WithTimeoutCause(ctx, r.cfg.Limit, fmt.Errorf("the rule took longer than %v", r.cfg.Limit))
	defer cancel()
	m, target, err := r.maker(ctx)
	if err != nil {
		res.Why = err.Error()
		return err
	}
	defer m.Close()
	if res.Why = res.missing(target); res.Why != "" {
		return nil
	}
	if b := r.stage.Play(ctx, m, target, res.Script, &res.Record); b != nil {
		res.capture = b // or that of the try before
	}
	if res.Verdict == Fail {
		res.lookUp(target)
	}
	if ctx.Err() != nil { // it was this side that ended it
		return nil
	}
	return m.Err()
}
