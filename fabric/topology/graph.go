package topology

import (
	"fmt"
	"math"
)

// Limits of a Graph. They keep what a configuration asks for within memory.
const (
	MaxNodes    = 1 << 17
	MaxSwitches = 1 << 14
	MaxLinks    = 1 << 20
	MaxPorts    = math.MaxUint16 // of one node

	MaxRate  = 100_000_000_000_000 // bits per second
	MaxDelay = 1_000_000_000_000   // picoseconds: a second
)

// Cable is what a link is made of. Both directions are alike.
type Cable struct {
	Rate  int64  // bits per second
	Delay int64  // picoseconds from one end to the other
	Loss  uint32 // packets of 10^9 that it loses at random, beside Plan.Loss
	Burst uint32 // how many it loses together, see network.Cable; 0: Plan.Burst
	BER   uint64 // bits of 10^18 that are wrong, beside Plan.BER
}

// Gbps is a rate of 10^9 bits per second. Microsecond is a delay in
// picoseconds.
const (
	Gbps        int64 = 1_000_000_000
	Microsecond int64 = 1_000_000
)

// Link is a full-duplex cable between two nodes.
type Link struct {
	A, B int32
	Cable
}

// Port is one end of a link, as its node sees it.
type Port struct {
	Link int32
	Peer int32 // the node at the other end
}

// Graph is a network. Its nodes are numbered: first the hosts, from 0 to
// Hosts()-1, then the switches. So the index of a host is its node. The ports
// of a node are numbered from 0 in the order of its links. A Graph does not
// change, so it may be shared.
type Graph struct {
	hosts int32
	bonds int32   // switches, the last ones, see Bond
	tiers []uint8 // of each node; a host has 0
	links []Link
	first []int32 // where the ports of a node begin
	ports []Port
	// ends has the port number of each end of each link: A, then B.
	ends []uint16
	rate int64

	names []string         // of nodes; nil: they have none
	named map[string]int32 // only looked up
}

// Hosts returns the number of hosts, and Nodes that of hosts and switches.
func (g *Graph) Hosts() int32 { return g.hosts }

// Nodes returns the number of hosts and switches.
func (g *Graph) Nodes() int32 { return int32(len(g.tiers)) }

// Switches returns the number of switches.
func (g *Graph) Switches() int32 { return g.Nodes() - g.hosts }

// HostRate returns the highest rate of a host's link.
func (g *Graph) HostRate() int64 { return g.rate }

// IsHost reports whether a node is a host.
func (g *Graph) IsHost(node int32) bool { return node < g.hosts }

// Tier returns how far above the hosts a switch stands: 1 for a leaf, 2 for
// the switches above it. A host has 0, and so has a bond.
func (g *Graph) Tier(node int32) int { return int(g.tiers[node]) }

// Links returns all links, by number. The caller does not change them.
func (g *Graph) Links() []Link { return g.links }

// Link returns a link by its number.
func (g *Graph) Link(i int32) Link { return g.links[i] }

// Ports returns the ports of a node, by number. The caller does not change
// them.
func (g *Graph) Ports(node int32) []Port {
	return g.ports[g.first[node]:g.first[node+1]:g.first[node+1]]
}

// PortOf returns the number of the port by which a node has a link. The node
// is one of the link's ends.
func (g *Graph) PortOf(node, link int32) uint16 {
	if g.links[link].A == node {
		return g.ends[2*link]
	}
	return g.ends[2*link+1]
}

// LinkBetween returns the first link between two nodes, and false if there is
// none.
func (g *Graph) LinkBetween(a, b int32) (int32, bool) {
	for _, p := range g.Ports(a) {
		if p.Peer == b {
			return p.Link, true
		}
	}
	return 0, false
}

// Builder makes a Graph of its own shape. The first mistake is kept, and
// Graph returns it.
type Builder struct {
	hosts int32
	tiers []uint8
	links []Link
	err   error
}

// NewBuilder begins a network with hosts, which are nodes 0 to hosts-1.
func NewBuilder(hosts int) *Builder {
	b := &Builder{}
	if hosts < 1 || hosts > MaxNodes {
		b.fail("topology: %d hosts; a network has 1 to %d nodes", hosts, MaxNodes)
		return b
	}
	b.hosts = int32(hosts)
	b.tiers = make([]uint8, hosts)
	return b
}

func (b *Builder) fail(format string, args ...any) {
	if b.err == nil {
		b.err = fmt.Errorf(format, args...)
	}
}

// Switch adds a switch and returns its node. Its tier is 1 for a switch that
// hosts are attached to, and more the higher it stands, up to 255. UpDown
// climbs to higher tiers.
func (b *Builder) Switch(tier int) int32 {
	switch {
	case tier < 1 || tier > math.MaxUint8:
		b.fail("topology: tier %d of a switch; tiers are 1 to %d", tier, math.MaxUint8)
	case len(b.tiers) >= MaxNodes:
		b.fail("topology: more than %d nodes", MaxNodes)
	case len(b.tiers)-int(b.hosts) >= MaxSwitches:
		b.fail("topology: more than %d switches", MaxSwitches)
	}
	if b.err != nil {
		return 0
	}
	b.tiers = append(b.tiers, uint8(tier))
	return int32(len(b.tiers) - 1)
}

// Link joins two nodes by a cable and returns the number of the link. Two
// switches may have several links.
func (b *Builder) Link(x, y int32, c Cable) int32 {
	if b.err != nil {
		return 0
	}
	switch n := int32(len(b.tiers)); {
	case x < 0 || x >= n || y < 0 || y >= n:
		b.fail("topology: a link from node %d to node %d; there are nodes 0 to %d", x, y, n-1)
	case x == y:
		b.fail("topology: a link from node %d to itself", x)
	case c.Rate < 1 || c.Rate > MaxRate:
		b.fail("topology: the link from node %d to node %d has %d bit/s; a rate is 1 to %d bit/s", x, y, c.Rate, int64(MaxRate))
	case c.Loss > 1e9:
		b.fail("topology: the link from node %d to node %d loses %d packets of 10^9", x, y, c.Loss)
	case c.BER > 1e18:
		b.fail("topology: the link from node %d to node %d has %d wrong bits of 10^18", x, y, c.BER)
	case c.Delay < 0 || c.Delay > MaxDelay:
		b.fail("topology: the link from node %d to node %d has a delay of %d ps; a delay is 0 to %d ps", x, y, c.Delay, int64(MaxDelay))
	case len(b.links) >= MaxLinks:
		b.fail("topology: more than %d links", MaxLinks)
	}
	if b.err != nil {
		return 0
	}
	b.links = append(b.links, Link{A: x, B: y, Cable: c})
	return int32(len(b.links) - 1)
}

// Graph returns the network, or the first mistake. Every host must have a link.
// One with several has a Bond. An adapter whose ports have addresses of their
// own is several hosts.
func (b *Builder) Graph() (*Graph, error) {
	bonds := b.bond()
	if b.err != nil {
		return nil, b.err
	}
	nodes := len(b.tiers)
	g := &Graph{
		hosts: b.hosts,
		bonds: bonds,
		tiers: b.tiers,
		links: b.links,
		first: make([]int32, nodes+1),
		ports: make([]Port, 2*len(b.links)),
		ends:  make([]uint16, 2*len(b.links)),
	}
	for _, l := range g.links {
		g.first[l.A+1]++
		g.first[l.B+1]++
	}
	for n := range nodes {
		count := g.first[n+1]
		if int32(n) < g.hosts && count == 0 {
			return nil, errNoLink(n)
		}
		if count > MaxPorts {
			return nil, fmt.Errorf("topology: node %d has %d links; a node has at most %d", n, count, MaxPorts)
		}
		g.first[n+1] += g.first[n]
	}
	used := make([]int32, nodes)
	attach := func(link int, node, peer int32) uint16 {
		port := used[node]
		used[node]++
		g.ports[g.first[node]+port] = Port{Link: int32(link), Peer: peer}
		return uint16(port)
	}
	for i, l := range g.links {
		g.ends[2*i] = attach(i, l.A, l.B)
		g.ends[2*i+1] = attach(i, l.B, l.A)
		if g.IsHost(l.A) || g.IsHost(l.B) {
			g.rate = max(g.rate, l.Rate)
		}
	}
	return g, nil
}

// LinkSet is a set of links: those that have failed, for instance. The zero
// LinkSet is empty.
type LinkSet []uint64

// Add puts a link into the set.
func (s *LinkSet) Add(link int32) {
	for int(link/64) >= len(*s) {
		*s = append(*s, 0)
	}
	(*s)[link/64] |= 1 << (link % 64)
}

// Remove takes a link out of the set.
func (s LinkSet) Remove(link int32) {
	if int(link/64) < len(s) {
		s[link/64] &^= 1 << (link % 64)
	}
}

// Has reports whether a link is in the set.
func (s LinkSet) Has(link int32) bool {
	return int(link/64) < len(s) && s[link/64]&(1<<(link%64)) != 0
}
