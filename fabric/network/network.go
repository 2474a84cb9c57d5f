package network

import (
	"fmt"

	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/internal/heap"
)

const (
	maxHosts = 1<<16 - 1
	million  = 1_000_000
	billion  = 1_000_000_000
)

// Network is hosts, switches and the cables between them, at a point in time.
// It is not safe for concurrent use.
type Network struct {
	source   sources
	links    []link
	hosts    []host
	switches []swtch
	parts    windows
	classOf  [64]uint8 // as hosts see it
	mtu      int
	tap      func(Sight)

	changes changes
	scripts heap.Heap[Time, func()]
	played  uint64 // scripts, between windows
	err     error
}

// host is what the network knows of one.
type host struct {
	host   Host
	part   *part
	ports  []uint32 // transmitters
	digest event.Digest
}

// sources numbers the sources of events: two for each transmitter, then one for
// each host (its timer) and each switch (its watchdog), then the scripts.
type sources struct{ links, hosts, switches int }

func (s *sources) send(l uint32) uint32   { return 2 * l }
func (s *sources) arrive(l uint32) uint32 { return 2*l + 1 }
func (s *sources) timer(host int) uint32  { return uint32(2*s.links + host) }
func (s *sources) watch(sw int) uint32    { return uint32(2*s.links + s.hosts + sw) }
func (s *sources) script() uint32         { return uint32(2*s.links + s.hosts + s.switches) }

// New returns a network at time 0, with all cables up. It keeps a copy of what
// it needs of c, except the tables.
func New(c Config) (*Network, error) {
	if c.MTU == 0 {
		c.MTU = DefaultMTU
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	n := &Network{
		mtu: c.MTU, parts: windows{parallel: c.Parallel},
		source: sources{2 * len(c.Cables), c.Hosts, len(c.Switches)},
		hosts:  make([]host, c.Hosts), switches: make([]swtch, len(c.Switches)),
		links: make([]link, 2*len(c.Cables)),
	}
	n.changes = changes{n: n, up: make([]bool, len(c.Cables)), own: map[int]Cable{}, reroute: c.Reroute, converge: c.Converge}
	if err := n.divide(&c); err != nil {
		return nil, err
	}
	setClasses(&n.classOf, c.HostDSCP)
	for i := range n.hosts {
		n.hosts[i].host = sink{}
	}
	for i := range c.Cables {
		n.plug(i, &c)
	}
	for i := range n.switches {
		if err := n.switches[i].init(i, &c); err != nil {
			return nil, fmt.Errorf("network: switch %d: %w", i, err)
		}
	}
	if err := n.SetTables(c.Tables); err != nil {
		return nil, err
	}
	return n, nil
}

func setClasses(m *[64]uint8, from []uint8) {
	for d := range m {
		m[d] = uint8(d / 8)
	}
	copy(m[:], from)
}

// plug connects the two ends of a cable.
func (n *Network) plug(i int, c *Config) {
	cable := &c.Cables[i]
	n.changes.up[i] = true
	for side, node := range []int{cable.A, cable.B} {
		l := uint32(2*i + side)
		k := &n.links[l]
		*k = link{node: uint32(node), up: true, rate: cable.Rate, delay: cable.Delay, loss: cable.Loss,
			rand: event.NewRand(c.Seed, uint64(l)<<8|streamCable), noise: cable.newNoise(c.Seed, l)}
		if cable.bursty() {
			k.loss = 0 // it is that of the noise
		}
		k.setRate(cable.Rate)
		k.port = uint16(len(*n.ports(node)))
		*n.ports(node) = append(*n.ports(node), l)
	}
	for side := range 2 {
		l, far := &n.links[2*i+side], &n.links[2*i+1-side]
		to := n.partOf(int(far.node))
		l.cut, l.farPart = to != n.partOf(int(l.node)), uint8(to.number)
		l.cutThrough, l.farCuts = c.cutsThrough(l.node), c.cutsThrough(far.node)
	}
}

// cutsThrough reports whether a node is a cut-through switch.
func (c *Config) cutsThrough(node uint32) bool {
	i := int(node) - c.Hosts
	return i >= 0 && c.Switches[i].CutThrough
}

// Streams of randomness, beside the number of the link or switch.
const (
	streamCable = iota + 1
	streamSwitch
	streamHash
	streamNoise
)

// ports returns where the transmitters of a node are listed.
func (n *Network) ports(node int) *[]uint32 {
	if node < len(n.hosts) {
		return &n.hosts[node].ports
	}
	return &n.switches[node-len(n.hosts)].ports
}

// SetTables replaces the tables of all switches at once.
func (n *Network) SetTables(tables []Table) error {
	if len(tables) != len(n.switches) {
		return fmt.Errorf("network: %d tables for %d switches: there must be one each", len(tables), len(n.switches))
	}
	for i := range tables {
		if err := tables[i].check(len(n.hosts), len(n.switches[i].ports)); err != nil {
			return fmt.Errorf("network: table of switch %d: %w", i, err)
		}
	}
	for i := range tables {
		n.switches[i].setTable(&tables[i])
	}
	return nil
}

func (t *Table) check(hosts, ports int) error {
	if len(t.Set) != hosts {
		return fmt.Errorf("it has %d entries for %d hosts", len(t.Set), hosts)
	}
	for dst, s := range t.Set {
		if int(s) >= len(t.Sets) {
			return fmt.Errorf("host %d: there is no set %d among %d", dst, s, len(t.Sets))
		}
	}
	for i, set := range t.Sets {
		for _, p := range set {
			if int(p) >= ports {
				return fmt.Errorf("set %d: there is no port %d among %d", i, p, ports)
			}
		}
	}
	return nil
}

// Attach makes h the host of a number. A host without one takes what comes and
// sends nothing.
func (n *Network) Attach(number int, h Host) { n.hosts[number].host = h }

// Ports returns how many ports a node has.
func (n *Network) Ports(node int) int { return len(*n.ports(node)) }

// Now returns the time of the latest event, or the limit of the last Run. Hosts
// of a network that is divided must not ask: what the network calls has the
// time.
func (n *Network) Now() Time {
	n.parts.together("Now")
	return n.parts.all[0].q.Now()
}

// TimeOf is Now for a host, that it may call whenever it runs.
func (n *Network) TimeOf(number int) Time { return n.hosts[number].part.q.Now() }

// ClassOf returns the class that hosts take a DSCP for.
func (n *Network) ClassOf(dscp uint8) uint8 { return n.classOf[dscp&63] }

// Kick says that a host has something to send. Its port pulls as soon as its
// cable is free. It may be called from anywhere, from inside the host's
// methods, too: then Pull is called after they have returned.
func (n *Network) Kick(number, port int) {
	h := &n.hosts[number]
	l := h.ports[port]
	k := &n.links[l]
	if k.armed {
		return
	}
	k.wanted = true
	if h.part.inside != number {
		h.part.arm(l)
	}
}

// SetTimer has Timer called at a time, instead of at the time that was set
// before. event.Never cancels it. To move it later costs next to nothing.
func (n *Network) SetTimer(number int, at Time) {
	n.hosts[number].part.q.Schedule(n.source.timer(number), at)
}

// At has f called at a time: scripts that start flows or change cables. Calls
// of one time keep the order in which At was called.
func (n *Network) At(at Time, f func()) {
	n.parts.together("At")
	n.scripts.Push(max(at, n.parts.all[0].q.Now()), f)
	n.arm()
}

// arm makes the first script due.
func (n *Network) arm() {
	if at, ok := n.scripts.Min(); ok && len(n.parts.all) == 1 {
		n.parts.all[0].q.Schedule(n.source.script(), at)
	}
}

// script runs the first script.
func (n *Network) script() {
	_, f := n.scripts.Pop()
	n.arm()
	f()
}

// Run handles all events up to a time, and returns how many there were. Then
// that time is Now. Of event.Never it runs until nothing is pending, and the
// time is that of the last event.
func (n *Network) Run(until Time) uint64 {
	n.parts.together("Run")
	before := n.events()
	if len(n.parts.all) == 1 {
		n.parts.all[0].run(until)
	} else {
		n.runParts(until)
	}
	return n.events() - before
}

// events returns how many there have been.
func (n *Network) events() (sum uint64) {
	for _, a := range n.parts.all {
		sum += a.q.Fired()
	}
	return sum + n.played
}

func (a *part) run(until Time) {
	links := uint32(2 * len(a.links))
	for {
		src, ok := a.q.Next(until)
		switch {
		case !ok:
			return
		case src >= links:
			a.other(int(src - links))
		case src&1 == 0:
			a.sent(src / 2)
		default:
			a.arrive(src / 2)
		}
	}
}

// sent is the event of a transmitter whose cable has become free.
func (a *part) sent(l uint32) {
	a.links[l].armed = false
	a.start(l)
}

// other handles the events that do not belong to links.
func (a *part) other(i int) {
	if i < len(a.hosts) {
		a.hosts[i].digest.Add(uint64(a.q.Now()))
		a.inside = i
		a.hosts[i].host.Timer(a.q.Now())
		a.inside = -1
		a.pullAll(i)
		return
	}
	if i -= len(a.hosts); i < len(a.switches) {
		a.switches[i].watch()
		return
	}
	a.net.script()
}

// pullAll pulls from the ports of a host that called Kick from inside.
func (a *part) pullAll(number int) {
	for _, l := range a.hosts[number].ports {
		if a.links[l].wanted {
			a.wake(l)
		}
	}
}

// sink is a host that sends nothing.
type sink struct{}

func (sink) Pull(Time, int, uint8, *Packet) bool { return false }
func (sink) Receive(Time, int, *Packet)          {}
func (sink) Timer(Time)                          {}
func (sink) Dropped(*Packet, Drop)               {}
