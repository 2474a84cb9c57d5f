package world_test

import (
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/fabric/world"
)

// BenchmarkAllReduce is a ring of 128 programs, with parts of 4 KiB.
func BenchmarkAllReduce(b *testing.B) {
	const ranks, part = 128, 4 << 10
	var events uint64
	var spent time.Duration
	for b.Loop() {
		w := newWorld(b, world.Config{Network: star(ranks)})
		startRing(simulated{w}, ranks, part)
		begun := time.Now()
		must(b, w.Run())
		spent += time.Since(begun)
		events += w.Network().Totals().Events
		must(b, w.Close())
	}
	b.ReportMetric(float64(spent.Nanoseconds())/float64(events), "ns/event")
	b.ReportMetric(float64(events)/float64(b.N), "events")
}
