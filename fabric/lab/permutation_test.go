package lab

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/gosoftroce/rocev2/fabric/adapter"
	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/fabric/network"
	"github.com/gosoftroce/rocev2/fabric/topology"
	"github.com/gosoftroce/rocev2/fabric/traffic"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
)

// permuted is a permutation of WRITEs between leaves, and what has come of it.
type permuted struct {
	a    *adapter.Adapters
	done int
	sum  event.Time
	last event.Time
}

func permute(t testing.TB, leaves, hosts int, bytes int64, p topology.Plan, c adapter.Connection) *permuted {
	t.Helper()
	p.Profile = deep()
	window := qp.WindowConfig{InitialBytes: 256 << 10, MaxBytes: 256 << 10} // five times what the way holds
	r := &permuted{a: adaptersOn(t, clos(t, leaves, hosts), p, adapter.Config{Seed: p.Seed, Window: window})}
	rand := event.NewRand(p.Seed, 1)
	flows, err := traffic.PermutationAcross(&rand, leaves*hosts, hosts, bytes)
	must(t, err)
	for _, f := range flows {
		x, _, err := r.a.Connect(int(f.Src), int(f.Dst), c)
		must(t, err)
		must(t, x.Post(adapter.Request{Op: ib.OpWrite, Bytes: uint32(bytes), Done: func(d adapter.Completion) {
			if d.Status != ib.StatusSuccess {
				t.Errorf("host %d: %v", d.QP.Host().Number(), d.Status)
			}
			r.done++
			r.sum += d.End - d.Start
			r.last = max(r.last, d.End)
		}}))
	}
	return r
}

// slowdown is how many thousandths of the time that the bytes take alone the
// flows took in the mean.
func (r *permuted) slowdown(bytes int64) int64 {
	alone := transfer{rate: 100 * topology.Gbps, hops: 4, op: ib.OpWrite, bytes: bytes}
	return int64(r.sum) * 1000 / int64(r.done) / int64(alone.formula())
}

// TestPermutation: each of 128 hosts sends to a host of another leaf, on a
// network that does not block. By ECMP several flows meet on a cable: a flow is
// in the mean one of 1+15/16 on the way up, and as many on the way down, of
// which the fuller cable counts. So flows take more than twice as long. Packets
// that are sprayed over all ways do not meet, but overtake each other.
func TestPermutation(t *testing.T) {
	t.Parallel()
	long(t)
	const bytes = 512 << 10
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "routing\trecovery\tseed\tslowdown/1000\tlast\tsent again\tevents\tdigest\t\n")
	for _, c := range []struct {
		routing network.Routing
		name    string
		foreign bool
	}{{network.ECMP, "ECMP", false}, {network.ECMP, "ECMP", true}, {network.Spray, "spray", false}, {network.Spray, "spray", true}} {
		var sum int64
		recovery := map[bool]string{false: "selective", true: "go-back-N"}[c.foreign]
		for seed := range uint64(3) {
			r := permute(t, 8, 16, bytes, topology.Plan{Routing: c.routing, Seed: seed}, adapter.Connection{Foreign: c.foreign})
			settled(t, r.a, event.Second)
			if r.done != 128 {
				t.Fatalf("%s, seed %d: %d flows have completed", c.name, seed, r.done)
			}
			s, stats, totals := r.slowdown(bytes), r.a.Stats(), r.a.Network().Totals()
			sum += s
			if c.routing == network.ECMP && stats.Retransmits > 0 {
				t.Errorf("ECMP, seed %d: %d packets were sent again, and none was lost or overtaken", seed, stats.Retransmits)
			}
			if c.routing == network.Spray && !c.foreign && stats.Retransmits+stats.WindowCuts > 0 {
				t.Errorf("spray, seed %d: %d packets were sent again, %d windows cut, and none was lost", seed, stats.Retransmits, stats.WindowCuts)
			}
			fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%v\t%d\t%d\t%016x\t\n", c.name, recovery, seed, s, r.last, stats.Retransmits, totals.Events, r.a.Network().Digest())
		}
		if mean := sum / 3; c.routing == network.ECMP && (mean < 2050 || mean > 2550) {
			t.Errorf("ECMP, %s: flows take %d/1000 of the time that they take alone", recovery, mean)
		}
	}
	w.Flush()
	golden(t, "permutation", b.String())
}

// BenchmarkPermutation is a permutation of 4 MiB at 100 Gb/s: nanoseconds an
// event, and a packet-hop, on one core. Of 8192 hosts it is 256 KiB.
func BenchmarkPermutation(b *testing.B) {
	for _, c := range []struct {
		leaves, hosts int
		bytes         int64
	}{{8, 16, 4 << 20}, {32, 32, 4 << 20}, {128, 64, 256 << 10}} {
		b.Run(fmt.Sprintf("%d/%dKiB", c.leaves*c.hosts, c.bytes>>10), func(b *testing.B) {
			var events, hops uint64
			var spent time.Duration
			for b.Loop() {
				r := permute(b, c.leaves, c.hosts, c.bytes, topology.Plan{Seed: 1}, adapter.Connection{})
				begun := time.Now()
				r.a.Network().Run(event.Second)
				spent += time.Since(begun)
				t := r.a.Network().Totals()
				events, hops = events+t.Events, hops+t.Hops
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				b.ReportMetric(float64(m.Sys-m.HeapReleased)/(1<<20), "MiB")
				runtime.KeepAlive(r)
			}
			b.ReportMetric(float64(spent.Nanoseconds())/float64(events), "ns/event")
			b.ReportMetric(float64(spent.Nanoseconds())/float64(hops), "ns/hop")
			b.ReportMetric(float64(events)/float64(b.N), "events")
			b.ReportMetric(0, "ns/op")
		})
	}
}
