package network

import (
	"testing"

	"github.com/gosoftroce/rocev2/fabric/event"
)

// clos is leaves with hosts each, and spines that every leaf has a cable to.
// Ports of a leaf: its hosts, then its spines; of a spine: the leaves.
func clos(leaves, perLeaf, spines int, sw Switch, rate int64, delay Time) Config {
	hosts := leaves * perLeaf
	c := Config{Hosts: hosts, Seed: 1}
	for h := range hosts {
		c.Cables = append(c.Cables, Cable{A: h, B: hosts + h/perLeaf, Rate: rate, Delay: delay})
	}
	for l := range leaves {
		for s := range spines {
			c.Cables = append(c.Cables, Cable{A: hosts + l, B: hosts + leaves + s, Rate: rate, Delay: delay})
		}
	}
	up := make([]uint16, spines)
	for s := range up {
		up[s] = uint16(perLeaf + s)
	}
	for l := range leaves {
		t := Table{Sets: [][]uint16{up}, Set: make([]uint16, hosts)}
		for h := range perLeaf {
			t.Sets = append(t.Sets, []uint16{uint16(h)})
			t.Set[l*perLeaf+h] = uint16(h + 1)
		}
		c.Tables = append(c.Tables, t)
	}
	for range spines {
		t := Table{Set: make([]uint16, hosts)}
		for l := range leaves {
			t.Sets = append(t.Sets, []uint16{uint16(l)})
		}
		for h := range hosts {
			t.Set[h] = uint16(h / perLeaf)
		}
		c.Tables = append(c.Tables, t)
	}
	for range leaves + spines {
		c.Switches = append(c.Switches, sw)
	}
	return c
}

// permutation is a host that sends packets to one other, in a window that the
// receiver's acknowledgements open.
type permutation struct {
	n           *Network
	number, to  int
	left, owed  int
	outstanding int
	acks        [4]uint16 // the hosts to acknowledge to
	received    uint64
}

func (h *permutation) Pull(_ Time, _ int, _ uint8, p *Packet) bool {
	switch {
	case h.owed > 0:
		h.owed--
		p.Dst, p.Size, p.SrcPort, p.DSCP = h.acks[0], 104, uint16(h.number), 24
	case h.left > 0 && h.outstanding < 64:
		h.left--
		h.outstanding++
		p.Dst, p.Size, p.SrcPort, p.DSCP, p.ECN = uint16(h.to), 4096+98, uint16(h.number), 24, ECT0
	default:
		return false
	}
	return true
}

func (h *permutation) Receive(_ Time, _ int, p *Packet) {
	if p.Size > 200 {
		h.received++
		if h.received%4 == 0 {
			h.acks[0] = p.Src
			h.owed++
			h.n.Kick(h.number, 0)
		}
		return
	}
	h.outstanding -= 4
	h.n.Kick(h.number, 0)
}
func (h *permutation) Timer(Time)            {}
func (h *permutation) Dropped(*Packet, Drop) {}

func benchmarkPermutation(b *testing.B, leaves, perLeaf, spines, packets int) {
	sw := Switch{Buffer: 64 << 20}
	sw.Classes[3].RED = RED{100_000, 400_000, 200_000}
	var events, hops uint64
	for b.Loop() {
		n, err := New(clos(leaves, perLeaf, spines, sw, 100*gbit, event.Microsecond))
		if err != nil {
			b.Fatal(err)
		}
		hosts := leaves * perLeaf
		for i := range hosts {
			n.Attach(i, &permutation{n: n, number: i, to: (i + hosts/2 + 1) % hosts, left: packets})
			n.Kick(i, 0)
		}
		events += n.Run(event.Never)
		hops += n.Totals().Hops
		if err := n.Check(); err != nil || n.Totals().Inside() != 0 {
			b.Fatal(err, n.Totals())
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(events), "ns/event")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(hops), "ns/hop")
}

// What the network costs without adapters: a permutation of 4 MiB a host in
// packets of 4 KiB, one acknowledgement for four.
func BenchmarkPermutation(b *testing.B) {
	b.Run("hosts=128", func(b *testing.B) { benchmarkPermutation(b, 8, 16, 16, 1024) })
	b.Run("hosts=1024", func(b *testing.B) { benchmarkPermutation(b, 32, 32, 32, 1024) })
}
