package world_test

import (
	"context"
	"runtime"
	"testing"

	"github.com/gosoftroce/rocev2/fabric/world"
	"github.com/gosoftroce/rocev2/verbs"
)

// What a device and its port take, with two queue pairs that have done
// something, is a fifth of what one with goroutines takes.
func TestMemoryOfDevices(t *testing.T) { // not parallel: it measures the heap
	const hosts, most = 64, 40 << 10
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse
	}
	before := heap()
	w := newWorld(t, world.Config{Network: star(hosts)})
	open := heap()
	for i := range hosts {
		must(t, w.Go(i, func(context.Context, *verbs.Device) error { return nil }))
	}
	must(t, w.Run())
	idle := heap()
	for _, part := range []int{64, 1024} {
		startRing(simulated{w}, hosts, part)
		must(t, w.Run())
	}
	used := heap()
	buffers := uint64((hosts + 2) * (64 + 1024)) // of the two rings
	each := (used-before)/hosts - buffers
	t.Logf("a host takes %d bytes of the network, %d with an idle device, and %d after two all-reduces",
		(open-before)/hosts, (idle-before)/hosts, each)
	if each > most {
		t.Errorf("a device takes %d bytes, more than %d", each, most)
	}
	runtime.KeepAlive(w)
}
