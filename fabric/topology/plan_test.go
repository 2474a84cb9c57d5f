package topology

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/fabric/network"
)

// sender is a host that sends packets as fast as its link and pauses allow,
// and counts what it receives.
type sender struct {
	dscp     uint8
	class    uint8
	flows    []burst
	received int
	last     event.Time
	dropped  [network.NumDrops]int
}

type burst struct {
	dst, sport uint16
	packets    int
}

func (s *sender) Pull(_ event.Time, _ int, paused uint8, p *network.Packet) bool {
	if len(s.flows) == 0 || paused>>s.class&1 != 0 {
		return false
	}
	f := &s.flows[0]
	*p = network.Packet{Dst: f.dst, SrcPort: f.sport, Size: 1124, DSCP: s.dscp, ECN: network.ECT0}
	if f.packets--; f.packets == 0 {
		s.flows = s.flows[1:]
	}
	return true
}

func (s *sender) Receive(now event.Time, _ int, _ *network.Packet) { s.received++; s.last = now }
func (s *sender) Timer(event.Time)                                 {}
func (s *sender) Dropped(_ *network.Packet, why network.Drop)      { s.dropped[why]++ }

// simulate returns a running network with a sender at each host.
func simulate(t testing.TB, g *Graph, p Plan) (*network.Network, []*sender) {
	t.Helper()
	c, err := g.Network(p)
	if err != nil {
		t.Fatal(err)
	}
	n, err := network.New(c)
	if err != nil {
		t.Fatal(err)
	}
	hosts := make([]*sender, g.Hosts())
	for i := range hosts {
		hosts[i] = &sender{dscp: p.Profile.RoCE, class: n.ClassOf(p.Profile.RoCE)}
		n.Attach(i, hosts[i])
	}
	return n, hosts
}

func kick(n *network.Network, hosts []*sender) {
	for i := range hosts {
		n.Kick(i, 0)
	}
}

// TestNetworkTables compares the tables of a network with Next.
func TestNetworkTables(t *testing.T) {
	t.Parallel()
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 2))
		g := randomGraph(t, r)
		var failed LinkSet
		for range r.IntN(5) {
			failed.Add(int32(r.IntN(len(g.Links()))))
		}
		for _, tables := range []*Tables{g.Shortest(failed), g.UpDown(failed)} {
			if seed%2 == 0 && len(g.Ports(g.Hosts())) > 0 {
				if err := tables.Set(g.Hosts(), 0, 0); err != nil {
					t.Fatal(err)
				}
			}
			got, err := tables.Network()
			if err != nil {
				t.Fatal(err)
			}
			for s := range g.Switches() {
				for h := range g.Hosts() {
					set := got[s].Sets[got[s].Set[h]]
					if want := tables.Next(s+g.Hosts(), h); !slices.Equal(set, want) {
						t.Fatalf("seed %d: switch %d sends to host %d by %v, want %v", seed, s+g.Hosts(), h, set, want)
					}
				}
			}
		}
	}
}

// TestProfilesAreLossless has incasts on every profile and several networks:
// nothing is lost, and something is paused.
func TestProfilesAreLossless(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it fills all queues of large networks: run without -short")
	}
	hpcc, err := HPCC()
	must(t, hpcc, err)
	short := Cable{Rate: 40 * Gbps, Delay: cable40}
	star, err := Star(32, short)
	must(t, star, err)
	for name, g := range map[string]*Graph{"HPCC": hpcc, "leaf-spine": leafSpine(t, 4, 4, 8), "star": star, "ring": ring(t, 3, 4)} {
		for _, p := range Profiles(g.HostRate()) {
			n, hosts := simulate(t, g, Plan{Profile: p, UpDown: true, MTU: 1200})
			for i := 1; i < len(hosts); i += max(1, len(hosts)/24) {
				hosts[i].flows = []burst{{dst: 0, sport: uint16(i), packets: 5000}}
			}
			kick(n, hosts)
			n.Run(event.Never)
			total := n.Totals()
			if total.Dropped() != 0 || total.Delivered != total.Sent || total.Sent == 0 || !n.Idle() || n.Check() != nil {
				t.Errorf("%s on %s: %+v, %v", p.Name, name, total, n.Check())
			}
			if total.XOFFs == 0 || total.Marks == 0 {
				t.Errorf("%s on %s: %d pauses, %d marks: the incast is too small to show anything", p.Name, name, total.XOFFs, total.Marks)
			}
		}
	}
}

// TestLossyDrops checks that Lossy pauses nothing, and drops.
func TestLossyDrops(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it fills all queues of a network: run without -short")
	}
	for _, p := range Profiles(100 * Gbps) {
		n, hosts := simulate(t, leafSpine(t, 2, 2, 8), Plan{Profile: p.Lossy()})
		for i := 1; i < len(hosts); i++ {
			hosts[i].flows = []burst{{dst: 0, packets: 10_000}}
		}
		kick(n, hosts)
		n.Run(event.Never)
		if total := n.Totals(); total.XOFFs != 0 || total.Dropped() == 0 || total.Inside() != 0 {
			t.Errorf("%s: %+v", p.Name, total)
		}
	}
}

// TestProfilesSay checks numbers of profiles at ports of several rates.
func TestProfilesSay(t *testing.T) {
	t.Parallel()
	hpcc, err := HPCC()
	must(t, hpcc, err)
	s := HPCCSim(100*Gbps).Switch(hpcc, 320, 1100) // 16 ports of 100 Gb/s, 4 of 400
	if s.Buffer != 32<<20 || len(s.Ports) != 20 {
		t.Fatalf("a buffer of %d bytes, %d ports", s.Buffer, len(s.Ports))
	}
	for port, want := range map[int]network.Class{
		0:  {Lossless: true, Reserve: 4096, Alpha: -3, XONOffset: 3072, EgressAlpha: 3, Headroom: 37_500, RED: network.RED{Kmin: 400_000, Kmax: 1_600_000, Pmax: 200_000}},
		16: {Lossless: true, Reserve: 4096, Alpha: -1, XONOffset: 3072, EgressAlpha: 3, Headroom: 150_000, RED: network.RED{Kmin: 1_600_000, Kmax: 6_400_000, Pmax: 200_000}},
	} {
		if got := s.Ports[port][3]; got != want {
			t.Errorf("port %d: %+v, want %+v", port, got, want)
		}
	}
	for _, c := range []struct {
		profile Profile
		cable   Cable
		want    int64
	}{
		{Arista7060CX(), Cable{Rate: 40 * Gbps, Delay: cable40}, 71_552},
		{Arista7060CX(), Cable{Rate: 40 * Gbps, Delay: 1}, 66_560},
		{Arista7060CX(), Cable{Rate: 100 * Gbps, Delay: Microsecond}, 268_736},
		{Spectrum(), Cable{Rate: 100 * Gbps, Delay: 0}, 30_720},
		{Spectrum(), Cable{Rate: 400 * Gbps, Delay: Microsecond}, network.Headroom(400*Gbps, event.Microsecond, 1100)},
		{Spectrum(), Cable{Rate: 25 * Gbps, Delay: 2 * Microsecond}, network.Headroom(25*Gbps, 2*event.Microsecond, 1100)},
		{HPCCSim(25 * Gbps), Cable{Rate: 25 * Gbps, Delay: 1}, network.Headroom(25*Gbps, 1, 1100)},
	} {
		g, err := Star(2, c.cable)
		must(t, g, err)
		sw := c.profile.Switch(g, 2, 1100)
		if got := sw.Classes[3].Headroom; got != c.want || sw.Ports != nil {
			t.Errorf("%s, %d bit/s, %d ps: headroom %d, want %d", c.profile.Name, c.cable.Rate, c.cable.Delay, got, c.want)
		}
	}
	if _, err := ProfileByName("trident", Gbps); err == nil {
		t.Error("there is a profile of that name")
	}
	for _, p := range Profiles(Gbps) {
		if got, err := ProfileByName(p.Name, Gbps); err != nil || got.Name != p.Name {
			t.Errorf("%s: %v", p.Name, err)
		}
	}
	m := Spectrum().Marking(network.RED{})
	if m.Classes[3].RED.Kmax != 0 || Spectrum().Classes[3].RED.Kmax == 0 {
		t.Error("Marking changes something else than its copy")
	}
}

// TestUplinksUsed sends one flow of each host of a leaf to other leaves. By
// ECMP n flows use 1-(1-1/n)^n of n ways: balls in bins.
func TestUplinksUsed(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("statistics: run without -short")
	}
	const n = 16
	g := leafSpine(t, 2, n, n)
	used, seeds := 0, 250
	for seed := range seeds {
		net, hosts := simulate(t, g, Plan{Profile: Spectrum(), Seed: uint64(seed)})
		for i := range n {
			hosts[i].flows = []burst{{dst: uint16(n + i), sport: uint16(49152 + i), packets: 1}}
		}
		kick(net, hosts)
		net.Run(event.Never)
		for port := range n {
			if net.Port(2*n, n+port).Link().Packets > 0 {
				used++
			}
		}
	}
	got, want := float64(used)/float64(n*seeds), 0.6439
	if got < want-0.0129 || got > want+0.0129 {
		t.Errorf("%.4f of the uplinks are used, want %.4f within 2 %%", got, want)
	}
}

// TestTablesFollow cuts an uplink. Until the tables follow, what hashes to it
// is lost, and nothing else; then nothing is. When it is mended, it is used
// again.
func TestTablesFollow(t *testing.T) {
	t.Parallel()
	g := leafSpine(t, 2, 4, 4) // leaves 8 and 9, spines 10 to 13
	cut, ok := g.LinkBetween(8, 12)
	if !ok {
		t.Fatal("no link")
	}
	for _, updown := range []bool{false, true} {
		net, hosts := simulate(t, g, Plan{Profile: Spectrum(), Converge: 100 * event.Microsecond, UpDown: updown, Seed: 4})
		round := func() (lost int) {
			before := net.Totals()
			for i := range 4 {
				for sport := range 64 {
					hosts[i].flows = append(hosts[i].flows, burst{dst: uint16(4 + i), sport: uint16(sport), packets: 1})
				}
			}
			kick(net, hosts)
			net.Run(net.Now() + 50*event.Microsecond)
			after := net.Totals()
			if after.Inside() != 0 {
				t.Fatalf("%d packets are still inside", after.Inside())
			}
			return int(after.Drops[network.CableDown] - before.Drops[network.CableDown])
		}
		carried := func() uint64 { return net.Port(8, int(g.PortOf(8, cut))).Link().Packets }
		if lost := round(); lost != 0 || carried() == 0 {
			t.Fatalf("%d lost before, %d went by the link", lost, carried())
		}
		share := int(carried())
		net.SetCable(int(cut), false)
		if lost := round(); lost != share {
			t.Errorf("%d lost while the tables are old, want the %d that went by the link", lost, share)
		}
		net.Run(net.Now() + 100*event.Microsecond)
		if lost := round(); lost != 0 {
			t.Errorf("%d lost with new tables", lost)
		}
		net.SetCable(int(cut), true)
		net.Run(net.Now() + 200*event.Microsecond)
		before := carried()
		if lost := round(); lost != 0 || int(carried()-before) != share {
			t.Errorf("%d lost behind the repair, %d by the link, want %d", lost, carried()-before, share)
		}
		if err := net.Check(); err != nil {
			t.Error(err)
		}
	}
}

// TestStaticTablesStay checks Static and Tables.
func TestStaticTablesStay(t *testing.T) {
	t.Parallel()
	g := ring(t, 3, 1)
	tables := g.Shortest(nil)
	if err := tables.Set(3, 1); err != nil {
		t.Fatal(err)
	}
	c, err := g.Network(Plan{Profile: Spectrum(), Tables: tables, Static: true})
	if err != nil || c.Reroute != nil {
		t.Fatalf("%v", err)
	}
	if set := c.Tables[0].Sets[c.Tables[0].Set[1]]; len(set) != 0 {
		t.Errorf("the route is %v", set)
	}
}

// TestNetworkOf8192Hosts builds the network of a fat tree, and moves a packet
// through it.
func TestNetworkOf8192Hosts(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("8192 hosts take a second: run without -short")
	}
	g := fatTree(t, 32)
	net, hosts := simulate(t, g, Plan{Profile: Spectrum()})
	hosts[0].flows = []burst{{dst: 8191, packets: 3}}
	kick(net, hosts)
	net.Run(event.Never)
	if hosts[8191].received != 3 || net.Totals().Hops != 15 {
		t.Errorf("%d received, %+v", hosts[8191].received, net.Totals())
	}
}
