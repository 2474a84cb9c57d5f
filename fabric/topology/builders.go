package topology

import "fmt"

// count checks a number of a configuration, so that products of three of them
// fit an int64.
func count(what string, n, least int) error {
	if n < least || n > MaxNodes {
		return fmt.Errorf("topology: %d %s; it takes %d to %d", n, what, least, MaxNodes)
	}
	return nil
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// fits checks how large a network is before memory is taken for it.
func fits(hosts, switches, links int64) error {
	if hosts+switches > MaxNodes || switches > MaxSwitches || links > MaxLinks {
		return fmt.Errorf("topology: %d hosts, %d switches and %d links; a network has at most %d nodes, of which %d are switches, and %d links",
			hosts, switches, links, MaxNodes, MaxSwitches, MaxLinks)
	}
	return nil
}

// Pair returns two hosts joined by a cable, without a switch.
func Pair(c Cable) (*Graph, error) {
	b := NewBuilder(2)
	b.Link(0, 1, c)
	return b.Graph()
}

// Star returns one switch with hosts around it.
func Star(hosts int, c Cable) (*Graph, error) {
	if err := count("hosts of a star", hosts, 1); err != nil {
		return nil, err
	}
	b := NewBuilder(hosts)
	s := b.Switch(1)
	for h := range hosts {
		b.Link(int32(h), s, c)
	}
	return b.Graph()
}

// LeafSpine describes a Clos network of two tiers. Each leaf has one link to
// each spine. Host h is attached to leaf h/HostsPerLeaf. The leaves are the
// first switches, the spines the others.
type LeafSpine struct {
	Leaves       int
	Spines       int
	HostsPerLeaf int
	Host         Cable // from a host to its leaf
	Up           Cable // from a leaf to a spine; the zero Cable stands for Host
}

// Graph returns the network.
func (c LeafSpine) Graph() (*Graph, error) {
	err := firstError(count("leaves", c.Leaves, 1), count("spines", c.Spines, 1), count("hosts per leaf", c.HostsPerLeaf, 1))
	if err != nil {
		return nil, err
	}
	leaves, spines, per := int64(c.Leaves), int64(c.Spines), int64(c.HostsPerLeaf)
	if err := fits(leaves*per, leaves+spines, leaves*(per+spines)); err != nil {
		return nil, err
	}
	if c.Up == (Cable{}) {
		c.Up = c.Host
	}
	hosts := c.Leaves * c.HostsPerLeaf
	b := NewBuilder(hosts)
	leaf := switches(b, c.Leaves, 1)
	spine := switches(b, c.Spines, 2)
	for h := range hosts {
		b.Link(int32(h), leaf+int32(h/c.HostsPerLeaf), c.Host)
	}
	for l := range c.Leaves {
		for s := range c.Spines {
			b.Link(leaf+int32(l), spine+int32(s), c.Up)
		}
	}
	return b.Graph()
}

// switches adds n switches of a tier and returns the first.
func switches(b *Builder, n, tier int) int32 {
	first := b.Switch(tier)
	for range n - 1 {
		b.Switch(tier)
	}
	return first
}

// FatTree returns the fat tree of switches with k ports (Al-Fares et al.,
// SIGCOMM 2008): k pods of k/2 edge and k/2 aggregation switches, k^2/4 core
// switches, and k^3/4 hosts. k is even. Aggregation switch j of every pod has
// links to core switches j*k/2 to (j+1)*k/2-1. The edge switches are numbered
// first, then the aggregation switches, both by pod, then the core.
func FatTree(k int, c Cable) (*Graph, error) {
	return Oversubscribed(k, 1, 1, c)
}

// Oversubscribed returns a fat tree with fewer ways up: an edge switch has one
// port up for edge ports down, and an aggregation switch one for core ports.
// Some of the k ports of a switch are free then. Both divide k/2.
func Oversubscribed(k, edge, core int, c Cable) (*Graph, error) {
	if k < 2 || k%2 != 0 || k > 128 {
		return nil, fmt.Errorf("topology: a fat tree of switches with %d ports; it takes an even number from 2 to 128", k)
	}
	half := k / 2
	if edge < 1 || core < 1 || half%edge != 0 || half%core != 0 {
		return nil, fmt.Errorf("topology: a fat tree of switches with %d ports that is oversubscribed %d:1 at the edge and %d:1 above: both divide %d", k, edge, core, half)
	}
	return clos{
		pods: k, edges: half, aggs: half / edge, coresPerAgg: half / core, hosts: half,
		host: c, edge: c, core: c,
	}.graph()
}

// HPCC returns the network on which the HPCC paper (SIGCOMM 2019) is
// evaluated: 320 hosts of 100 Gb/s, 20 top-of-rack, 20 aggregation and 16 core
// switches joined by 400 Gb/s, 5 pods, 1 us a cable: 376 nodes, 480 links.
// Nodes and links have the numbers of simulation/mix/fat.txt in
// alibaba-edu/High-Precision-Congestion-Control.
func HPCC() (*Graph, error) {
	up := Cable{Rate: 400 * Gbps, Delay: Microsecond}
	return clos{
		pods: 5, edges: 4, aggs: 4, coresPerAgg: 4, hosts: 16,
		host: Cable{Rate: 100 * Gbps, Delay: Microsecond}, edge: up, core: up,
	}.graph()
}

// clos is a network of three tiers. Every edge switch of a pod has a link to
// every aggregation switch of it. Aggregation switch j of each pod has a link
// to each of the core switches of group j.
type clos struct {
	pods, edges, aggs, coresPerAgg, hosts int // edges and aggs of a pod, hosts of an edge
	host, edge, core                      Cable
}

func (c clos) graph() (*Graph, error) {
	edges, aggs := c.pods*c.edges, c.pods*c.aggs
	hosts := edges * c.hosts
	links := hosts + edges*c.aggs + aggs*c.coresPerAgg
	if err := fits(int64(hosts), int64(edges+aggs+c.aggs*c.coresPerAgg), int64(links)); err != nil {
		return nil, err
	}
	b := NewBuilder(hosts)
	edge := switches(b, edges, 1)
	agg := switches(b, aggs, 2)
	core := switches(b, c.aggs*c.coresPerAgg, 3)
	for h := range hosts {
		b.Link(int32(h), edge+int32(h/c.hosts), c.host)
	}
	for e := range edges {
		for j := range c.aggs {
			b.Link(edge+int32(e), agg+int32(e/c.edges*c.aggs+j), c.edge)
		}
	}
	for a := range aggs {
		for j := range c.coresPerAgg {
			b.Link(agg+int32(a), core+int32(a%c.aggs*c.coresPerAgg+j), c.core)
		}
	}
	return b.Graph()
}

// Ring returns switches in a ring, each with some hosts. Two switches have one
// link between them. Host h is attached to switch h/perSwitch of the ring.
// Shortest ways through a ring make a cycle of buffers from four switches on:
// it is where deadlocks are studied.
func Ring(n, perSwitch int, host, ring Cable) (*Graph, error) {
	err := firstError(count("switches of a ring", n, 2), count("hosts per switch", perSwitch, 1))
	if err != nil {
		return nil, err
	}
	if err := fits(int64(n)*int64(perSwitch), int64(n), int64(n)*int64(perSwitch+1)); err != nil {
		return nil, err
	}
	b := NewBuilder(n * perSwitch)
	first := switches(b, n, 1)
	for h := range n * perSwitch {
		b.Link(int32(h), first+int32(h/perSwitch), host)
	}
	for i := range n {
		if n == 2 && i == 1 {
			break
		}
		b.Link(first+int32(i), first+int32((i+1)%n), ring)
	}
	return b.Graph()
}
