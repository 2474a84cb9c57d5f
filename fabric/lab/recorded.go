package lab

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gosoftroce/rocev2/fabric/topology"
)

// result brings what was recorded to a result.
func (c *recorder) result(res *Result) {
	if c == nil {
		return
	}
	for _, f := range res.Flows {
		c.ended(f)
	}
	res.Ports = c.portTotals()
	res.LeftOut = c.leftOut(len(res.Flows))
	more := 0
	res.Pauses, more = c.pauses(res.End)
	if more > 0 {
		res.LeftOut = append(res.LeftOut, fmt.Sprintf("there were %d pauses more than the %d that are kept", more, len(res.Pauses)))
	}
}

// pauses returns the pauses of all parts in the order in which they began, and
// how many there were beyond them.
func (c *recorder) pauses(end Time) (all []Pause, more int) {
	for i := range c.parts {
		p := &c.parts[i]
		for j := range p.open {
			p.pauses[p.open[j]-1].Until = end
		}
		all = append(all, p.pauses...)
		more += p.more
	}
	slices.SortStableFunc(all, func(a, b Pause) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Port, b.Port))
	})
	if n := len(all) - mostPauses; n > 0 {
		all, more = all[:mostPauses], more+n
	}
	return all, more
}

// portTotals returns the counters of all ports.
func (c *recorder) portTotals() (all []Port) {
	for node := range int(c.r.g.Nodes()) {
		for i, p := range c.r.g.Ports(int32(node)) {
			port := c.r.net.Port(node, i)
			q := port.Queues()
			all = append(all, Port{Node: node, Port: i, Peer: int(p.Peer), Cable: int(p.Link), Rate: Rate(c.r.g.Link(p.Link).Rate),
				LinkStats: port.Link(), MaxQueued: q.MaxBytes, Marks: q.Marks, Drops: c.dropsAt(portRef{node, i})})
		}
	}
	return all
}

// Cable is a cable of a result's network.
type Cable struct {
	A, B         int // nodes: hosts come first, then the switches
	PortA, PortB int
	Rate         Rate
	Delay        Time
	Loss         float64 // share of packets that it loses at random, of its own
}

// Cables returns the cables, in the order in which Failure counts them.
func (r *Result) Cables() (all []Cable) {
	for i, l := range r.graph.Links() {
		a, b := ends(r.graph, int32(i))
		all = append(all, Cable{A: int(l.A), B: int(l.B), PortA: a, PortB: b, Rate: Rate(l.Rate), Delay: Time(l.Delay), Loss: float64(l.Loss) / 1e9})
	}
	return all
}

// ends returns the ports that a link is plugged into.
func ends(g *topology.Graph, link int32) (a, b int) {
	l := g.Link(link)
	return int(g.PortOf(l.A, link)), int(g.PortOf(l.B, link))
}

// PortName returns the name of a port: "h3" of host 3, which has one, and
// "s1.4" of switch 1. Ports are named so in Samples.
func (r *Result) PortName(node, port int) string { return portName(r.Hosts, node, port) }

// NodeName returns the name of a node, as "h3" or "s1".
func (r *Result) NodeName(node int) string {
	if node < r.Hosts {
		return fmt.Sprintf("h%d", node)
	}
	return fmt.Sprintf("s%d", node-r.Hosts)
}

// Dropped returns how many packets were dropped at a port.
func (p *Port) Dropped() (sum uint64) {
	for _, n := range p.Drops {
		sum += n
	}
	return sum
}
