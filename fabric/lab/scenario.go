package lab

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/fabric/network"
	"github.com/gosoftroce/rocev2/fabric/topology"
	"github.com/gosoftroce/rocev2/internal/closest"
	"github.com/gosoftroce/rocev2/qp/cc"
	"github.com/gosoftroce/rocev2/qp/trace"
)

// Scenario is an experiment. What is 0 has its default.
type Scenario struct {
	Name string
	Seed uint64

	// Until is when the run ends. 0: when all flows have completed, and
	// Limit at the latest.
	Until Time
	Limit Time // 0: 10 s of virtual time
	Warm  Time // from then on rates are measured
	Every Time // between two samples of queues and rates; 0: so that there are some 500

	// Cores is into how many parts the network is divided, that run at the
	// same time. The result does not depend on it. 0 is 1.
	Cores int

	Network  Network
	Adapter  Adapter
	Traffic  []Traffic
	Failures []Failure `toml:"failure"`
	Output   Output

	Losses []Packets `toml:"loss"` // that are lost, each the first time that it is sent
	Marks  []Packets `toml:"mark"` // that arrive marked (ECN), each the first time

	// Trace, if it is not nil, gets what the queue pairs of the hosts
	// decide. The network is then one part, whatever Cores says.
	Trace func(at time.Duration, host int, e *trace.Event) `toml:"-"`
	// Progress, if it is not nil, is called some times a second while the
	// scenario is played.
	Progress func(Progress) `toml:"-"`

	lines map[string]int // of settings, where it was a text, that errors name; see tomllines
	said  map[string]int // as lines, of all settings that are there
}

// Progress is how far a run is.
type Progress struct {
	Now    Time   // virtual time
	End    Time   // when it ends: Until; 0 if that is when all flows have completed
	Events uint64 // that have happened
	Open   int    // flows with an end, and collectives, that have not come to it
}

// Network says what hosts are connected by.
type Network struct {
	Topology     string // pair, star, leaf-spine, fat-tree, hpcc, ring, rails; or links or file: one's own
	Hosts        int    // of a star, where 0 is 2, and of links
	Leaves       int    // of a leaf-spine
	Spines       int
	HostsPerLeaf int `toml:"hosts_per_leaf"`
	K            int // ports of a switch of a fat tree
	Switches     int // of a ring, and of links
	PerSwitch    int `toml:"per_switch"` // hosts of each switch of a ring

	Machines        int // of rails
	GPUs            int // of each of them, each a host
	MachinesPerLeaf int `toml:"machines_per_leaf"` // 0: all

	ScaleUp

	Links   []Link  `toml:"link"`
	Classes []Class `toml:"class"`

	File   string // of topology "file": its text belongs into Text, see Files
	Format string // of Text: ns3 or htsim; "": the text tells
	Text   string // a network as other simulators have it, see package topofile
	// Graph is a network that a program has built, in place of Topology.
	Graph *topology.Graph `toml:"-"`

	Rate    Rate // of the hosts' cables; 0: 100 Gb/s
	UpRate  Rate `toml:"up_rate"` // between switches; 0: Rate
	Delay   Time // of a cable; 0: 1 µs
	UpDelay Time `toml:"up_delay"` // between switches; 0: Delay

	Profile    string  // of the switches, see topology.ProfileByName; "": spectrum
	Lossy      bool    // no class is lossless: full queues drop
	Buffer     Bytes   // of a switch, with reserves and headrooms in it; 0: the profile's
	QueueMax   Bytes   `toml:"queue_max"` // of each lossy queue; 0: the profile's rule alone
	Alpha      *int    // thresholds of lossless classes are 2^Alpha of the free buffer; nil: the profile's
	RED        *RED    `toml:"red"` // nil: the profile's
	Routing    string  // ecmp, flowlet, least-queue, spray, drill or weighted; "": ecmp
	FlowletGap Time    `toml:"flowlet_gap"` // 0: 50 µs
	UpDown     bool    `toml:"up_down"`     // routes that cannot deadlock, see topology.Graph.UpDown
	CutThrough bool    `toml:"cut_through"`
	Watchdog   Time    // pauses that last longer are ended; 0: none
	Converge   Time    // from a failure to new tables; 0: 1 ms
	Loss       float64 // share of packets that cables lose at random
	Switch     Switch  // what switches do beyond that
	Burst      int     // how many of these are lost together, in the mean; 0: each is by itself
	BER        float64 // bit error rate of cables: packets with a wrong bit are dropped where they come to

	// Oversubscription is how many times as much goes into a leaf from its
	// hosts as it has ports for above. UpRate of a leaf-spine and of rails
	// follows from it; a fat tree has fewer switches.
	// CoreOversubscription is that of the middle of a fat tree. 0: 1.
	Oversubscription     int
	CoreOversubscription int `toml:"core_oversubscription"`
}

// RED are thresholds of marks: from Kmin on packets are marked with a
// probability that reaches Pmax at Kmax, and all above. Kmax 0 marks nothing.
type RED struct {
	Kmin, Kmax Bytes
	Pmax       float64 // 0 to 1
}

// Adapter says how the hosts' adapters work.
type Adapter struct {
	MTU         int    // path MTU; 0: 4096
	DSCP        int    // of data; 0: the one that the profile has for RoCE
	NoECN       bool   `toml:"no_ecn"`
	Control     string // congestion control, see cc.ParseChoice; "": window
	Window      Bytes  // most that may be in flight, up to 1 GiB; 0: what the engine has. Of static the window
	Recovery    string // selective or go-back-n; "": selective
	Notify      Time   // between two CNPs, in whole ns; 0: 50 µs, with dcqcn-adapter 4
	NotifyScope string `toml:"notify_scope"` // what shares that time: qp, peer or port; "": qp
	MinProbe    Time   `toml:"min_probe"`    // in whole ns, see engine.Config; 0: 80 µs, 1 ms in a network that loses nothing
	Timeout     int    // code of the local ACK timeout (IBTA 9.7.6.1.3); 0: 14, which is 67 ms
	Shared      bool   // flows with an end share a connection if they have hosts and SrcPort in common; else each has its own
	ReadChunk   Bytes  `toml:"read_chunk"`
	Turn        Bytes  // that a queue pair sends before another has its turn; 0: a packet
	Entropy     string // flow, or packet: each leaves by another source port than the one before, so that ECMP sends it by another way; "": flow

	// Controller, if it is not nil, makes the congestion control of each
	// queue pair, in place of Control. A cc.Telemetry is told what the
	// switches say. With Cores controllers of several hosts are called at
	// the same time.
	Controller func() cc.Controller `toml:"-"`
}

// MostCores is the most that Scenario.Cores may be.
const MostCores = 64

// Names that a Scenario may have.
var (
	recoveries = []string{"selective", "go-back-n"}
	entropies  = []string{"flow", "packet"}
	routings   = []string{"ecmp", "flowlet", "least-queue", "spray", "drill", "weighted"}
	topologies = []string{"pair", "star", "leaf-spine", "fat-tree", "hpcc", "ring", "rails", "links", "file"}
)

// oneOf returns the index of a name, that of the default if it is empty.
func oneOf(setting, name string, names []string, def int) (int, error) {
	if name == "" {
		return def, nil
	}
	for i, n := range names {
		if n == name {
			return i, nil
		}
	}
	return 0, fmt.Errorf("%s is %q: there are %s%s", setting, name, strings.Join(names, ", "), closest.Question(name, names))
}

// share checks that a number is from 0 to 1, and returns it as a number of
// parts of the whole. It refuses a number that this would change by more than a
// thousandth.
func share(setting string, v float64, parts int64) (int64, error) {
	if !(v >= 0 && v <= 1) {
		return 0, fmt.Errorf("%s is %v: it is a share, from 0 to 1", setting, v)
	}
	exact := v * float64(parts)
	n := math.Round(exact)
	if math.Abs(n-exact) > exact/1000 {
		return 0, fmt.Errorf("%s is %v: that is no multiple of %g", setting, v, 1/float64(parts))
	}
	return int64(n), nil
}

func orDefault[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

// plan says how the topology becomes a network.
func (n *Network) plan(g *topology.Graph, seed uint64) (p topology.Plan, err error) {
	if p.Profile, err = topology.ProfileByName(orDefault(n.Profile, "spectrum"), n.lineRate(g)); err != nil {
		return p, fmt.Errorf("network.profile: %w", err)
	}
	if n.Lossy {
		p.Profile = p.Profile.Lossy()
	}
	routing, err := oneOf("network.routing", n.Routing, routings, 0)
	if err != nil {
		return p, err
	}
	if err := n.noise(&p); err != nil {
		return p, err
	}
	if n.RED != nil {
		pmax, err := share("network.red.pmax", n.RED.Pmax, 1e6)
		if err != nil {
			return p, err
		}
		p.Profile = p.Profile.Marking(network.RED{Kmin: int64(n.RED.Kmin), Kmax: int64(n.RED.Kmax), Pmax: uint32(pmax)})
	}
	if err := n.classes(&p.Profile); err != nil {
		return p, err
	}
	if n.Alpha != nil && (*n.Alpha < -16 || *n.Alpha > 16) {
		return p, fmt.Errorf("network.alpha is %d: it is the exponent of 2, from -16 to 16", *n.Alpha)
	}
	if routing < len(builtInRoutings) {
		p.Routing = builtInRoutings[routing]
	}
	p.Gap = network.Time(orDefault(n.FlowletGap, 50*us))
	p.Watchdog = network.WatchdogConfig{Detect: network.Time(n.Watchdog), Restore: network.Time(n.Watchdog)}
	p.UpDown, p.Seed, p.Converge = n.UpDown, seed, network.Time(orDefault(n.Converge, 1000*us))
	p.Tune = func(_ int32, s *network.Switch) { n.tune(s) }
	return p, n.program(g, &p)
}

const us = Microsecond

func notPrinted(r rune) bool { return !unicode.IsPrint(r) }

// tune brings what differs from the profile to a switch.
func (n *Network) tune(s *network.Switch) {
	s.CutThrough = n.CutThrough
	if n.Buffer > 0 {
		s.Buffer = int64(n.Buffer)
	}
	change := func(c *[network.NumClasses]network.Class) {
		for i := range c {
			if n.Alpha != nil && c[i].Lossless {
				c[i].Alpha = int8(*n.Alpha)
			}
			if n.QueueMax > 0 && !c[i].Lossless {
				c[i].EgressMax = int64(n.QueueMax)
			}
		}
	}
	change(&s.Classes)
	n.mark(&s.Classes, s.DSCP)
	for i := range s.Ports {
		change(&s.Ports[i])
		n.mark(&s.Ports[i], s.DSCP)
	}
}

// check says what is wrong with sizes and times.
func (s *Scenario) check() error {
	a := &s.Adapter
	return join(
		when(strings.ContainsFunc(s.Name, notPrinted), "name has a character that cannot be printed: %q", s.Name),
		when(len(s.Traffic) == 0, "there is no traffic: name a kind in [[traffic]]"),
		when(s.Cores < 0 || s.Cores > MostCores, "cores is %d: it is 1 to %d", s.Cores, MostCores),
		when(!inRange(s.Until, s.Limit, s.Warm, s.Every), "until, limit or another time is negative, or above %v", mostTime),
		when(s.Network.Buffer < 0 || s.Network.QueueMax < 0 || !inRange(s.Network.FlowletGap, s.Network.Watchdog, s.Network.Converge), "network.buffer or another size or time of the network is negative, or flowlet_gap, watchdog or converge above %v", mostTime),
		when(a.Window < 0 || a.ReadChunk < 0 || a.Turn < 0 || a.Notify < 0 || a.MinProbe < 0, "adapter.window or another size or time of the adapters is negative"),
		when(a.Timeout < 0 || a.Timeout > 31, "adapter.timeout is %d: it is a code, from 1 to 31 for 8.192us to 8796s; 14 is 67ms", a.Timeout),
		when(a.ReadChunk > mostWindow, "adapter.read_chunk is %v: it is at most %v", a.ReadChunk, Bytes(mostWindow)),
		when(a.Turn > mostTurn, "adapter.turn is %v: it is at most %v", a.Turn, mostTurn),
		when(a.Window > mostWindow, "adapter.window is %v: it is at most %v", a.Window, Bytes(mostWindow)),
		when(a.Notify%nanosecond != 0 || a.Notify > mostWait, "adapter.notify is %v: it is whole nanoseconds, and at most %v", a.Notify, mostWait),
		when(a.MinProbe%nanosecond != 0 || a.MinProbe > mostWait, "adapter.min_probe is %v: it is whole nanoseconds, and at most %v", a.MinProbe, mostWait),
		when(s.Until > 0 && s.Warm >= s.Until, "warm is %v, and the run ends at %v: nothing would be measured", s.Warm, s.Until),
		s.Network.check(), s.Network.checkScaleUp(), s.Network.Switch.check(&s.Network))
}

const (
	mostTurn   = Bytes(64 << 10)        // a segmentation run, see engine.Config
	mostWindow = 1 << 30                // bytes, that an int has on any machine
	nanosecond = Time(event.Nanosecond) // of the clock of adapters
	mostWait   = 1000 * Time(event.Second)
	mostTime   = Time(math.MaxInt64 / 4) // 26 days: sums of three fit
)

// inRange reports whether times can be added up.
func inRange(times ...Time) bool { return slices.Min(times) >= 0 && slices.Max(times) <= mostTime }

// check says what is wrong with hosts, cables and marks, by the names of
// settings.
func (n *Network) check() (all error) {
	_, err := oneOf("network.routing", n.Routing, routings, 0)
	all = join(err, when(n.Hosts != 0 && (n.Hosts < 2 || n.Hosts > math.MaxUint16), "network.hosts is %d: it is %s", n.Hosts, hostsOfStar))
	for _, r := range []struct {
		name string
		rate Rate
	}{{"rate", n.Rate}, {"up_rate", n.UpRate}} {
		all = join(all, when(r.rate != 0 && (r.rate < 1e6 || r.rate > 8e12), "network.%s is %v: it is 1Mb/s to 8Tb/s", r.name, r.rate))
	}
	for _, d := range []struct {
		name  string
		delay Time
	}{{"delay", n.Delay}, {"up_delay", n.UpDelay}} {
		all = join(all, when(d.delay < 0 || d.delay > Time(event.Second), "network.%s is %v: it is at most 1s", d.name, d.delay))
	}
	if n.RED != nil && n.RED.Kmax > 0 && n.RED.Kmin > n.RED.Kmax {
		all = join(all, fmt.Errorf("network.red.kmin is %v, above kmax, %v: marks begin at kmin", n.RED.Kmin, n.RED.Kmax))
	}
	return all
}

// others says which setting is one of another topology or kind of traffic, or
// of another kind of run, and would do nothing.
func (s *Scenario) others() error {
	n := &s.Network
	all := join(
		when(s.Until != 0 && s.Limit != 0, "limit is for a run without until: take one of them out"),
		when(n.FlowletGap != 0 && n.Routing != "flowlet", `network.flowlet_gap is for routing = "flowlet"`),
		when(n.Burst != 0 && n.Loss == 0 && n.Topology != "file" && !slices.ContainsFunc(n.Links, func(l Link) bool { return l.Loss > 0 }), "network.burst says how many packets are lost together, and without loss none are"),
		when(n.Oversubscription != 0 && n.UpRate != 0, "network.oversubscription says what up_rate is: take one of them out"),
		when(n.Lossy && n.Watchdog != 0, "network.watchdog ends pauses, and there are none with lossy"),
		when(n.Lossy && n.Alpha != nil, "network.alpha is for lossless classes, and there are none with lossy"),
		n.ScaleUp.others())
	up := n.UpRate != 0 || n.UpDelay != 0
	all = join(all, unused("network", n.Topology, topologies, append(n.ofSwitches(), []setting{
		{"hosts", n.Hosts != 0, "star links"},
		{"leaves or hosts_per_leaf", n.Leaves != 0 || n.HostsPerLeaf != 0, "leaf-spine"},
		{"spines", n.Spines != 0, "leaf-spine rails"},
		{"machines, gpus or machines_per_leaf", n.Machines != 0 || n.GPUs != 0 || n.MachinesPerLeaf != 0, "rails"},
		{"k", n.K != 0, "fat-tree"},
		{"scale_up_rate", n.ScaleUp != ScaleUp{}, "rails"},
		{"switches", n.Switches != 0, "ring links"},
		{"per_switch", n.PerSwitch != 0, "ring"},
		{"link", len(n.Links) > 0, "links"},
		{"file, format or text", n.File != "" || n.Format != "" || n.Text != "", "file"},
		{"rate or delay", n.Rate != 0 || n.Delay != 0, "pair star leaf-spine fat-tree ring rails links"},
		{"up_rate or up_delay", up, "leaf-spine ring rails"},
		{"oversubscription", n.Oversubscription != 0, "leaf-spine fat-tree rails"},
		{"core_oversubscription", n.CoreOversubscription != 0, "fat-tree"},
	}...)))
	for i := range s.Failures {
		all = join(all, s.Failures[i].others(i+1))
	}
	return join(all, s.othersOfTraffic())
}

// ofSwitches returns the settings of switches, which all topologies have but a
// pair.
func (n *Network) ofSwitches() (list []setting) {
	for _, s := range []setting{
		{name: "class", set: len(n.Classes) > 0},
		{name: "routing", set: n.Routing != ""},
		{name: "up_down", set: n.UpDown},
		{name: "cut_through", set: n.CutThrough},
		{name: "lossy", set: n.Lossy},
		{name: "watchdog", set: n.Watchdog != 0},
		{name: "buffer", set: n.Buffer != 0},
		{name: "queue_max", set: n.QueueMax != 0},
		{name: "alpha", set: n.Alpha != nil},
		{name: "red", set: n.RED != nil},
		{name: "switch", set: n.Switch.set()},
	} {
		s.name += ", which is a setting of switches"
		s.kinds = strings.Join(slices.DeleteFunc(slices.Clone(topologies), func(t string) bool { return t == "pair" }), " ")
		list = append(list, s)
	}
	return list
}

// setting is a setting, or some, that one kind of thing has and others have
// not.
type setting struct {
	name  string
	set   bool
	kinds string
}

// unused returns an error for each setting that is set and that the kind has
// not. A kind that is not known is for others to find.
func unused(of, kind string, known []string, settings []setting) (all error) {
	for _, s := range settings {
		if s.set && slices.Contains(known, kind) && !slices.Contains(strings.Fields(s.kinds), kind) {
			all = join(all, fmt.Errorf("%s, %s: it has no %s", of, kind, s.name))
		}
	}
	return all
}
