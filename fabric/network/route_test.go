package network

import (
	"math"
	"testing"

	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/internal/race"
)

// uplinks returns how many packets each uplink of leaf 0 has carried.
func uplinks(n *Network, c Config, perLeaf, spines int) []uint64 {
	list := make([]uint64, spines)
	for s := range list {
		list[s] = n.Port(c.Hosts, perLeaf+s).Link().Packets
	}
	return list
}

// n flows over n equal ways are balls thrown into bins: they use a part
// 1-(1-1/n)^n of them, within 2 % over 1000 seeds.
func TestECMPIsBallsInBins(t *testing.T) {
	t.Parallel()
	seeds := 1000
	if race.Enabled {
		seeds = 300
	}
	for _, ways := range []int{2, 4, 16} {
		used := 0
		c := clos(2, ways, ways, Switch{Buffer: 1 << 20}, 100*gbit, event.Nanosecond)
		for seed := range uint64(seeds) {
			c.Seed = seed
			n, hosts := build(t, c)
			for h := range ways {
				// Each host is one flow to a host of the other
				// leaf.
				hosts[h].packets = repeat(Packet{Dst: uint16(ways + h), Size: 1000, SrcPort: 49152}, 2)
				n.Kick(h, 0)
			}
			finish(t, n)
			for _, packets := range uplinks(n, c, ways, ways) {
				if packets%2 != 0 {
					t.Fatal("a flow has taken two ways")
				}
				if packets > 0 {
					used++
				}
			}
		}
		got := float64(used) / float64(seeds) / float64(ways)
		want := 1 - math.Pow(1-1/float64(ways), float64(ways))
		t.Logf("%d ways: %.4f of them are used, want %.4f", ways, got, want)
		if math.Abs(got/want-1) > 0.02 {
			t.Errorf("%d flows use %.4f of %d ways, want %.4f", ways, got, ways, want)
		}
	}
}

// The UDP source port is entropy, and switches hash differently: what one has
// sent to one port, the next one spreads over all of its own.
func TestHashUsesPortsAndSeeds(t *testing.T) {
	t.Parallel()
	const flows, ways = 4000, 4
	c := clos(2, ways, ways, Switch{Buffer: 100 << 20}, 100*gbit, event.Nanosecond)
	n, hosts := build(t, c)
	for i := range flows {
		hosts[0].packets = append(hosts[0].packets, Packet{Dst: ways, Size: 100, SrcPort: uint16(i)})
	}
	n.Kick(0, 0)
	finish(t, n)
	for s, packets := range uplinks(n, c, ways, ways) {
		if !within(int64(packets), flows/ways, 10) {
			t.Errorf("%d of %d flows take uplink %d", packets, flows, s)
		}
	}
	a, b := &n.switches[0], &n.switches[1]
	same := 0
	for i := range flows {
		p := Packet{Src: 1, Dst: 2, SrcPort: uint16(i)}
		if a.hash(&p)>>62 == b.hash(&p)>>62 {
			same++
		}
	}
	if !within(int64(same), flows/4, 10) {
		t.Errorf("two switches choose alike for %d of %d flows", same, flows)
	}
}

// Spraying gives each way the same share, packet by packet; by the least queue,
// no packet waits for others while a way is free.
func TestSprayAndLeastQueue(t *testing.T) {
	t.Parallel()
	const ways, packets = 8, 800
	for _, routing := range []Routing{Spray, LeastQueue} {
		c := clos(2, ways, ways, Switch{Buffer: 100 << 20, Routing: routing}, 100*gbit, event.Microsecond)
		n, hosts := build(t, c)
		for h := range ways {
			hosts[h].packets = repeat(Packet{Dst: uint16(ways + h), Size: 1000}, packets)
			n.Kick(h, 0)
		}
		finish(t, n)
		for s, sent := range uplinks(n, c, ways, ways) {
			if !within(int64(sent), packets, 1) {
				t.Errorf("routing %d: uplink %d carries %d packets, want %d", routing, s, sent, packets)
			}
			if most := n.Port(c.Hosts, ways+s).Queues().MaxBytes; most > 3000 {
				t.Errorf("routing %d: uplink %d has had %d bytes queued", routing, s, most)
			}
		}
	}
}

// numbered is a host of a permutation that counts what others have overtaken.
type numbered struct {
	permutation
	sent, latest, overtaken uint32
}

func (h *numbered) Pull(now Time, port int, paused uint8, p *Packet) bool {
	ok := h.permutation.Pull(now, port, paused, p)
	if ok && p.ECN != NotECT {
		h.sent++
		p.Handle = h.sent
	}
	return ok
}

func (h *numbered) Receive(now Time, port int, p *Packet) {
	if p.ECN != NotECT && p.Handle < h.latest {
		h.overtaken++
	}
	if p.ECN != NotECT {
		h.latest = max(h.latest, p.Handle)
	}
	h.permutation.Receive(now, port, p)
}

// By ECMP the last flow of a permutation takes several times as long as alone,
// though the network has no bottleneck; by spraying or least queues hardly
// longer. Then packets overtake each other.
func TestPermutationByRouting(t *testing.T) {
	t.Parallel()
	const packets, wire = 512, 4194 * 80
	for routing, most := range map[Routing]int{ECMP: 0, Flowlet: 0, LeastQueue: 112, Spray: 112} {
		c := clos(4, 16, 16, Switch{Buffer: 64 << 20, Routing: routing, Gap: event.Microsecond}, 100*gbit, event.Microsecond)
		n, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		hosts := make([]*numbered, c.Hosts)
		for i := range hosts {
			hosts[i] = &numbered{permutation: permutation{n: n, number: i, to: (i*37 + 21) % c.Hosts, left: packets}}
			n.Attach(i, hosts[i])
			n.Kick(i, 0)
		}
		finish(t, n)
		var overtaken uint32
		for _, h := range hosts {
			overtaken += h.overtaken
		}
		percent := int(100 * n.Now() / (packets * wire))
		t.Logf("routing %d: %d %% of the time alone, %d of %d packets overtaken", routing, percent, overtaken, packets*c.Hosts)
		if most > 0 && percent > most || routing == ECMP && percent < 150 {
			t.Errorf("routing %d: %d %% of the time alone", routing, percent)
		}
		if (overtaken == 0) != (routing == ECMP) {
			t.Errorf("routing %d: %d packets overtaken", routing, overtaken)
		}
	}
}

// A flow stays on its way until it has paused for longer than the gap; so its
// packets keep their order where ways differ by less.
func TestFlowlets(t *testing.T) {
	t.Parallel()
	const ways, flowlets = 8, 400
	sw := Switch{Buffer: 100 << 20, Routing: Flowlet, Gap: 10 * event.Microsecond}
	c := clos(2, ways, ways, sw, 100*gbit, event.Microsecond)
	n, hosts := build(t, c)
	for i := range Time(flowlets) {
		// 5 packets 5 us apart are one flowlet; 20 us later comes the
		// next.
		for j := range Time(5) {
			n.At((40*i+5*j)*event.Microsecond, func() {
				hosts[0].packets = append(hosts[0].packets, Packet{Dst: ways, Size: 1000, Handle: uint32(i)})
				n.Kick(0, 0)
			})
		}
	}
	way := map[uint32]int{}
	changes, last := 0, -1
	n.Tap(func(x Sight) {
		if x.Node != c.Hosts || x.Port < ways {
			return
		}
		if before, ok := way[x.Packet.Handle]; ok && before != x.Port {
			t.Errorf("flowlet %d takes uplinks %d and %d", x.Packet.Handle, before, x.Port)
		}
		way[x.Packet.Handle] = x.Port
		if x.Port != last {
			changes++
		}
		last = x.Port
	})
	finish(t, n)
	if !within(int64(changes), flowlets*(ways-1)/ways, 10) {
		t.Errorf("%d flowlets change their way %d times, want 7 of 8", flowlets, changes)
	}
}

// A cable that fails loses its share of the flows until the tables follow, then
// nothing. When it comes back, nothing is lost either.
func TestFailedCable(t *testing.T) {
	t.Parallel()
	const ways, flows = 4, 64
	c := clos(2, ways, ways, Switch{Buffer: 100 << 20}, 100*gbit, event.Microsecond)
	// Cable of leaf 0 to spine 2.
	const failed = 2*ways + 2
	whole := c.Tables
	c.Converge = 50 * event.Microsecond
	c.Reroute = func(up []bool) []Table {
		if up[failed] {
			return whole
		}
		tables := append([]Table(nil), whole...)
		for l := range 2 {
			sets := append([][]uint16(nil), whole[l].Sets...)
			sets[0] = []uint16{ways, ways + 1, ways + 3}
			tables[l].Sets = sets
		}
		return tables
	}
	n, hosts := build(t, c)
	// Every flow has a packet each microsecond.
	for i := range Time(300) {
		n.At(i*event.Microsecond, func() {
			for f := range flows {
				h := f % ways
				hosts[h].packets = append(hosts[h].packets, Packet{Dst: ways, Size: 84, SrcPort: uint16(f), Handle: uint32(i)})
				n.Kick(h, 0)
			}
		})
	}
	n.At(100*event.Microsecond, func() { n.SetCable(failed, false) })
	n.At(200*event.Microsecond, func() { n.SetCable(failed, true) })
	share := 0
	n.Tap(func(x Sight) {
		if x.Node == c.Hosts && x.Port == ways+2 && x.Packet.Handle == 10 {
			share++
		}
	})
	finish(t, n)
	lost := n.Totals().Drops[CableDown]
	if n.Totals().Dropped() != lost || share == 0 {
		t.Fatalf("%+v; %d flows take the cable", n.Totals(), share)
	}
	// 50 packets of each flow on it, and what was on the way.
	if !within(int64(lost), int64(50*share), 6) {
		t.Errorf("%d packets of %d flows are lost in 50 us, of 1 each us", lost, share)
	}
	// Sent before 98 us, or after 152: all there.
	got := map[uint32]int{}
	for _, p := range hosts[ways].received {
		got[p.Handle]++
	}
	for i := range uint32(300) {
		if count := got[i]; (i < 98 || i > 152) && count != flows {
			t.Errorf("of what was sent at %d us, %d of %d packets arrive", i, count, flows)
		} else if i > 102 && i < 148 && count != flows-share {
			t.Errorf("of what was sent at %d us, %d packets arrive, want %d", i, count, flows-share)
		}
	}
}

// By the least queue, a switch passes over its own ports that are down at once:
// a queue that nothing enters would draw all packets.
func TestLeastQueueAvoidsDownPorts(t *testing.T) {
	t.Parallel()
	const ways = 4
	c := clos(2, ways, ways, Switch{Buffer: 100 << 20, Routing: LeastQueue}, 100*gbit, event.Microsecond)
	n, hosts := build(t, c)
	for h := range ways {
		hosts[h].packets = repeat(Packet{Dst: uint16(ways + h), Size: 1000}, 1000)
		n.Kick(h, 0)
	}
	n.At(20*event.Microsecond, func() { n.SetCable(2*ways+2, false) })
	finish(t, n)
	if got := n.Totals(); got.Dropped() == 0 || got.Dropped() > 20 || got.Delivered+got.Dropped() != 4000 {
		t.Errorf("%+v: only what was on the cable is lost", got)
	}
}

// A host whose own cable is down goes on sending at its rate, and all of it is
// lost: so its retries end. Its pauses are sent again when the cable is back.
func TestHostWithoutCable(t *testing.T) {
	t.Parallel()
	n, hosts := build(t, star(2, Switch{Buffer: 1 << 20}, 8*gbit, event.Microsecond))
	hosts[0].packets = repeat(Packet{Dst: 1, Size: 1000}, 100)
	n.Kick(0, 0)
	n.Pause(0, 0, 1)
	n.At(10_500*event.Nanosecond, func() { n.SetCable(0, false) })
	n.At(20_500*event.Nanosecond, func() { n.SetCable(0, true) })
	n.Run(50 * event.Microsecond)
	balance(t, n)
	// On the cable were the 10th and the 11th packet; 10 begin meanwhile.
	// Pause frames take the place of none but their own 84 ns.
	got := n.Totals()
	if got.Drops[CableDown] != 12 || hosts[0].dropped[CableDown] != 12 || got.Dropped() != 12 {
		t.Errorf("%+v, want 12 packets lost", got)
	}
	if n.Port(2, 0).Paused() != 1 {
		t.Error("the host's pause is forgotten")
	}
	n.Pause(0, 0, 0)
	finish(t, n)
	if got := n.Totals(); got.Delivered != 88 {
		t.Errorf("%+v", got)
	}
}

// A cable that comes back is not paused: what had paused it is forgotten.
func TestCableComesBackFree(t *testing.T) {
	t.Parallel()
	var sw Switch
	sw.Buffer = 1 << 20
	sw.Classes[3] = Class{Lossless: true, Alpha: -6}
	c := chain(sw, event.Microsecond, 100*gbit, 100*gbit, 100*gbit)
	for cable := range 3 {
		n, hosts := build(t, c)
		n.Pause(1, 0, 1<<3)
		hosts[0].packets = repeat(Packet{Dst: 1, Size: 1000, DSCP: 24}, 1000)
		n.Kick(0, 0)
		n.Run(100 * event.Microsecond)
		if n.Port(0, 0).Paused() == 0 || n.Port(2, 1).Paused() == 0 {
			t.Fatal("the pause has not come to the host")
		}
		n.SetCable(cable, false)
		n.SetCable(cable, true)
		n.Pause(1, 0, 0)
		finish(t, n)
		if got := n.Totals(); got.Delivered+got.Dropped() != 1000 || got.Delivered < 500 {
			t.Errorf("cable %d: %+v", cable, got)
		}
	}
}

// What is sent round and round ends at its hop limit, and what the tables do
// not know is dropped by name.
func TestDropsByName(t *testing.T) {
	t.Parallel()
	c := chain(Switch{Buffer: 1 << 20}, event.Microsecond, 100*gbit, 100*gbit, 100*gbit)
	c.Tables[1] = Table{Set: []uint16{0, 0}, Sets: [][]uint16{{0}}}
	c.MTU = 1000
	for _, row := range []struct {
		name string
		p    Packet
		edit func(*Config)
		want Drop
		hops uint64
	}{
		{"loop", Packet{Dst: 1, Size: 1000, Hops: 9}, nil, HopLimit, 9},
		{"loop of 64", Packet{Dst: 1, Size: 1000}, nil, HopLimit, 64},
		{"no such host", Packet{Dst: 7, Size: 1000}, nil, NoRoute, 0},
		{"too long", Packet{Dst: 1, Size: 1001}, nil, TooLong, 0},
		{"no port", Packet{Dst: 1, Size: 1000}, func(c *Config) { c.Tables[0] = Table{Set: []uint16{0, 0}, Sets: [][]uint16{{}}} }, NoRoute, 1},
		{"wrong host", Packet{Dst: 1, Size: 1000}, func(c *Config) { c.Tables[0] = Table{Set: []uint16{0, 0}, Sets: [][]uint16{{0}}} }, Misrouted, 1},
		{"lost", Packet{Dst: 1, Size: 1000}, func(c *Config) { c.Cables[0].Loss = billion }, CableLoss, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := c
			c.Tables = append([]Table(nil), c.Tables...)
			c.Cables = append([]Cable(nil), c.Cables...)
			if row.edit != nil {
				row.edit(&c)
			}
			n, hosts := build(t, c)
			hosts[0].packets = []Packet{row.p}
			n.Kick(0, 0)
			finish(t, n)
			if got := n.Totals(); got.Drops[row.want] != 1 || hosts[0].dropped[row.want] != 1 || got.Hops != row.hops {
				t.Errorf("%+v, want 1 %v after %d hops", got, row.want, row.hops)
			}
		})
	}
}

// Cable.Loss loses that many packets.
func TestCableLoss(t *testing.T) {
	t.Parallel()
	c := chain(Switch{Buffer: 100 << 20}, event.Microsecond, 100*gbit, 100*gbit)
	c.Cables[0].Loss = billion / 100
	n, hosts := build(t, c)
	hosts[0].packets = repeat(Packet{Dst: 1, Size: 1000}, 200_000)
	n.Kick(0, 0)
	finish(t, n)
	if lost := n.Totals().Drops[CableLoss]; !within(int64(lost), 2000, 10) {
		t.Errorf("%d of 200,000 packets lost, want 2000", lost)
	}
}
