package network

import (
	"testing"

	"github.com/gosoftroce/rocev2/fabric/event"
)

// observed is what a Watch has told, by node: each is told by one part.
type observed []struct {
	digest  event.Digest
	drops   [NumDrops]uint64
	arrived uint64
	paused  []uint8 // classes, by port
	since   []Time
	while   []Time
}

func watched(n *Network) observed {
	o := make(observed, len(n.hosts)+len(n.switches))
	for i := range o {
		ports := n.Ports(i)
		o[i].paused, o[i].since, o[i].while = make([]uint8, ports), make([]Time, ports), make([]Time, ports)
	}
	n.Watch(&Watch{
		Arrived: func(x Sight) {
			at := &o[x.Node]
			at.digest.Add(uint64(x.At)<<8 ^ uint64(x.Port) ^ x.Packet.identity()<<16 ^ uint64(x.Off))
			if !x.Pause {
				at.arrived++
			}
		},
		Paused: func(now Time, node, port int, classes uint8) {
			at := &o[node]
			at.digest.Add(uint64(now)<<16 ^ uint64(port)<<8 ^ uint64(classes))
			if at.paused[port] != 0 && classes == 0 {
				at.while[port] += now - at.since[port]
			} else if at.paused[port] == 0 {
				at.since[port] = now
			}
			at.paused[port] = classes
		},
		Dropped: func(now Time, node, port int, p *Packet, why Drop) {
			at := &o[node]
			at.digest.Add(uint64(now)<<16 ^ uint64(port)<<8 ^ uint64(why) ^ p.identity())
			at.drops[why]++
		},
	})
	return o
}

// check compares what a Watch has told with the counters, and returns a digest.
func (o observed) check(t *testing.T, n *Network) uint64 {
	t.Helper()
	var all event.Digest
	var drops [NumDrops]uint64
	var arrived uint64
	for i := range o {
		all.Add(o[i].digest.Sum())
		for why := range drops {
			drops[why] += o[i].drops[why]
		}
		if i < len(n.hosts) {
			arrived += o[i].arrived
		}
		for p := range o[i].paused {
			port := n.Port(i, p)
			while := o[i].while[p]
			if o[i].paused[p] != 0 {
				while += n.Now() - o[i].since[p]
			}
			if port.Paused() != o[i].paused[p] || port.Link().Paused != while {
				t.Errorf("node %d, port %d: paused %#x for %v, and told were %#x for %v", i, p, port.Paused(), port.Link().Paused, o[i].paused[p], while)
			}
		}
	}
	totals := n.Totals()
	if drops != totals.Drops {
		t.Errorf("dropped are %v, and told were %v", totals.Drops, drops)
	}
	if got := totals.Delivered + totals.Drops[Misrouted]; arrived != got {
		t.Errorf("%d packets have come to hosts, and told were %d", got, arrived)
	}
	return all.Sum()
}

// The port of a drop is the one whose queue was full, or whose cable was down.
func TestWatchNamesPorts(t *testing.T) {
	t.Parallel()
	c := Config{Hosts: 3, Seed: 1}
	for h := range 3 {
		c.Cables = append(c.Cables, Cable{A: h, B: 3, Rate: gbit, Delay: event.Microsecond})
	}
	c.Switches = []Switch{{Buffer: 100_000}}
	for i := range c.Switches[0].Classes {
		c.Switches[0].Classes[i] = Class{EgressMax: 5000, Alpha: 8, EgressAlpha: 8}
	}
	c.Tables = []Table{{Sets: [][]uint16{{0}, {1}, {2}}, Set: []uint16{0, 1, 2}}}
	n, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	type where struct {
		node, port int
		why        Drop
	}
	seen := map[where]int{}
	n.Watch(&Watch{Dropped: func(_ Time, node, port int, _ *Packet, why Drop) { seen[where{node, port, why}]++ }})
	for i := 1; i < 3; i++ {
		n.Attach(i, &flood{n: n, number: i, r: event.NewRand(1, uint64(i)), left: 50, to: []uint16{0}})
		n.Kick(i, 0)
	}
	n.At(300*event.Microsecond, func() { n.SetCable(2, false) })
	n.Run(event.Second)
	if seen[where{3, 0, EgressFull}] == 0 || seen[where{2, 0, CableDown}] == 0 {
		t.Errorf("drops: %v", seen)
	}
	for w := range seen {
		if w.why == EgressFull && w != (where{3, 0, EgressFull}) {
			t.Errorf("%d full queues at node %d, port %d", seen[w], w.node, w.port)
		}
	}
	n.Watch(nil)
}
