package topology

import (
	"runtime"
	"slices"
	"testing"
)

// TestBytesOfTables: of a fat tree only the switches that have hosts have
// tables of their own. What is allocated is what NetworkBytes says, and a
// little for sets of ports. Tables that are shared are those of each switch.
func TestBytesOfTables(t *testing.T) { // not parallel: it counts what is allocated
	g := fatTree(t, 32) // 8192 hosts; 512 edge, 512 aggregation and 256 core switches
	tables := g.Shortest(nil)
	want := 2 * int64(g.Hosts()) * (512 + 32 + 1) // one in a pod, and one of the core
	if got := tables.NetworkBytes(); got != want {
		t.Errorf("%d bytes, want %d", got, want)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	list, err := tables.Network()
	runtime.ReadMemStats(&after)
	if err != nil {
		t.Fatal(err)
	}
	if got := int64(after.TotalAlloc - before.TotalAlloc); got > want+want/4 {
		t.Errorf("%d bytes are allocated for tables of %d", got, want)
	}
	for i := range list {
		for h := int32(0); h < g.Hosts(); h += 37 {
			sw := g.Hosts() + int32(i)
			if got, want := list[i].Sets[list[i].Set[h]], tables.Next(sw, h); !slices.Equal(got, want) {
				t.Fatalf("switch %d to host %d: %v, want %v", sw, h, got, want)
			}
		}
	}
}
