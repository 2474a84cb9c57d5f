package network

import (
	"testing"

	"github.com/gosoftroce/rocev2/fabric/event"
)

// source is a host that sends packets of a list as fast as its cable takes them
// and is not paused, and notes what it receives.
type source struct {
	packets  []Packet
	received []Packet
	at       []Time
	dropped  [NumDrops]int
	trail    func() // called by Receive, if it is not nil
}

func (s *source) Pull(_ Time, _ int, paused uint8, p *Packet) bool {
	if len(s.packets) == 0 || paused>>(s.packets[0].DSCP/8)&1 != 0 {
		return false
	}
	*p = s.packets[0]
	s.packets = s.packets[1:]
	return true
}

func (s *source) Receive(now Time, _ int, p *Packet) {
	s.received = append(s.received, *p)
	s.at = append(s.at, now)
	if s.trail != nil {
		s.trail()
	}
}
func (s *source) Timer(Time)                  {}
func (s *source) Dropped(_ *Packet, why Drop) { s.dropped[why]++ }

const gbit = 1_000_000_000

// star is one switch with a host at each of its ports.
func star(hosts int, sw Switch, rate int64, delay Time) Config {
	c := Config{Hosts: hosts, Switches: []Switch{sw}, Tables: []Table{{}}}
	for h := range hosts {
		c.Cables = append(c.Cables, Cable{A: h, B: hosts, Rate: rate, Delay: delay})
		c.Tables[0].Set = append(c.Tables[0].Set, uint16(h))
		c.Tables[0].Sets = append(c.Tables[0].Sets, []uint16{uint16(h)})
	}
	return c
}

// build returns a network with a source at each host.
func build(t testing.TB, c Config) (*Network, []*source) {
	t.Helper()
	n, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	hosts := make([]*source, c.Hosts)
	for i := range hosts {
		hosts[i] = &source{}
		n.Attach(i, hosts[i])
	}
	return n, hosts
}

func repeat(p Packet, count int) []Packet {
	list := make([]Packet, count)
	for i := range list {
		list[i] = p
		list[i].Handle = uint32(i)
	}
	return list
}

// finish runs until nothing is pending, and checks that the books balance and
// that all counters of buffers are 0.
func finish(t testing.TB, n *Network) {
	t.Helper()
	n.Run(event.Never)
	balance(t, n)
	empty(t, n)
}

func balance(t testing.TB, n *Network) {
	t.Helper()
	if err := n.Check(); err != nil {
		t.Fatal(err)
	}
}

func empty(t testing.TB, n *Network) {
	t.Helper()
	if in := n.Totals().Inside(); in != 0 {
		t.Fatalf("%d packets are still inside", in)
	}
	for i := range n.switches {
		sw := &n.switches[i]
		if sw.sharedUsed != 0 {
			t.Fatalf("switch %d counts %d shared bytes", i, sw.sharedUsed)
		}
		for p := range sw.out {
			if sw.out[p].bytes != 0 {
				t.Fatalf("switch %d, port %d counts %d bytes queued", i, p, sw.out[p].bytes)
			}
			for c := range sw.out[p].in {
				if g := &sw.out[p].in[c]; g.used != 0 || g.headroom != 0 || g.xoff {
					t.Fatalf("switch %d, port %d, class %d counts %+v", i, p, c, *g)
				}
			}
		}
	}
}

// Two hosts send to a third through a plain switch with tail drop.
func TestTailDrop(t *testing.T) {
	t.Parallel()
	n, hosts := build(t, star(3, Switch{Buffer: 100_000}, 100*gbit, event.Microsecond))
	for i := range 2 {
		hosts[i].packets = repeat(Packet{Dst: 2, Size: 1000}, 500)
		n.Kick(i, 0)
	}
	finish(t, n)
	got := n.Totals()
	if got.Sent != 1000 || got.Delivered != uint64(len(hosts[2].received)) {
		t.Errorf("%+v, the host has %d", got, len(hosts[2].received))
	}
	lost := hosts[0].dropped[IngressFull] + hosts[1].dropped[IngressFull] + hosts[0].dropped[EgressFull] + hosts[1].dropped[EgressFull]
	if uint64(lost) != got.Dropped() || lost < 300 || lost > 460 {
		t.Errorf("%d lost, %d by name: 1000 packets at twice the rate into a buffer of 100", lost, got.Dropped())
	}
}
