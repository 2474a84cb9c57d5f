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
		a := &part{net: n, windows: &n.parts, number: i, q: q, source: n.source, links: n.links, hosts: n.hosts, switches: n.switches, inside: -1,
			flights: make([]fifo, len(n.links)), out: make([]outlet, parts), often: event.Never}
		a.slots.trails.room = c.Trail
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
			n.parts.join(int(of[k.A]), int(of[k.B]), k.Delay)
			n.parts.join(int(of[k.B]), int(of[k.A]), k.Delay)
		}
	}
	return nil
}

// join notes that there is a cable from one part to another one.
func (w *windows) join(from, to int, delay Time) {
	w.lookahead = min(w.lookahead, delay)
	f, t := w.all[from], w.all[to]
	f.often = min(f.often, max(delay/clockSteps, 1))
	for i := range t.in {
		if in := &t.in[i]; in.from == f {
			in.delay = min(in.delay, delay)
			return
		}
	}
	t.in = append(t.in, inlet{f, delay, &f.out[to]})
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
