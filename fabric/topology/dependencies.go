package topology

import (
	"fmt"
	"slices"
)

// Channel is one direction of a link between two switches, and the buffer at
// its end, where packets wait for their next link.
type Channel struct {
	Link     int32
	From, To int32 // nodes
}

// Dependencies says which buffers wait for which others: a packet that has
// come by one channel leaves by another one, and cannot before there is room
// at its end. In a lossless network a cycle of them is what a deadlock needs
// (Dally and Seitz 1987; for PFC: Hu et al., HotNets 2016 and CoNEXT 2017).
// Without a cycle there is no deadlock. Packets of all routes are taken to be
// of one class. Hosts are taken to receive at all times.
type Dependencies struct {
	g *Graph
	// Channel 2i is link i from A to B, channel 2i+1 the other way. Its set
	// has the ports of the switch at its end by which packets leave.
	first []int32
	out   []uint64
}

// NewDependencies returns the dependencies of a network without routes.
func NewDependencies(g *Graph) *Dependencies {
	d := &Dependencies{g: g, first: make([]int32, 2*len(g.links)+1)}
	for i, l := range g.links {
		words := [2]int32{}
		if !g.IsHost(l.A) && !g.IsHost(l.B) {
			words = [2]int32{d.words(l.B), d.words(l.A)}
		}
		d.first[2*i+1] = d.first[2*i] + words[0]
		d.first[2*i+2] = d.first[2*i+1] + words[1]
	}
	d.out = make([]uint64, d.first[len(d.first)-1])
	return d
}

// words returns how many words a set of the ports of a switch takes.
func (d *Dependencies) words(node int32) int32 { return int32(len(d.g.Ports(node))+63) / 64 }

// set returns what channel c waits for. It is empty where a host is an end.
func (d *Dependencies) set(c int32) []uint64 { return d.out[d.first[c]:d.first[c+1]] }

// channel returns the channel by which a node sends over a link.
func (d *Dependencies) channel(node, link int32) int32 {
	if d.g.links[link].A == node {
		return 2 * link
	}
	return 2*link + 1
}

// AddTables adds all ways that packets between hosts can take by the tables,
// which are of the same Graph.
func (d *Dependencies) AddTables(t *Tables) {
	done := make([]bool, len(t.leaf))
	for h := range t.g.hosts {
		if g := t.group[h]; g >= 0 && !done[g] {
			done[g] = true
			d.addWays(t, h)
		}
	}
}

// addWays follows the packets for one host from every other host on.
func (d *Dependencies) addWays(t *Tables, host int32) {
	g := t.g
	seen := make([]bool, g.Nodes())
	var queue []int32
	visit := func(s int32) {
		if !g.IsHost(s) && !seen[s] {
			seen[s] = true
			queue = append(queue, s)
		}
	}
	for h := range g.hosts {
		if t.group[h] >= 0 {
			visit(g.Ports(h)[0].Peer)
		}
	}
	for i := 0; i < len(queue); i++ {
		s := queue[i]
		for _, port := range t.Next(s, host) {
			p := g.Ports(s)[port]
			if g.IsHost(p.Peer) {
				continue
			}
			set := d.set(d.channel(s, p.Link))
			for _, out := range t.Next(p.Peer, host) {
				set[out/64] |= 1 << (out % 64)
			}
			visit(p.Peer)
		}
	}
}

// AddPath adds one way: the links that a packet takes, in order, from a host
// or a switch. It is an error if a link does not begin where the one before it
// ends. Then nothing is added.
func (d *Dependencies) AddPath(from int32, links ...int32) error {
	if from < 0 || from >= d.g.Nodes() {
		return fmt.Errorf("topology: a path from node %d; there are nodes 0 to %d", from, d.g.Nodes()-1)
	}
	at := from
	channels := make([]int32, 0, len(links))
	for i, link := range links {
		if link < 0 || int(link) >= len(d.g.links) {
			return fmt.Errorf("topology: a path by link %d; there are links 0 to %d", link, len(d.g.links)-1)
		}
		l := d.g.links[link]
		if l.A != at && l.B != at {
			return fmt.Errorf("topology: link %d, at place %d of a path, is between nodes %d and %d, and the path is at node %d", link, i, l.A, l.B, at)
		}
		channels = append(channels, d.channel(at, link))
		at = l.A + l.B - at
	}
	for i := 1; i < len(channels); i++ {
		if set := d.set(channels[i-1]); len(set) > 0 {
			port := d.g.PortOf(d.describe(channels[i]).From, links[i])
			set[port/64] |= 1 << (port % 64)
		}
	}
	return nil
}

// Cycle returns channels of which each waits for the next, and the last for
// the first. It returns none if there is no such cycle.
func (d *Dependencies) Cycle() []Channel {
	const (
		unseen = iota
		open
		closed
	)
	type frame struct {
		channel int32
		port    int // the next port to follow
	}
	state := make([]uint8, 2*len(d.g.links))
	var stack []frame
	for c := range int32(len(state)) {
		if state[c] != unseen || len(d.set(c)) == 0 {
			continue
		}
		state[c] = open
		stack = append(stack[:0], frame{channel: c})
		for len(stack) > 0 {
			top := &stack[len(stack)-1]
			next, ok := d.follow(top.channel, &top.port)
			switch {
			case !ok:
				state[top.channel] = closed
				stack = stack[:len(stack)-1]
			case state[next] == unseen:
				state[next] = open
				stack = append(stack, frame{channel: next})
			case state[next] == open:
				at := slices.IndexFunc(stack, func(f frame) bool { return f.channel == next })
				var cycle []Channel
				for _, f := range stack[at:] {
					cycle = append(cycle, d.describe(f.channel))
				}
				return cycle
			}
		}
	}
	return nil
}

// follow returns the next channel that c waits for, from a port on.
func (d *Dependencies) follow(c int32, port *int) (int32, bool) {
	set, to := d.set(c), d.describe(c).To
	for *port < len(set)*64 {
		p := *port
		*port++
		if set[p/64]&(1<<(p%64)) == 0 {
			continue
		}
		if out := d.g.Ports(to)[p]; !d.g.IsHost(out.Peer) {
			return d.channel(to, out.Link), true
		}
	}
	return 0, false
}

func (d *Dependencies) describe(c int32) Channel {
	l := d.g.links[c/2]
	if c%2 == 0 {
		return Channel{Link: c / 2, From: l.A, To: l.B}
	}
	return Channel{Link: c / 2, From: l.B, To: l.A}
}
