package switches_test

import (
	"testing"

	"github.com/gosoftroce/rocev2/fabric/cores"
	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/fabric/network"
	"github.com/gosoftroce/rocev2/fabric/topology"
)

const (
	us        = event.Microsecond
	dataDSCP  = 24 // class 3
	ackDSCP   = 48 // class 6
	dataSize  = 1100
	headClass = 5
)

// sender is a host that sends packets to one other, so many in flight, and one
// acknowledgement for each that it receives. What is lost it sends again: its
// Dropped is an oracle.
type sender struct {
	n          *network.Network
	number, to int
	left       int // packets to send
	window     int
	flight     int
	acks       []uint16
	got, trims int
	hops       int // noted, of all packets
	last       network.Time
	ecn        uint8
	ports      int // UDP source ports in turn; 0: one
	sent       int
}

func (h *sender) Pull(_ network.Time, _ int, paused uint8, p *network.Packet) bool {
	switch {
	case len(h.acks) > 0 && paused>>6&1 == 0:
		p.Dst, p.Size, p.DSCP = h.acks[0], 100, ackDSCP
		h.acks = h.acks[1:]
	case h.left > 0 && h.flight < h.window && paused>>3&1 == 0:
		h.left--
		h.flight++
		p.Dst, p.Size, p.DSCP, p.ECN, p.Flags = uint16(h.to), dataSize, dataDSCP, h.ecn, network.Telemetry
	default:
		return false
	}
	p.SrcPort = uint16(h.number)
	if h.ports > 0 {
		h.sent++
		p.SrcPort += uint16(h.sent%h.ports) << 8
	}
	return true
}

func (h *sender) Receive(now network.Time, port int, p *network.Packet) {
	h.last = now
	if p.DSCP == ackDSCP {
		h.flight--
		h.n.Kick(h.number, port)
		return
	}
	if p.Flags&network.Trimmed != 0 {
		h.trims++
	} else {
		h.got++
	}
	h.hops += len(h.n.Trail(h.number))
	h.acks = append(h.acks, p.Src)
	h.n.Kick(h.number, port)
}

func (h *sender) Timer(network.Time)                          {}
func (h *sender) Dropped(p *network.Packet, why network.Drop) {}

// world is a network with a sender at each host.
type world struct {
	*network.Network
	hosts []*sender
	graph *topology.Graph
}

// build makes a network of 4 leaves with 4 hosts each and 2 or 3 spines. edit
// changes its configuration.
func build(t testing.TB, parts int, edit func(*network.Config)) *world {
	t.Helper()
	host := topology.Cable{Rate: 100 * topology.Gbps, Delay: int64(us)}
	g, err := topology.LeafSpine{Leaves: 4, Spines: 3, HostsPerLeaf: 4, Host: host, Up: host}.Graph()
	if err != nil {
		t.Fatal(err)
	}
	profile := topology.DCQCN()
	c, err := g.Network(topology.Plan{Profile: profile.Lossy(), Seed: 7, MTU: 1200})
	if err != nil {
		t.Fatal(err)
	}
	pool := cores.New(parts)
	t.Cleanup(pool.Close)
	c.Parts, c.Parallel, c.Trail = parts, pool.Do, 5
	edit(&c)
	n, err := network.New(c)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{Network: n, graph: g}
	for i := range int(g.Hosts()) {
		h := &sender{n: n, number: i, to: (i + 5) % int(g.Hosts()), left: 300, window: 40, ecn: network.ECT0, ports: 3}
		w.hosts = append(w.hosts, h)
		n.Attach(i, h)
		n.Kick(i, 0)
	}
	return w
}

// program has all switches run a program.
func program(c *network.Config, p network.Program) {
	for i := range c.Switches {
		c.Switches[i].Program = p
	}
}

// finish runs until nothing is pending, and checks the books.
func (w *world) finish(t testing.TB) {
	t.Helper()
	w.Run(event.Never)
	if err := w.Check(); err != nil {
		t.Error(err)
	}
	if n := w.Totals().Inside(); n != 0 {
		t.Errorf("%d packets are inside, and nothing is pending", n)
	}
}

// got returns the whole and the trimmed packets that have arrived.
func (w *world) got() (whole, trimmed int) {
	for _, h := range w.hosts {
		whole += h.got
		trimmed += h.trims
	}
	return whole, trimmed
}
