package network

import (
	"fmt"

	"github.com/gosoftroce/rocev2/fabric/event"
)

// maxParts is how many parts a network can have.
const maxParts = 64

// divide makes the parts: queues of events, and the nodes of each.
func (n *Network) divide(c *Config) error {
	of, parts := c.parts()
	for i := range parts {
		q, err := event.NewQueue(n.source.all())
		if err != nil {
			return fmt.Errorf("network: %d cables are too many: %w", len(c.Cables), err)
		}
		a := &part{net: n, windows: &n.parts, number: i, q: q, source: n.source, links: n.links, hosts: n.hosts, switches: n.switches, inside: -1, first: event.Never,
			flights: make([]fifo, len(n.links))}
		a.slots.trails.room = c.Trail
		a.out[0], a.out[1] = make([]box, parts), make([]box, parts)
		n.parts.all = append(n.parts.all, a)
	}
	for i := range n.hosts {
		n.hosts[i].part = n.parts.all[of[i]]
	}
	for i := range n.switches {
		n.switches[i].part = n.parts.all[of[c.Hosts+i]]
	}
	n.parts.begin()
	for i := range c.Cables {
		if k := &c.Cables[i]; of[k.A] != of[k.B] {
			n.parts.lookahead = min(n.parts.lookahead, k.Delay)
		}
	}
	return nil
}

// Parts returns how many parts the network has: Config.Parts, or fewer if its
// cables cannot be cut so often.
func (n *Network) Parts() int { return len(n.parts.all) }

// PartOf returns the part that a node is in.
func (n *Network) PartOf(node int) int { return n.partOf(node).number }

func (n *Network) partOf(node int) *part {
	if node < len(n.hosts) {
		return n.hosts[node].part
	}
	return n.switches[node-len(n.hosts)].part
}

// digestOf returns the digest of a node.
func (n *Network) digestOf(node int) *event.Digest {
	if node < len(n.hosts) {
		return &n.hosts[node].digest
	}
	return &n.switches[node-len(n.hosts)].digest
}

// parts decides which nodes are in which part, and how many parts there are.
// Nodes with a cable of no delay between them stay together, and so do hosts
// with the switch of their first cable, unless there are fewer switches with
// hosts than parts. What stays together is a group.
func (c *Config) parts() (of []uint8, parts int) {
	of = make([]uint8, c.Hosts+len(c.Switches))
	if c.Parts <= 1 {
		return of, 1
	}
	g := c.groups(true)
	if g.withHosts() < c.Parts {
		g = c.groups(false)
	}
	home := g.share(c.Parts)
	number := make([]int, c.Parts) // of parts that have a node, + 1
	for node := range of {
		i := home[g.of(node)]
		if number[i] == 0 {
			parts++
			number[i] = parts
		}
		of[node] = uint8(number[i] - 1)
	}
	return of, parts
}

// groups are nodes that stay together: trees, with the lowest node at the root.
type groups struct {
	up   []int
	load []int  // of a root: the ends of cables, each at a host as four
	host []bool // a root has a host
}

// hostLoad is how many times the work of a switch's port that of a host is.
const hostLoad = 4

func (c *Config) groups(hostsWithSwitches bool) *groups {
	nodes := c.Hosts + len(c.Switches)
	g := &groups{make([]int, nodes), make([]int, nodes), make([]bool, nodes)}
	for i := range g.up {
		g.up[i] = i
	}
	cabled := make([]bool, c.Hosts)
	for _, k := range c.Cables {
		for _, ends := range [][2]int{{k.A, k.B}, {k.B, k.A}} {
			first := ends[0] < c.Hosts && !cabled[ends[0]]
			if first {
				cabled[ends[0]] = true
			}
			if k.Delay == 0 || hostsWithSwitches && first && ends[1] >= c.Hosts {
				g.join(ends[0], ends[1])
			}
		}
	}
	for _, k := range c.Cables {
		for _, end := range []int{k.A, k.B} {
			if end < c.Hosts {
				g.load[g.of(end)] += hostLoad
			} else {
				g.load[g.of(end)]++
			}
		}
	}
	for i := range c.Hosts {
		g.host[g.of(i)] = true
	}
	return g
}

// of returns the root of a node.
func (g *groups) of(node int) int {
	for g.up[node] != node {
		g.up[node] = g.up[g.up[node]]
		node = g.up[node]
	}
	return node
}

func (g *groups) join(a, b int) {
	a, b = g.of(a), g.of(b)
	g.up[max(a, b)] = min(a, b)
}

func (g *groups) withHosts() (n int) {
	for i := range g.host {
		if g.host[i] && g.of(i) == i {
			n++
		}
	}
	return n
}

// share returns the part of each group. Those with hosts keep their order, so
// that neighbours are in one part: each part gets its share of the load. Then
// each other group goes to the part with the least load.
func (g *groups) share(parts int) (home []int) {
	home = make([]int, len(g.up))
	full := make([]int, parts)
	put := func(i, part int) {
		home[i] = part
		full[part] += g.load[i]
	}
	all := 0
	for i := range g.up {
		if g.host[i] {
			all += g.load[i]
		}
	}
	before := 0
	for i := range g.up {
		if g.of(i) == i && g.host[i] {
			middle := 2*before + g.load[i]
			put(i, min(middle*parts/max(2*all, 1), parts-1))
			before += g.load[i]
		}
	}
	for i := range g.up {
		if g.of(i) == i && !g.host[i] {
			least := 0
			for p := range full {
				if full[p] < full[least] {
					least = p
				}
			}
			put(i, least)
		}
	}
	return home
}
