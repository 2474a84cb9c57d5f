package lab

import (
	"fmt"
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

// ringReduce is an all-reduce in a ring, rank i on host i: in each of 2(n-1)
// rounds every rank sends a part of the vector to the next one, and begins the
// next round when what it receives has arrived.
type ringReduce struct {
	a       *adapter.Adapters
	plan    traffic.Collective
	to      []*adapter.QP // of each rank, to the next one
	round   []int         // of each rank
	arrived []int         // messages
	done    int           // ranks
	end     event.Time
	err     error
}

func newRingReduce(t testing.TB, a *adapter.Adapters, ranks int, bytes int64, c adapter.Connection) *ringReduce {
	t.Helper()
	plan, err := traffic.Ring(ranks, bytes)
	must(t, err)
	r := &ringReduce{a: a, plan: plan, to: make([]*adapter.QP, ranks), round: make([]int, ranks), arrived: make([]int, ranks)}
	for i := range ranks {
		next := (i + 1) % ranks
		x, y, err := a.Connect(i, next, c)
		must(t, err)
		r.to[i] = x
		y.Received = func(m adapter.Message) {
			r.arrived[next]++
			r.goOn(next)
		}
	}
	for i := range ranks {
		r.send(i)
	}
	return r
}

func (r *ringReduce) send(rank int) {
	bytes := r.plan.Step(rank, r.round[rank]).Send.Bytes
	if err := r.to[rank].Post(adapter.Request{Op: ib.OpSend, Bytes: uint32(bytes)}); err != nil && r.err == nil {
		r.err = err
	}
}

// goOn has a rank begin its next rounds, as far as what they need has arrived.
func (r *ringReduce) goOn(rank int) {
	for r.round[rank] < r.plan.Rounds() && r.arrived[rank] > r.round[rank] {
		if r.round[rank]++; r.round[rank] < r.plan.Rounds() {
			r.send(rank)
			continue
		}
		r.done++
		r.end = r.a.Now()
	}
}

// ringFormula is how long a ring of the hosts of some leaves takes: the last
// message ends after 2(n-1) parts, one after the other, and the latencies of as
// many steps around the ring, of which one in hosts leads over a spine.
func ringFormula(leaves, hosts int, bytes int64) event.Time {
	const mtu, rate = 4096, 100 * topology.Gbps
	n := leaves * hosts
	part := bytes / int64(n)
	wire := func(payload int64) event.Time {
		return event.Time(int64(network.WireSize(headers+int(payload))) * 8 * int64(event.Second) / rate)
	}
	largest := wire(min(part, mtu))
	line := wire(mtu) * event.Time(part/mtu)
	if rest := part % mtu; rest > 0 {
		line += wire(rest)
	}
	latency := func(cables event.Time) event.Time { return (cables-1)*largest + cables*event.Microsecond }
	rounds := 2 * (n - 1)
	far := 0
	if leaves > 1 {
		far = (rounds + hosts - 1) / hosts // the slowest way around begins just before such a step
	}
	return event.Time(rounds)*line + event.Time(rounds-far)*latency(2) + event.Time(far)*latency(4)
}

// TestAllReduceWithSlowCable: one cable at a quarter of the rate makes the ring
// of all hosts four times as slow. That cable is never idle, and all that it
// takes is its share of the parts, one after the other.
func TestAllReduceWithSlowCable(t *testing.T) {
	t.Parallel()
	long(t)
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "hosts\ttime\tparts on the slow cable\tppm more\tdigest\t\n")
	for _, n := range []int{8, 32} {
		c, err := clos(t, 1, n).Network(topology.Plan{Profile: deep()})
		must(t, err)
		c.Cables[3].Rate = 25 * topology.Gbps
		net, err := network.New(c)
		must(t, err)
		a, err := adapter.New(net, n, adapter.Config{Seed: 1, Window: qp.WindowConfig{InitialBytes: 1 << 20, MaxBytes: 1 << 20}})
		must(t, err)
		const part = 256 << 10
		r := newRingReduce(t, a, n, int64(n)*part, adapter.Connection{Depth: 2 * n})
		settled(t, a, event.Second)
		if r.err != nil || r.done != n {
			t.Fatalf("%d of %d ranks are done: %v", r.done, n, r.err)
		}
		packet := event.Time(network.WireSize(headers+4096)) * 8 * event.Nanosecond / 25
		want := event.Time(2*(n-1)) * part / 4096 * packet
		ppm := int64(r.end-want) * 1_000_000 / int64(want)
		if ppm < 0 || ppm > 10_000 {
			t.Errorf("%d hosts: %v, the slow cable takes %v", n, r.end, want)
		}
		fmt.Fprintf(w, "%d\t%v\t%v\t%d\t%016x\t\n", n, r.end, want, ppm, a.Network().Digest())
	}
	w.Flush()
	golden(t, "allreduce_slow", b.String())
}

// TestAllReduce: a ring takes as long as the formula says, within 1 %.
func TestAllReduce(t *testing.T) {
	t.Parallel()
	long(t)
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "hosts\tKiB\ttime\tformula\tppm more\tevents\tdigest\t\n")
	for _, c := range []struct {
		leaves, hosts int
		bytes         int64
	}{{1, 8, 1 << 20}, {4, 4, 4 << 20}, {4, 16, 4 << 20}, {8, 16, 8 << 20}} {
		n := c.leaves * c.hosts
		window := qp.WindowConfig{InitialBytes: 1 << 20, MaxBytes: 1 << 20}
		a := adaptersOn(t, clos(t, c.leaves, c.hosts), topology.Plan{Profile: deep()}, adapter.Config{Seed: 1, Window: window})
		r := newRingReduce(t, a, n, c.bytes, adapter.Connection{})
		settled(t, a, event.Second)
		if r.err != nil || r.done != n {
			t.Fatalf("%d of %d ranks are done: %v", r.done, n, r.err)
		}
		want := ringFormula(c.leaves, c.hosts, c.bytes)
		ppm := int64(r.end-want) * 1_000_000 / int64(want)
		if ppm > 10_000 || ppm < -10_000 {
			t.Errorf("%d hosts, %d bytes: %v, the formula says %v", n, c.bytes, r.end, want)
		}
		totals := a.Network().Totals()
		fmt.Fprintf(w, "%d\t%d\t%v\t%v\t%d\t%d\t%016x\t\n", n, c.bytes>>10, r.end, want, ppm, totals.Events, a.Network().Digest())
	}
	w.Flush()
	golden(t, "allreduce", b.String())
}

// BenchmarkAllReduce is a ring of 128 hosts at 100 Gb/s: wall time for 32 MiB
// and for 128 MiB.
func BenchmarkAllReduce(b *testing.B) {
	for _, bytes := range []int64{32 << 20, 128 << 20} {
		b.Run(fmt.Sprintf("%dMiB", bytes>>20), func(b *testing.B) {
			for b.Loop() {
				window := qp.WindowConfig{InitialBytes: 1 << 20, MaxBytes: 1 << 20}
				a := adaptersOn(b, clos(b, 8, 16), topology.Plan{Profile: deep()}, adapter.Config{Seed: 1, Window: window})
				r := newRingReduce(b, a, 128, bytes, adapter.Connection{})
				begun := time.Now()
				a.Network().Run(event.Second)
				events := a.Network().Totals().Events
				b.ReportMetric(float64(time.Since(begun).Nanoseconds())/float64(events), "ns/event")
				b.ReportMetric(float64(r.end)/float64(event.Microsecond), "virtual-µs")
				b.ReportMetric(float64(ringFormula(8, 16, bytes))/float64(event.Microsecond), "formula-µs")
			}
		})
	}
}
