package lab

import (
	"context"
	"errors"
	"fmt"

	"github.com/gosoftroce/rocev2/fabric/adapter"
	"github.com/gosoftroce/rocev2/fabric/cores"
	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/fabric/network"
	"github.com/gosoftroce/rocev2/fabric/tcp"
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
	Measured int64     // payload that arrived from Warm to the end, of flows without an end
	Counters *Counters // with Output.Record, if no other flow had its connection
	Traffic  int       // of which it is: the index in Scenario.Traffic

	op     int
	class  uint8 // of packets, where it is not the tenant's: DSCP + 1
	port   uint16
	left   int           // messages that have not completed
	unread int           // messages that have not arrived
	conns  []*connection // one for each queue pair
	stream *tcp.Stream   // instead, with TCP
	tenant *tenant
	warm   uint64

	arrived func() // called when all has arrived where the data go
	ended   func() // called at Src when it has come to its end

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
	ways   ways
	net    *network.Network
	a      *adapter.Adapters
	tcp    *tcp.Stack // nil: no traffic goes by it
	mtu    rocev2.MTU
	op     []ib.Opcode
	paths  map[int64]path // by the two hosts; only looked up
	rec    *recorder
	told   map[int]*told // what is to become of packets of flows, by their numbers; only looked up

	tenants tenants // by traffic
	data    uint8   // classes of what hosts send each other
	profile topology.Profile
	finally []func() // called when the run is over

	flows   []*Flow
	open    int                     // flows with an end that have not come to it, or not begun
	under   int                     // flows that have begun, and not come to their end
	more    int                     // streams of arrivals that go on
	endless int                     // flows without an end that have begun
	shared  map[flowKey]*connection // only looked up
	parts   []part
	jobs    []*job  // that are not done
	closed  []*Flow // that are over, and of which one end is still open
	reaps   bool    // soon it is closed

	collectives []*collective // that have begun

	provided   int // flows and ranks that are known before the run
	kept       int // connections that stay until the end
	mostInside uint64
	ctx        context.Context
	slice      Time // what is played between two looks at whether to go on
	err        error
	at         Time // when that was
}

// connection is a pair of queue pairs, and the flows that wait for room in the
// send queue.
type connection struct {
	x, y    *adapter.QP
	backlog []func() error
}

// Run plays a scenario to its end, or until ctx is done. The error says which
// setting is wrong, by its name in a file; then there is no result. Or it says
// what has ended the run early, and at which virtual time: ctx, flows that have
// not completed at the limit, an all-reduce that cannot go on, more flows or
// packets than there may be, books that do not balance. Then the result is what
// it had come to, and Result.Unfinished says where the flows are that hang. A
// flow of its own that fails is no error: see Flow.Status.
func Run(ctx context.Context, s Scenario) (*Result, error) {
	if s.alone() {
		s.Cores = 1
	}
	c := cores.New(min(s.Cores, MostCores))
	defer c.Close()
	r, err := newRun(&s, c.Do)
	if err != nil {
		return nil, s.located(err)
	}
	m := newSampler(r)
	r.play(ctx, m)
	for _, f := range r.finally {
		f()
	}
	if r.err == nil {
		r.stop(errors.Join(r.net.Check(), r.a.Check()))
	}
	res := r.result(m)
	if r.err != nil {
		res.Early = r.err
		res.Unfinished = r.unfinished()
		return res, s.errorf("at %v: %w", r.at, r.err)
	}
	return res, nil
}

// Check returns the error with which Run would refuse a scenario. The network
// is built for that, and not played.
func Check(s Scenario) error {
	c := cores.New(1)
	defer c.Close()
	if 0 <= s.Cores && s.Cores <= MostCores {
		s.Cores = 1
	}
	if _, err := newRun(&s, c.Do); err != nil {
		return s.located(err)
	}
	return nil
}

func newRun(s *Scenario, parallel func(int, func(int))) (*run, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	r := &run{s: s, shared: map[flowKey]*connection{}, paths: map[int64]path{}, mostInside: mostInside, slice: us}
	var err error
	if r.g, err = s.Network.graph(); err != nil {
		return nil, err
	}
	if err := playable(r.g); err != nil {
		return nil, err
	}
	if s.telemetry() {
		s.Network.Switch.INT = true
	}
	if r.net, err = newNetwork(r, parallel); err != nil {
		return nil, err
	}
	r.parts = make([]part, r.net.Parts())
	if err := r.adapters(&r.profile); err != nil {
		return nil, err
	}
	if r.rec, err = newWatch(r); err != nil {
		return nil, err
	}
	for i := range s.Traffic {
		rand := s.random(i)
		if e := r.begin(r.tenants[i], &s.Traffic[i], &rand); e != nil {
			err = join(err, fmt.Errorf("traffic %d, %s: %w", i+1, s.Traffic[i].Kind, e))
		}
	}
	return r, join(err, r.failures())
}

// newNetwork returns the network of a run, in as many parts as there are cores.
func newNetwork(r *run, parallel func(int, func(int))) (*network.Network, error) {
	plan, err := r.s.Network.plan(r.g, r.s.Seed)
	if err != nil {
		return nil, err
	}
	r.tables = r.g.Shortest(nil)
	if plan.UpDown {
		r.tables = r.g.UpDown(nil)
	}
	if err := r.s.Network.fits(r.tables); err != nil {
		return nil, err
	}
	plan.Tables, r.ways = r.tables, newWays(&r.s.Network, r.tables)
	r.mostInside = mostWithTrail(plan.Trail)
	cfg, err := r.g.Network(plan)
	if err != nil {
		return nil, fmt.Errorf("network: %w", err)
	}
	cfg.Parts, cfg.Parallel = r.s.Cores, parallel
	routes := cfg.Reroute
	cfg.Reroute = func(up []bool) []network.Table {
		if r.interrupted() {
			return nil // each of many failures may take a while
		}
		return routes(up)
	}
	r.profile = plan.Profile
	n, err := network.New(cfg)
	switch {
	case err == nil:
	case r.s.Network.Buffer != 0:
		err = fmt.Errorf("network.buffer is %v: %w", r.s.Network.Buffer, err)
	case errors.Is(err, network.ErrBuffer):
		err = fmt.Errorf("network.buffer is missing: that of profile %q is too small here: %w", plan.Profile.Name, err)
	}
	return n, err
}

// newWatch has those look on that want to. It returns the one of them that is
// told of flows.
func newWatch(r *run) (*recorder, error) {
	rec, err := newRecorder(r)
	if err != nil {
		return nil, err
	}
	c, err := newCapturer(r)
	if err != nil || rec == nil && c == nil {
		return rec, err
	}
	var w network.Watch
	rec.watch(&w)
	c.watch(r.net, &w)
	r.net.Watch(&w)
	return rec, nil
}

// random returns the randomness of a traffic. Each has its own, so that two of
// them do not draw the same numbers.
func (s *Scenario) random(i int) event.Rand {
	const stream = 0x7aff1c // and those after it, of a seed
	return event.NewRand(s.Seed, stream+uint64(i))
}

// adapters makes the adapters, and says how the queue pairs of each traffic are
// connected.
func (r *run) adapters(p *topology.Profile) error {
	c := &r.s.Adapter
	r.mtu = rocev2.MTU4096
	entropy, wrong := oneOf("adapter.entropy", c.Entropy, entropies, 0)
	if c.MTU != 0 {
		if mtu, err := rocev2.MTUOf(c.MTU); err != nil {
			wrong = join(wrong, fmt.Errorf("adapter.mtu: %w", err))
		} else {
			r.mtu = mtu
		}
	}
	if c.DSCP < 0 || c.DSCP > 63 {
		return join(wrong, fmt.Errorf("adapter.dscp is %d: there are 0 to 63", c.DSCP))
	}
	of := connecting{r, r.s, p, r.mtu, uint64(r.s.Network.lineRate(r.g))}
	all, err := of.tenant(&Tenant{})
	if err != nil {
		return join(wrong, fmt.Errorf("adapter.%w", err)) // tenants have it, too
	}
	if r.tenants, err = of.tenants(); wrong != nil || err != nil {
		return join(wrong, err)
	}
	cfg := adapter.Config{Seed: r.s.Seed, MinProbe: orDefault(c.MinProbe, r.minProbe()).duration(), ReadChunk: int(c.ReadChunk), Turn: int(c.Turn)}
	cfg.Telemetry, cfg.PerPacket = r.s.Network.Switch.INT, entropy == 1
	if trace := r.s.Trace; trace != nil {
		cfg.Trace = func(at event.Time, host int, e *qp.TraceEvent) { trace(at.Duration(), host, e) }
	}
	r.tenants.windows(&cfg, int(c.Window), r.mtu)
	r.tenants.notify(&cfg, c.Notify, all.choice.Law)
	cfg.Shares = adapter.SharesOf(&p.Classes)
	if cfg.NotifyScope, err = scopeOf(c.NotifyScope); err != nil {
		return err
	}
	r.op = []ib.Opcode{ib.OpWrite, ib.OpSend, ib.OpRead}
	if r.a, err = adapter.New(r.net, int(r.g.Hosts()), cfg); err != nil {
		return err
	}
	r.tcp = r.tenants.stack(r)
	return nil
}

// notify says when receivers tell of marks. All tenants of an adapter have that
// in common: it is what the most demanding one counts on.
func (all tenants) notify(cfg *adapter.Config, said Time, law cc.Law) {
	every, hold := law.Notify()
	for _, t := range all {
		if t.tcp != nil {
			continue
		}
		e, h := t.choice.Law.Notify()
		hold = hold || h
		if e != 0 && (every == 0 || e < every) {
			every = e
		}
	}
	cfg.NotifyInterval, cfg.NotifyHold = orDefault(said.duration(), every), hold
}

// scopeOf returns which queue pairs share the time between two notifications.
func scopeOf(name string) (qp.NotifyScope, error) {
	i, err := oneOf("adapter.notify_scope", name, []string{"qp", "peer", "port"}, 0)
	return qp.NotifyScope(i), err
}

// What engines have by default between native peers: a larger window is told to
// them.
const (
	usualWindow = 9 << 18 // bytes, 2.25 MiB
	usualPSNs   = 1 << 12
)

// packetsOf returns how many packets a window is.
func packetsOf(bytes int, mtu rocev2.MTU) int { return min(bytes/mtu.Bytes()+1, cc.MaxPSNs) }

// markWarm notes what has arrived when measuring begins.
func (r *run) markWarm(m *sampler) {
	for _, f := range r.flows {
		f.warm = f.received()
	}
	m.warm()
}

// received returns the payload that has arrived of a flow.
func (f *Flow) received() (sum uint64) {
	if f.stream != nil {
		return uint64(f.stream.Received())
	}
	for _, c := range f.conns {
		if f.op == opRead {
			sum += c.x.Stats().RxBytes
		} else {
			sum += c.y.Stats().RxBytes
		}
	}
	return sum
}
