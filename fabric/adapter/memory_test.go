package adapter

import (
	"runtime"
	"testing"

	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/internal/race"
	"github.com/gosoftroce/rocev2/qp"
)

func heapAlloc() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// An idle host with its port and its cable takes less than 4 KiB, and a
// connected queue pair that has had 16 requests outstanding less than 3.5 KiB.
func TestMemoryOfHostsAndQueuePairs(t *testing.T) { // not parallel: it measures the heap
	const leaves, hosts = 32, 32
	const n = leaves * hosts
	before := heapAlloc()
	a := leafSpine(t, leaves, 4, hosts, Config{})
	measure := func(what string, each, most uint64) {
		now := heapAlloc()
		size := (now - min(before, now)) / each
		before = now
		t.Logf("%s: %d bytes", what, size)
		if size > most {
			t.Errorf("%s takes %d bytes, more than %d", what, size, most)
		}
	}
	for i := range n {
		if _, err := a.Host(i); err != nil {
			t.Fatal(err)
		}
	}
	measure("an idle host, with its part of the network", n, 4<<10)
	var qps []*QP
	for i := range n {
		x, y := mustConnect(t, a, i, (i+n/2)%n, Connection{})
		qps = append(qps, x, y)
	}
	measure("a queue pair, the first two of a host", 2*n, 2432)
	for i := range n {
		x, y := mustConnect(t, a, i, (i+n/4)%n, Connection{})
		qps = append(qps, x, y)
	}
	measure("another queue pair", 2*n, 2180)
	for _, q := range qps {
		for range 16 {
			must(t, q.Post(Request{Op: ib.OpWrite, Bytes: 1}))
		}
		a.Network().Run(a.Now() + 10*event.Microsecond) // one after the other: what is under way is shared
	}
	measure("what 16 requests at once make of it", uint64(len(qps)), 1400)
	runtime.KeepAlive(qps)
	runtime.KeepAlive(a)
}

// Of a thousand hosts that all send, and of eight thousand, everything fits
// into a small process.
func TestMemoryOfLargeNetworks(t *testing.T) { // not parallel: it measures the heap
	if testing.Short() {
		t.Skip("networks of thousands of adapters: run without -short")
	}
	if race.Enabled {
		t.Skip("the race detector has a memory of its own: run it without -race")
	}
	window := qp.WindowConfig{InitialBytes: 256 << 10, MaxBytes: 256 << 10}
	for _, c := range []struct {
		leaves, spines, hosts int
		bytes                 uint32
		most                  uint64
	}{{32, 32, 32, 512 << 10, 64 << 20}, {128, 64, 64, 32 << 10, 300 << 20}} {
		before := heapAlloc()
		a := leafSpine(t, c.leaves, c.spines, c.hosts, Config{Window: window})
		permutation(t, a, c.bytes, Connection{})
		size := heapAlloc() - before
		t.Logf("%d hosts: %d bytes", c.leaves*c.hosts, size)
		if size > c.most {
			t.Errorf("%d hosts take %d bytes, more than %d", c.leaves*c.hosts, size, c.most)
		}
		runtime.KeepAlive(a)
	}
}
