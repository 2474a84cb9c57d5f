package lab

import (
	"context"
	"errors"
	"fmt"

	"github.com/gosoftroce/rocev2/fabric/adapter"
	"github.com/gosoftroce/rocev2/fabric/cores"
	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/fabric/network"
	"github.com/gosoftroce/rocev2/fabric/topology"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/qp/cc"
	"github.com/gosoftroce/rocev2/rocev2"
)

// Flow is bytes that one host had for another, or a stream of them without an
// end.
type Flow struct {
	Src, Dst int
	Bytes    int64 // 0: without an end
	Start    Time
	End      Time // when it had completed; 0: not yet
	Ideal    Time // how long it would have taken on a network without others
	Status   ib.Status
	Measured int64 // payload that arrived from Warm to the end, of flows without an end

	op   int
	port uint16
	left int // messages that have not completed
	conn *connection
	warm uint64

	number int // in the order in which they have begun
}

// Slowdown is how many times as long as alone the flow took; 0 before it has
// completed, and if it has failed.
func (f *Flow) Slowdown() float64 {
	if f.End == 0 || f.Ideal == 0 || f.Status != ib.StatusSuccess {
		return 0
	}
	return float64(f.End-f.Start) / float64(f.Ideal)
}

// run is a scenario that is played.
type run struct {
	s      *Scenario
	g      *topology.Graph
	tables *topology.Tables
	net    *network.Network
	a      *adapter.Adapters
	conn   adapter.Connection
	op     []ib.Opcode
	paths  map[int64]path // by the two hosts; only looked up

	flows   []*Flow
	open    int // flows with an end that have not come to it, or not begun
	under   int // flows that have begun, and not come to their end
	more    int // streams of arrivals that go on
	endless int // flows without an end that have begun
	shared  map[int64]*connection
	parts   []part
	rings   []*collective // that are not done
	closed  []*Flow       // that are over, and of which one end is still open
	reaps   bool          // soon it is closed
	err     error
}

// connection is a pair of queue pairs, and the flows that wait for room in the
// send queue.
type connection struct {
	x, y    *adapter.QP
	backlog []func() error
}

// Run plays a scenario to its end, or until ctx is done.
func Run(ctx context.Context, s Scenario) (*Result, error) {
	c := cores.New(min(s.Cores, MostCores))
	defer c.Close()
	r, err := newRun(&s, c.Do)
	if err != nil {
		return nil, s.errorf("%w", err)
	}
	m := newSampler(r)
	r.play(ctx, m)
	if r.err == nil {
		r.err = errors.Join(r.net.Check(), r.a.Check())
	}
	if r.err != nil {
		return nil, s.errorf("at %v: %w", Time(r.net.Now()), r.err)
	}
	return r.result(m), nil
}

func newRun(s *Scenario, parallel func(int, func(int))) (*run, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	r := &run{s: s, shared: map[int64]*connection{}, paths: map[int64]path{}}
	var err error
	if r.g, err = s.Network.graph(); err != nil {
		return nil, err
	}
	plan, err := s.Network.plan(r.g, s.Seed)
	if err != nil {
		return nil, err
	}
	r.tables = r.g.Shortest(nil)
	if plan.UpDown {
		r.tables = r.g.UpDown(nil)
	}
	plan.Tables = r.tables
	cfg, err := r.g.Network(plan)
	if err != nil {
		return nil, err
	}
	cfg.Parts, cfg.Parallel = s.Cores, parallel
	if r.net, err = network.New(cfg); err != nil {
		if s.Network.Buffer != 0 {
			err = fmt.Errorf("network.buffer is %v: %w", s.Network.Buffer, err)
		}
		return nil, err
	}
	r.parts = make([]part, r.net.Parts())
	if err := r.adapters(&plan.Profile); err != nil {
		return nil, err
	}
	for i := range s.Traffic {
		rand := s.random(i)
		if err := r.begin(&s.Traffic[i], &rand); err != nil {
			return nil, fmt.Errorf("traffic %d, %s: %w", i+1, s.Traffic[i].Kind, err)
		}
	}
	return r, r.failures()
}

// random returns the randomness of a traffic. Each has its own, so that two of
// them do not draw the same numbers.
func (s *Scenario) random(i int) event.Rand {
	const stream = 0x7aff1c // and those behind it, of a seed
	return event.NewRand(s.Seed, stream+uint64(i))
}

// adapters makes the adapters, and says how their queue pairs are connected.
func (r *run) adapters(p *topology.Profile) error {
	c := &r.s.Adapter
	control, err := c.congestion(uint64(r.g.HostRate()))
	if err != nil {
		return err
	}
	recovery, err := oneOf("adapter.recovery", c.Recovery, recoveries, 0)
	if err != nil {
		return err
	}
	mtu := rocev2.MTU4096
	if c.MTU != 0 {
		if mtu, err = rocev2.MTUOf(c.MTU); err != nil {
			return fmt.Errorf("adapter.mtu: %w", err)
		}
	}
	if c.DSCP < 0 || c.DSCP > 63 {
		return fmt.Errorf("adapter.dscp is %d: there are 0 to 63", c.DSCP)
	}
	tc := uint8(orDefault(c.DSCP, int(p.RoCE))) << 2
	if !c.NoECN {
		tc |= network.ECT0
	}
	cfg := adapter.Config{Seed: r.s.Seed, MinProbe: orDefault(c.MinProbe, 80*us).duration(), ReadChunk: int(c.ReadChunk)}
	cfg.Window.MaxBytes = int(c.Window)
	every, hold := control.Law.Notify() // what the other end counts on
	cfg.NotifyInterval, cfg.NotifyHold = orDefault(c.Notify.duration(), every), hold
	if cfg.NotifyScope, err = scopeOf(c.NotifyScope); err != nil {
		return err
	}
	if r.a, err = adapter.New(r.net, int(r.g.Hosts()), cfg); err != nil {
		return err
	}
	r.conn = adapter.Connection{Foreign: recovery == 1, MTU: mtu, TrafficClass: tc, Timeout: uint8(c.Timeout)}
	if r.conn.Congestion, err = c.maker(control); err != nil {
		return err
	}
	r.op = []ib.Opcode{ib.OpWrite, ib.OpSend, ib.OpRead}
	return nil
}

// scopeOf returns who shares the time between two notifications.
func scopeOf(name string) (qp.NotifyScope, error) {
	i, err := oneOf("adapter.notify_scope", name, []string{"qp", "peer", "port"}, 0)
	return qp.NotifyScope(i), err
}

// congestion returns the control of the queue pairs of hosts with cables of a
// rate.
func (c *Adapter) congestion(line uint64) (choice cc.Choice, err error) {
	if c.Control == "" {
		return choice, nil
	}
	if choice, err = cc.ParseChoice(c.Control); err != nil {
		return choice, fmt.Errorf("adapter.control: %w", err)
	}
	if choice.Bytes != 0 && c.Window != 0 {
		return choice, fmt.Errorf("adapter.control is %q, and adapter.window %v: take one of the two sizes out", c.Control, c.Window)
	}
	choice.Line = orDefault(choice.Line, line)
	choice.Burst = orDefault(choice.Burst, 1) // timers are exact here
	return choice, nil
}

// maker returns what makes the congestion control of each queue pair; nil for
// the engine's own.
func (c *Adapter) maker(choice cc.Choice) (func() cc.Controller, error) {
	most := cc.Config{MaxBytes: orDefault(int(c.Window), 8<<20), MaxPSNs: 1 << 13}
	switch choice.Law {
	case cc.LawWindow:
		return nil, nil
	case cc.LawStatic:
		bytes := orDefault(choice.Bytes, int(c.Window))
		return func() cc.Controller { return cc.NewStatic(bytes, most) }, nil
	}
	p, err := choice.Profile()
	if err != nil {
		return nil, fmt.Errorf("adapter.control: %w", err)
	}
	return func() cc.Controller { return cc.NewDCQCN(cc.NewStatic(int(c.Window), most), p) }, nil
}

// failures has cables fail.
func (r *run) failures() error {
	for _, f := range r.s.Failures {
		if f.Cable < 0 || f.Cable >= len(r.g.Links()) {
			return fmt.Errorf("failure of cable %d: there are 0 to %d", f.Cable, len(r.g.Links())-1)
		}
		if f.At < 0 || f.Until < 0 {
			return fmt.Errorf("failure of cable %d: at or until is negative", f.Cable)
		}
		if f.Until != 0 && f.Until <= f.At {
			return fmt.Errorf("failure of cable %d: it is up again at %v, before it fails at %v", f.Cable, f.Until, f.At)
		}
		r.net.At(event.Time(f.At), func() { r.net.SetCable(f.Cable, false) })
		if f.Until != 0 {
			r.net.At(event.Time(f.Until), func() { r.net.SetCable(f.Cable, true) })
		}
	}
	return nil
}

// play runs the network, and looks at it in between.
func (r *run) play(ctx context.Context, m *sampler) {
	warm := r.s.Warm == 0
	limit := orDefault(r.s.Until, orDefault(r.s.Limit, Time(10*event.Second)))
	for now := Time(0); r.err == nil && now < limit; {
		next := min(now+m.step, limit)
		if !warm && next >= r.s.Warm {
			next = r.s.Warm
		}
		r.net.Run(event.Time(next))
		now = next
		r.settle()
		if !warm && now == r.s.Warm {
			warm = true
			r.markWarm(m)
		}
		m.look(now)
		if ctx.Err() != nil {
			r.err = errors.Join(r.err, context.Cause(ctx))
		}
		if r.s.Until == 0 && r.open == 0 && r.more == 0 {
			return
		}
	}
	if r.s.Until == 0 && r.err == nil && r.open+r.more > 0 {
		r.err = fmt.Errorf("%d flows have not completed at the limit: set until where they need not", r.open)
		if since := m.still(); since > 0 {
			r.err = fmt.Errorf("%w; since %v the network stands still, behind pauses that do not end", r.err, since)
		}
	}
}

// markWarm notes what has arrived when measuring begins.
func (r *run) markWarm(m *sampler) {
	for _, f := range r.flows {
		f.warm = f.received()
	}
	m.warm()
}

// received returns the payload that has arrived of a flow without an end.
func (f *Flow) received() uint64 {
	if f.conn == nil {
		return 0
	}
	if f.op == opRead {
		return f.conn.x.Stats().RxBytes
	}
	return f.conn.y.Stats().RxBytes
}
