package topology

import (
	"math"
	"strings"
	"testing"
)

var cable = Cable{Rate: 100 * Gbps, Delay: Microsecond}

// must is for networks that are right.
func must(t testing.TB, g *Graph, err error) *Graph {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func leafSpine(t testing.TB, leaves, spines, hosts int) *Graph {
	t.Helper()
	g, err := LeafSpine{Leaves: leaves, Spines: spines, HostsPerLeaf: hosts, Host: cable}.Graph()
	return must(t, g, err)
}

func fatTree(t testing.TB, k int) *Graph {
	t.Helper()
	g, err := FatTree(k, cable)
	return must(t, g, err)
}

func ring(t testing.TB, n, hosts int) *Graph {
	t.Helper()
	g, err := Ring(n, hosts, cable, cable)
	return must(t, g, err)
}

func TestBuildersCount(t *testing.T) {
	t.Parallel()
	pair, err := Pair(cable)
	must(t, pair, err)
	star, err := Star(16, cable)
	must(t, star, err)
	hpcc, err := HPCC()
	must(t, hpcc, err)
	for _, c := range []struct {
		name                   string
		g                      *Graph
		hosts, switches, links int
	}{
		{"pair", pair, 2, 0, 1},
		{"star", star, 16, 1, 16},
		{"128 hosts, 2:1", leafSpine(t, 8, 8, 16), 128, 16, 192},
		{"1024 hosts", leafSpine(t, 32, 32, 32), 1024, 64, 2048},
		{"fat tree 4", fatTree(t, 4), 16, 20, 48},
		{"fat tree 8", fatTree(t, 8), 128, 80, 384},
		{"HPCC", hpcc, 320, 56, 480},
		{"ring of 2", ring(t, 2, 1), 2, 2, 3},
		{"ring of 3", ring(t, 3, 2), 6, 3, 9},
	} {
		if int(c.g.Hosts()) != c.hosts || int(c.g.Switches()) != c.switches || len(c.g.Links()) != c.links {
			t.Errorf("%s has %d hosts, %d switches, %d links, want %d, %d, %d", c.name,
				c.g.Hosts(), c.g.Switches(), len(c.g.Links()), c.hosts, c.switches, c.links)
		}
		checkPorts(t, c.name, c.g)
	}
}

// checkPorts checks that links and ports agree.
func checkPorts(t *testing.T, name string, g *Graph) {
	t.Helper()
	seen := make([]int, len(g.Links()))
	for n := range g.Nodes() {
		last := int32(-1)
		for i, p := range g.Ports(n) {
			l := g.Link(p.Link)
			if !(l.A == n && l.B == p.Peer || l.B == n && l.A == p.Peer) {
				t.Errorf("%s: port %d of node %d has link %d to %d, which joins %d and %d", name, i, n, p.Link, p.Peer, l.A, l.B)
			}
			if p.Link <= last {
				t.Errorf("%s: the ports of node %d are not in the order of links", name, n)
			}
			if int(g.PortOf(n, p.Link)) != i {
				t.Errorf("%s: PortOf(%d, %d) = %d, want %d", name, n, p.Link, g.PortOf(n, p.Link), i)
			}
			last = p.Link
			seen[p.Link]++
		}
		if g.IsHost(n) != (g.Tier(n) == 0) || g.IsHost(n) && len(g.Ports(n)) != 1 {
			t.Errorf("%s: node %d has tier %d and %d ports", name, n, g.Tier(n), len(g.Ports(n)))
		}
	}
	for i, n := range seen {
		if n != 2 {
			t.Errorf("%s: link %d has %d ends", name, i, n)
		}
	}
}

// TestHPCCIsTheirs checks the network against lines of fat.txt.
func TestHPCCIsTheirs(t *testing.T) {
	t.Parallel()
	g, err := HPCC()
	must(t, g, err)
	for i, want := range map[int][4]int64{
		0:   {0, 320, 100, 1000},
		15:  {15, 320, 100, 1000},
		319: {319, 339, 100, 1000},
		320: {320, 340, 400, 1000},
		336: {324, 344, 400, 1000},
		399: {339, 359, 400, 1000},
		400: {340, 360, 400, 1000},
		404: {341, 364, 400, 1000},
		415: {343, 375, 400, 1000},
		416: {344, 360, 400, 1000},
		479: {359, 375, 400, 1000},
	} {
		l := g.Link(int32(i))
		if got := [4]int64{int64(l.A), int64(l.B), l.Rate / Gbps, l.Delay / 1000}; got != want {
			t.Errorf("link %d is %v (nodes, Gb/s, ns), want %v", i, got, want)
		}
	}
}

func TestBuildersRefuse(t *testing.T) {
	t.Parallel()
	none := func(g *Graph, err error) error { return err }
	own := func(build func(b *Builder)) error {
		b := NewBuilder(2)
		build(b)
		_, err := b.Graph()
		return err
	}
	for _, c := range []struct {
		err  error
		want string
	}{
		{none(Pair(Cable{})), "0 bit/s"},
		{none(Pair(Cable{Rate: 1, Delay: -1})), "-1 ps"},
		{none(Star(0, cable)), "0 hosts of a star"},
		{none(Star(math.MaxInt, cable)), "hosts of a star"},
		{none(FatTree(5, cable)), "even number"},
		{none(FatTree(100, cable)), "250000 hosts"},
		{none(LeafSpine{Leaves: 0, Spines: 1, HostsPerLeaf: 1, Host: cable}.Graph()), "0 leaves"},
		{none(LeafSpine{Leaves: 1 << 17, Spines: 1 << 17, HostsPerLeaf: 1 << 17, Host: cable}.Graph()), "at most"},
		{none(LeafSpine{Leaves: 100, Spines: 16300, HostsPerLeaf: 1, Host: cable}.Graph()), "of which 16384 are switches"},
		{none(Ring(1, 1, cable, cable)), "1 switches of a ring"},
		{none(Ring(1<<17, 1, cable, cable)), "at most"},
		{none(Ring(3, 1, cable, Cable{})), "0 bit/s"},
		{none(NewBuilder(0).Graph()), "0 hosts"},
		{own(func(b *Builder) {}), "host 0 has 0 links"},
		{own(func(b *Builder) { b.Link(0, 2, cable) }), "nodes 0 to 1"},
		{own(func(b *Builder) { b.Link(1, 1, cable) }), "to itself"},
		{own(func(b *Builder) { b.Switch(0) }), "tier 0"},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("got %v, want an error about %q", c.err, c.want)
		}
	}
}

func TestLinkSet(t *testing.T) {
	t.Parallel()
	var s LinkSet
	for _, l := range []int32{0, 63, 64, 1000} {
		if s.Has(l) {
			t.Errorf("the empty set has %d", l)
		}
		s.Add(l)
	}
	s.Remove(63)
	s.Remove(1 << 20)
	for l := range int32(2000) {
		if want := l == 0 || l == 64 || l == 1000; s.Has(l) != want {
			t.Errorf("Has(%d) = %v", l, !want)
		}
	}
}
