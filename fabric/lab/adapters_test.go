package lab

import (
	"testing"

	"github.com/gosoftroce/rocev2/fabric/adapter"
	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/fabric/network"
	"github.com/gosoftroce/rocev2/fabric/topology"
	"github.com/gosoftroce/rocev2/internal/race"
)

// long skips an experiment that the race detector would make too long. There
// is one goroutine in it.
func long(t *testing.T) {
	t.Helper()
	if race.Enabled {
		t.Skip("an experiment has one goroutine, and the race detector has nothing to find: run it without -race")
	}
	if testing.Short() {
		t.Skip("an experiment: run without -short")
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// adaptersOn returns the adapters of a network, for experiments that drive
// queue pairs themselves.
func adaptersOn(t testing.TB, g *topology.Graph, p topology.Plan, c adapter.Config) *adapter.Adapters {
	t.Helper()
	nc, err := g.Network(p)
	must(t, err)
	n, err := network.New(nc)
	must(t, err)
	a, err := adapter.New(n, int(g.Hosts()), c)
	must(t, err)
	return a
}

// settled runs until nothing is pending, and checks that nothing is left.
func settled(t testing.TB, a *adapter.Adapters, limit event.Time) {
	t.Helper()
	a.Network().Run(limit)
	must(t, a.Check())
	must(t, a.Network().Check())
}

// clos is a network of two tiers that does not block: as many spines as hosts
// at a leaf, all cables at 100 Gb/s and of 1 µs.
func clos(t testing.TB, leaves, hosts int) *topology.Graph {
	t.Helper()
	cable := topology.Cable{Rate: 100 * topology.Gbps, Delay: int64(event.Microsecond)}
	g, err := topology.LeafSpine{Leaves: leaves, Spines: hosts, HostsPerLeaf: hosts, Host: cable}.Graph()
	must(t, err)
	return g
}

// deep is a switch whose buffer never fills, and that neither marks nor pauses.
func deep() topology.Profile {
	p := topology.Profile{Name: "deep", Buffer: 1 << 30}
	for i := range p.Classes {
		p.Classes[i] = network.Class{Alpha: 0}
	}
	return p
}
