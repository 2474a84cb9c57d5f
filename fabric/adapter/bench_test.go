package adapter

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/fabric/network"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
)

// leafSpine returns adapters on a network of two stages.
func leafSpine(t testing.TB, leaves, spines, hosts int, c Config) *Adapters {
	t.Helper()
	return leafSpineOf(t, leaves, spines, hosts, c, network.ECMP, 1, nil)
}

// leafSpineBy is leafSpine where packets take equal ways by a rule.
func leafSpineBy(t testing.TB, leaves, spines, hosts int, c Config, by network.Routing) *Adapters {
	t.Helper()
	return leafSpineOf(t, leaves, spines, hosts, c, by, 1, nil)
}

// leafSpineOf is leafSpineBy with a network of some parts.
func leafSpineOf(t testing.TB, leaves, spines, hosts int, c Config, by network.Routing, parts int, parallel func(int, func(int))) *Adapters {
	t.Helper()
	n := leaves * hosts
	nc := network.Config{Hosts: n, Seed: c.Seed, Parts: parts, Parallel: parallel}
	for l := range leaves {
		table := network.Table{Set: make([]uint16, n)}
		var up []uint16
		for s := range spines {
			up = append(up, uint16(hosts+s))
		}
		table.Sets = append(table.Sets, up)
		for h := range hosts {
			nc.Cables = append(nc.Cables, network.Cable{A: l*hosts + h, B: n + l, Rate: 100e9, Delay: event.Microsecond})
			table.Sets = append(table.Sets, []uint16{uint16(h)})
			table.Set[l*hosts+h] = uint16(h + 1)
		}
		nc.Tables = append(nc.Tables, table)
	}
	for l := range leaves {
		for s := range spines {
			nc.Cables = append(nc.Cables, network.Cable{A: n + l, B: n + leaves + s, Rate: 100e9, Delay: event.Microsecond})
		}
	}
	for range spines {
		table := network.Table{Set: make([]uint16, n)}
		for l := range leaves {
			table.Sets = append(table.Sets, []uint16{uint16(l)})
			for h := range hosts {
				table.Set[l*hosts+h] = uint16(l)
			}
		}
		nc.Tables = append(nc.Tables, table)
	}
	for range leaves + spines {
		nc.Switches = append(nc.Switches, network.Switch{Buffer: 64 << 20, Routing: by})
	}
	net, err := network.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	a, err := New(net, n, c)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// permutation has each host write to the one half of all hosts further on.
func permutation(t testing.TB, a *Adapters, bytes uint32, c Connection) int {
	t.Helper()
	n := len(a.hosts)
	var completed atomic.Int32 // parts of a network do so at the same time
	for i := range n {
		x, _ := mustConnect(t, a, i, (i+n/2)%n, c)
		if err := x.Post(Request{Op: ib.OpWrite, Bytes: bytes, Done: func(c Completion) {
			if c.Status == ib.StatusSuccess {
				completed.Add(1)
			}
		}}); err != nil {
			t.Fatal(err)
		}
	}
	a.Network().Run(event.Second)
	done := int(completed.Load())
	if done != n {
		t.Fatalf("%d of %d writes have completed", done, n)
	}
	return done
}

func heapInUse() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Sys - m.HeapReleased
}

// BenchmarkPermutation is one WRITE for each host, over a network of two stages
// that has as many ways as hosts, at 100 Gb/s.
func BenchmarkPermutation(b *testing.B) {
	for _, c := range []struct {
		leaves, spines, hosts int
		bytes                 uint32
	}{{8, 16, 16, 4 << 20}, {32, 32, 32, 4 << 20}, {128, 64, 64, 256 << 10}} {
		b.Run(fmt.Sprintf("%d/%dKiB", c.leaves*c.hosts, c.bytes>>10), func(b *testing.B) {
			var events, hops uint64
			var spent time.Duration
			for b.Loop() {
				a := leafSpine(b, c.leaves, c.spines, c.hosts, Config{Window: qp.WindowConfig{InitialBytes: 256 << 10, MaxBytes: 256 << 10}})
				begun := time.Now()
				permutation(b, a, c.bytes, Connection{})
				spent += time.Since(begun)
				t := a.Network().Totals()
				events, hops = events+t.Events, hops+t.Hops
				b.ReportMetric(float64(heapInUse()>>20), "MiB")
				b.ReportMetric(float64(a.Now().Duration().Microseconds()), "virtual-µs")
				runtime.KeepAlive(a)
			}
			b.ReportMetric(float64(spent.Nanoseconds())/float64(events), "ns/event")
			b.ReportMetric(float64(spent.Nanoseconds())/float64(hops), "ns/hop")
			b.ReportMetric(0, "ns/op")
		})
	}
}
