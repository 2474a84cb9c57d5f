package topology

import (
	"fmt"
	"slices"
)

// Tables are the forwarding tables of all switches of a Graph: by which ports
// a switch may send a packet for a host. All hosts of a leaf share one entry
// in every other switch, and equal sets of ports are stored once. So 8192
// hosts on 1280 switches take some 3 MB.
type Tables struct {
	g     *Graph
	group []int32  // of each host: which entry it has; -1: none, its link has failed
	leaf  []int32  // of each group: the switch that its hosts are attached to
	local []uint16 // of each host: the port by which its switch reaches it
	next  []uint32 // for each switch and group: a set of ports
	// Set i is ports[start[i]:start[i+1]].
	start []uint32
	ports []uint16
	cut   LinkSet // links of hosts that have failed
}

// Sets that every Tables has.
const (
	nowhere uint32 = iota // no way leads to the host
	here                  // the host is attached to this switch
	firstSet
)

// Graph returns the network that the tables are for.
func (t *Tables) Graph() *Graph { return t.g }

// Next returns the ports by which switch sw may send a packet for a host, in
// ascending order. It returns none if no way leads there. The caller does not
// change them. A switch and a host that the Graph does not have are a mistake
// of the caller, as an index out of range is.
func (t *Tables) Next(sw, host int32) []uint16 {
	group := t.group[host]
	if group < 0 {
		return nil
	}
	set := t.next[int(sw-t.g.hosts)*len(t.leaf)+int(group)]
	if set == here {
		return t.local[host : host+1 : host+1]
	}
	from, to := t.start[set], t.start[set+1]
	return t.ports[from:to:to]
}

// Set replaces what switch sw does with packets for one host. So routes can be
// wrong on purpose, which is how routing loops are studied. No ports mean that
// the switch drops such packets. A switch, host or port that is not there is an
// error.
func (t *Tables) Set(sw, host int32, ports ...uint16) error {
	if host < 0 || host >= t.g.hosts || sw < t.g.hosts || sw >= t.g.Nodes() {
		return fmt.Errorf("topology: a route of node %d for node %d; hosts are 0 to %d, switches %d to %d",
			sw, host, t.g.hosts-1, t.g.hosts, t.g.Nodes()-1)
	}
	ports = slices.Clone(ports)
	slices.Sort(ports)
	ports = slices.Compact(ports)
	if n := len(t.g.Ports(sw)); len(ports) > 0 && int(ports[len(ports)-1]) >= n {
		return fmt.Errorf("topology: a route by port %d of switch %d, which has ports 0 to %d", ports[len(ports)-1], sw, n-1)
	}
	t.alone(host)
	in := interner{t: t, sets: map[string]uint32{}}
	t.next[int(sw-t.g.hosts)*len(t.leaf)+int(t.group[host])] = in.set(ports)
	return nil
}

// alone gives a host a group of its own.
func (t *Tables) alone(host int32) {
	old := t.group[host]
	if old >= 0 && !slices.ContainsFunc(t.group[:host], func(g int32) bool { return g == old }) &&
		!slices.ContainsFunc(t.group[host+1:], func(g int32) bool { return g == old }) {
		return
	}
	groups := len(t.leaf)
	next := make([]uint32, 0, int(t.g.Switches())*(groups+1))
	for s := range int(t.g.Switches()) {
		row := t.next[s*groups : (s+1)*groups]
		next = append(next, row...)
		if old >= 0 {
			next = append(next, row[old])
		} else {
			next = append(next, nowhere)
		}
	}
	t.next = next
	t.leaf = append(t.leaf, t.g.Ports(host)[0].Peer)
	t.group[host] = int32(groups)
}

// newTables returns tables without ways between switches. There is a group for
// each switch that has hosts by links that work.
func newTables(g *Graph, failed LinkSet) *Tables {
	t := &Tables{
		g:     g,
		group: make([]int32, g.hosts),
		local: make([]uint16, g.hosts),
		start: make([]uint32, firstSet+1),
	}
	groupOf := make([]int32, g.Nodes())
	for s := g.hosts; s < g.Nodes(); s++ {
		groupOf[s] = -1
		for _, p := range g.Ports(s) {
			if g.IsHost(p.Peer) && !failed.Has(p.Link) {
				groupOf[s] = int32(len(t.leaf))
				t.leaf = append(t.leaf, s)
				break
			}
		}
	}
	for h := range g.hosts {
		t.group[h] = -1
		p := g.Ports(h)[0]
		if failed.Has(p.Link) {
			t.cut.Add(p.Link)
		}
		if !g.IsHost(p.Peer) && !failed.Has(p.Link) {
			t.group[h] = groupOf[p.Peer]
			t.local[h] = g.PortOf(p.Peer, p.Link)
		}
	}
	t.next = make([]uint32, int(g.Switches())*len(t.leaf))
	for i, s := range t.leaf {
		t.next[int(s-g.hosts)*len(t.leaf)+i] = here
	}
	return t
}

// interner stores each set of ports once.
type interner struct {
	t    *Tables
	sets map[string]uint32
	key  []byte
	last uint32
}

func (in *interner) set(ports []uint16) uint32 {
	if len(ports) == 0 {
		return nowhere
	}
	t := in.t
	if in.last >= firstSet && slices.Equal(t.ports[t.start[in.last]:t.start[in.last+1]], ports) {
		return in.last
	}
	in.key = in.key[:0]
	for _, p := range ports {
		in.key = append(in.key, byte(p), byte(p>>8))
	}
	set, ok := in.sets[string(in.key)]
	if !ok {
		set = uint32(len(t.start) - 1)
		t.ports = append(t.ports, ports...)
		t.start = append(t.start, uint32(len(t.ports)))
		in.sets[string(in.key)] = set
	}
	in.last = set
	return set
}

// far is a distance that no way has.
const far int32 = 1 << 30

// Shortest returns tables with all ways of least hops, without the links that
// have failed. Hosts do not forward.
func (g *Graph) Shortest(failed LinkSet) *Tables {
	t := newTables(g, failed)
	in := interner{t: t, sets: map[string]uint32{}}
	fabric := g.fabric(failed)
	distance := make([]int32, g.Switches())
	queue := make([]int32, 0, g.Switches())
	var ports []uint16
	for group, leaf := range t.leaf {
		fabric.distances(leaf-g.hosts, g.Switches()-g.bonds, distance, queue)
		for s := range g.Switches() {
			if distance[s] == far || distance[s] == 0 {
				continue
			}
			ports = ports[:0]
			for _, e := range fabric.of(s) {
				if distance[e.to] == distance[s]-1 && (e.to == leaf-g.hosts || !g.IsBond(e.to+g.hosts)) {
					ports = append(ports, e.port)
				}
			}
			t.next[int(s)*len(t.leaf)+group] = in.set(ports)
		}
	}
	return t
}

// edge is a link that works, from one switch to another. Switches are numbered
// from 0 here.
type edge struct {
	to   int32
	port uint16
}

// fabric is the graph of the switches and the links between them that work.
type fabric struct {
	first []int32
	edges []edge
}

func (f *fabric) of(s int32) []edge { return f.edges[f.first[s]:f.first[s+1]] }

func (f *fabric) size() int32 { return int32(len(f.first) - 1) }

func (g *Graph) fabric(failed LinkSet) *fabric { return g.without(failed, 0) }

// without is fabric without the links of the last switches.
func (g *Graph) without(failed LinkSet, last int32) *fabric {
	f := &fabric{first: make([]int32, g.Switches()+1)}
	end := g.Nodes() - last
	for s := range g.Switches() {
		for i, p := range g.Ports(s + g.hosts) {
			if !g.IsHost(p.Peer) && !failed.Has(p.Link) && max(p.Peer, s+g.hosts) < end {
				f.edges = append(f.edges, edge{to: p.Peer - g.hosts, port: uint16(i)})
			}
		}
		f.first[s+1] = int32(len(f.edges))
	}
	return f
}

// distances computes how many hops each switch is from one. No way leads through
// another switch from bonds on. The queue is memory to work in.
func (f *fabric) distances(from, bonds int32, distance, queue []int32) {
	for s := range distance {
		distance[s] = far
	}
	distance[from] = 0
	queue = append(queue[:0], from)
	for i := 0; i < len(queue); i++ {
		s := queue[i]
		if s >= bonds && s != from {
			continue
		}
		for _, e := range f.of(s) {
			if distance[e.to] == far {
				distance[e.to] = distance[s] + 1
				queue = append(queue, e.to)
			}
		}
	}
}
