package topology

import (
	"fmt"
	"math"
)

// Join returns a network of hosts and switches that links join. Node i is host
// i, node hosts+i switch i. The tier of a switch is how many links the next
// host is away. names, if there are any, has a name for each node; see Named.
func Join(hosts, switches int, links []Link, names []string) (*Graph, error) {
	if switches < 0 || switches > MaxSwitches {
		return nil, fmt.Errorf("topology: %d switches; a network has at most %d", switches, MaxSwitches)
	}
	b := NewBuilder(hosts)
	if b.err != nil {
		return nil, b.err
	}
	nodes := hosts + switches
	for _, l := range links {
		if min(l.A, l.B) < 0 || int(max(l.A, l.B)) >= nodes {
			return nil, fmt.Errorf("topology: a link from node %d to node %d; there are nodes 0 to %d", l.A, l.B, nodes-1)
		}
	}
	for _, tier := range tiers(hosts, nodes, links) {
		b.Switch(tier)
	}
	for _, l := range links {
		b.Link(l.A, l.B, l.Cable)
	}
	g, err := b.Graph()
	if err != nil || names == nil {
		return g, err
	}
	return g, g.setNames(names)
}

func (g *Graph) setNames(names []string) error {
	if len(names) != int(g.Nodes()-g.bonds) {
		return fmt.Errorf("topology: %d names for %d nodes", len(names), g.Nodes())
	}
	g.names, g.named = names, make(map[string]int32, len(names))
	for i, name := range names {
		if _, twice := g.named[name]; twice {
			return fmt.Errorf("topology: two nodes have the name %q", name)
		}
		g.named[name] = int32(i)
	}
	return nil
}

// Named returns the node that has a name: in a network that was read from a
// file, the number or name that the file has for it. It returns false if there
// is none.
func (g *Graph) Named(name string) (node int32, ok bool) {
	node, ok = g.named[name]
	return node, ok
}

// NameOf returns the name of a node, "" if it has none.
func (g *Graph) NameOf(node int32) string {
	if int(node) >= len(g.names) {
		return ""
	}
	return g.names[node]
}

// tiers returns how far each switch is from the next host, 1 for one that no
// host reaches.
func tiers(hosts, nodes int, links []Link) []int {
	first := make([]int32, nodes+1) // where the neighbours of a node begin
	for _, l := range links {
		first[l.A+1]++
		first[l.B+1]++
	}
	for i := range nodes {
		first[i+1] += first[i]
	}
	used := make([]int32, nodes)
	neighbours := make([]int32, 2*len(links))
	for _, l := range links {
		neighbours[first[l.A]+used[l.A]] = l.B
		neighbours[first[l.B]+used[l.B]] = l.A
		used[l.A]++
		used[l.B]++
	}
	tier := make([]int, nodes)
	next := make([]int32, 0, nodes)
	for h := range int32(hosts) {
		next = append(next, h)
	}
	for i := 0; i < len(next); i++ {
		at := next[i]
		for _, to := range neighbours[first[at]:first[at+1]] {
			if int(to) >= hosts && tier[to] == 0 {
				tier[to] = min(tier[at]+1, math.MaxUint8)
				next = append(next, to)
			}
		}
	}
	for i := range tier {
		tier[i] = max(tier[i], 1)
	}
	return tier[hosts:]
}
