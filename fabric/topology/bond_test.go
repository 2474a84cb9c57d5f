package topology

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// attached returns a random network of switches in which some hosts have
// several cables, to one switch or to several.
func attached(t testing.TB, r *rand.Rand) *Graph {
	n := 2 + r.IntN(8)
	hosts := 2 + r.IntN(n)
	b := NewBuilder(hosts)
	first := b.Switch(1 + r.IntN(3))
	for range n - 1 {
		b.Switch(1 + r.IntN(3))
	}
	for h := range hosts {
		for range 1 + r.IntN(3) {
			b.Link(int32(h), first+int32(r.IntN(n)), cable)
		}
	}
	for range n + r.IntN(n) {
		if x, y := r.IntN(n), r.IntN(n); x != y {
			b.Link(first+int32(x), first+int32(y), cable)
		}
	}
	g, err := b.Graph()
	return must(t, g, err)
}

// reaches reports whether a node can reach a host by links that work, and by no
// bond of another host. It is the test's own way to find out.
func reaches(g *Graph, failed LinkSet, from, to int32) bool {
	seen := map[int32]bool{from: true}
	own, _ := g.Bond(to)
	for next := []int32{from}; len(next) > 0; next = next[1:] {
		at := next[0]
		if at == to {
			return true
		}
		if at != from && (g.IsHost(at) || g.IsBond(at) && at != own) {
			continue
		}
		for _, p := range g.Ports(at) {
			if !failed.Has(p.Link) && !seen[p.Peer] {
				seen[p.Peer] = true
				next = append(next, p.Peer)
			}
		}
	}
	return false
}

// TestBonds: a host with several links is reached by each of them that works,
// and nobody else's packets go through its bond, whatever fails.
func TestBonds(t *testing.T) {
	t.Parallel()
	bonded, cut := 0, 0
	for seed := range uint64(1500) {
		r := rand.New(rand.NewPCG(seed, 14))
		g := attached(t, r)
		var failed LinkSet
		for range r.IntN(4) * r.IntN(1+len(g.Links())) / 6 {
			failed.Add(int32(r.IntN(len(g.Links()))))
		}
		for name, tables := range map[string]*Tables{"shortest": g.Shortest(failed), "up and down": g.UpDown(failed)} {
			for h := range g.Hosts() {
				if _, ok := g.Bond(h); ok {
					bonded++
				}
				for from := range g.Hosts() {
					first := g.Ports(from)[0]
					if from == h || failed.Has(first.Link) || first.Peer == h {
						continue
					}
					want := reaches(g, failed, first.Peer, h)
					if !want {
						cut++
					}
					where := fmt.Sprintf("seed %d, %s: from host %d to %d", seed, name, from, h)
					walk(t, where, tables, failed, first.Peer, h, want)
				}
			}
			if name == "up and down" {
				if c := cycleOf(tables); c != nil {
					t.Fatalf("seed %d: up and down ways have a cycle: %v", seed, c)
				}
			}
		}
	}
	if bonded < 1000 || cut < 1000 {
		t.Errorf("%d hosts with bonds, %d ways that there are not", bonded, cut)
	}
}

// walk goes all ways from a switch to a host.
func walk(t *testing.T, where string, tables *Tables, failed LinkSet, from, to int32, want bool) {
	t.Helper()
	g := tables.Graph()
	own, _ := g.Bond(to)
	seen := map[int32]int{} // 1: on the way, 2: it is well
	var visit func(at int32, first bool)
	visit = func(at int32, first bool) {
		switch {
		case at == to || seen[at] == 2:
			return
		case seen[at] == 1:
			t.Fatalf("%s: in a circle at %d", where, at)
		case g.IsHost(at) || !first && g.IsBond(at) && at != own:
			t.Fatalf("%s: by way of %d", where, at)
		}
		seen[at] = 1
		next := tables.Next(at, to)
		if got := len(next) > 0; got != want {
			t.Fatalf("%s: a way at %d: %v, want %v", where, at, got, want)
		}
		for _, port := range next {
			p := g.Ports(at)[port]
			if failed.Has(p.Link) {
				t.Fatalf("%s: by link %d, which has failed", where, p.Link)
			}
			visit(p.Peer, false)
		}
		seen[at] = 2
	}
	visit(from, true)
}

// TestShapeOfBonds: bonds stand after all other nodes and links, and carry what
// all links of their host do.
func TestShapeOfBonds(t *testing.T) {
	t.Parallel()
	b := NewBuilder(3)
	left, right := b.Switch(1), b.Switch(1)
	fast := Cable{Rate: 40 * Gbps, Delay: 5}
	for _, l := range [][2]int32{{0, left}, {1, left}, {1, right}, {2, right}, {2, right}} {
		b.Link(l[0], l[1], fast)
	}
	g, err := b.Graph()
	must(t, g, err)
	if g.Switches() != 4 || len(g.Links()) != 7 {
		t.Fatalf("%d switches, %d links", g.Switches(), len(g.Links()))
	}
	if _, ok := g.Bond(0); ok {
		t.Error("a host with one link has a bond")
	}
	for h := int32(1); h < 3; h++ {
		sw, ok := g.Bond(h)
		if l := g.Link(4 + h); !ok || sw != 4+h || l.A != h || l.B != sw || l.Cable != (Cable{Rate: 80 * Gbps}) || g.Tier(sw) != 0 || !g.IsBond(sw) {
			t.Errorf("host %d has bond %d, %v, by %+v", h, sw, ok, l)
		}
	}
	if n, err := g.Shortest(nil).Ways(1, 2); n != 2 || err != nil {
		t.Errorf("%d ways, %v", n, err)
	}
}
