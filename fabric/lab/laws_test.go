package lab

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// law is congestion control with the parameters that HPCC's simulator has for
// 100 Gb/s (alibaba-edu/High-Precision-Congestion-Control, run.py). Its authors
// give the window of the network's round trip to the two that have only a rate
// (+w).
type law struct {
	name, control string
	window        Bytes
	notify        Time
}

const pathBytes = 201_000 // 100 Gb/s for 13 µs, as packets of 1024 bytes count in flight

var laws = []law{
	{name: "HPCC", control: "hpcc,stages=0,wai=65"},
	{name: "Swift", control: "swift"},
	{name: "TIMELY", control: "timely"},
	{name: "TIMELY+w", control: "timely", window: pathBytes},
	{name: "DCQCN", control: "dcqcn-adapter,ai=20M,hai=200M,min=1G", notify: 4 * us},
	{name: "DCQCN+w", control: "dcqcn-adapter,ai=20M,hai=200M,min=1G", notify: 4 * us, window: pathBytes},
}

func (l *law) adapter() Adapter {
	return Adapter{MTU: 1024, Control: l.control, Window: l.window, Notify: l.notify}
}

// lawsUnderLoad has the load of HPCC's evaluation on its network of 320 hosts:
// WebSearch and Hadoop at 50 %. Each law is played with six seeds. The smallest
// and the largest of six numbers are around the median of what they are drawn
// from with 97 % confidence.
func lawsUnderLoad(t *testing.T) {
	t.Parallel()
	const seeds = 6
	var b strings.Builder
	fmt.Fprintf(&b, "HPCC's network of 320 hosts, load of 50 %%, MTU 1024. Slowdowns: the median of %d seeds, and the smallest and largest.\n", seeds)
	for _, w := range []struct {
		sizes string
		until Time
	}{{"hadoop", 200 * us}, {"websearch", 500 * us}} {
		fmt.Fprintf(&b, "\n%s, %v of arrivals\n           up to 10 KB                                          above 1 MB           longest\n", w.sizes, w.until)
		fmt.Fprintf(&b, "           p50               p95               p99               mean                 queue   pauses\n")
		for _, l := range laws {
			var p50, p95, p99, long, queue, pauses []float64
			for seed := range uint64(seeds) {
				r := play(t, Scenario{Name: l.name, Seed: seed, Limit: 100_000 * us, Network: Network{Topology: "hpcc", Profile: "hpcc-sim"}, Adapter: l.adapter(),
					Traffic: []Traffic{{Kind: "load", Sizes: w.sizes, Load: .5, Until: w.until}}})
				if _, failed, _ := r.Done(); failed > 0 || r.Totals.Dropped() > 0 {
					t.Errorf("%s, seed %d: %d flows have failed, %d packets are dropped", l.name, seed, failed, r.Totals.Dropped())
				}
				tiny := r.Slowdowns(0, 10_000)
				p50, p95, p99 = append(p50, tiny.P50), append(p95, tiny.P95), append(p99, tiny.P99)
				long = append(long, r.Slowdowns(1e6, 1<<62).Mean)
				queue, pauses = append(queue, float64(r.Queues[0].Max)/1e3), append(pauses, float64(r.Totals.XOFFs))
			}
			fmt.Fprintf(&b, "%-9s  %s %s %s %s %7.0f KB %5.0f\n", l.name, around(p50), around(p95), around(p99), around(long), middle(queue), middle(pauses))
		}
	}
	golden(t, "laws", b.String())
}

// middle sorts numbers, and returns their median.
func middle(v []float64) float64 {
	slices.Sort(v)
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// around writes the median, the smallest and the largest of numbers.
func around(v []float64) string {
	return fmt.Sprintf("%5.2f (%.2f-%.2f)%*s", middle(v), v[0], v[len(v)-1], max(0, 11-len(fmt.Sprintf("(%.2f-%.2f)", v[0], v[len(v)-1]))), "")
}

// lawsUnderIncast has 16 hosts send to one, at 100 Gb/s through one switch, for
// 5 ms: the first 100 µs, in which they find out, and then the last 3 ms.
func lawsUnderIncast(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	fmt.Fprintf(&b, "16 hosts send to one through a switch, 100 Gb/s, MTU 1024, for 5 ms: the longest queue of all, and the last 3 ms.\n")
	fmt.Fprintf(&b, "              longest        mean      p99   payload    Jain  pauses\n")
	for _, l := range append(slices.Clone(laws), law{name: "window", control: "window"}) {
		r := play(t, Scenario{Name: l.name, Until: 5000 * us, Warm: 2000 * us, Every: 2 * us, Network: Network{Topology: "star", Hosts: 17, Profile: "hpcc-sim"},
			Adapter: l.adapter(), Traffic: []Traffic{{Kind: "incast", Senders: 16}}})
		var later []float64
		for i, at := range r.Samples.Times {
			if at < 2000*us {
				continue
			}
			longest := int64(0)
			for _, x := range r.Samples.Series {
				if x.What == "queued_bytes" {
					longest = max(longest, x.Values[i])
				}
			}
			later = append(later, float64(longest))
		}
		_, sum, jain := r.Rates()
		slices.Sort(later)
		fmt.Fprintf(&b, "%-9s %8.1f KB %8.1f KB %5.1f KB  %6.2f  %.4f  %6d\n", l.name, float64(r.Queues[0].Max)/1e3, float64(r.Queues[0].Mean)/1e3,
			later[len(later)*99/100]/1e3, float64(sum)/1e9, jain, r.Totals.XOFFs)
	}
	golden(t, "laws-incast", b.String())
}

// lawsInTurn has four flows come to one link, one each 5 ms, as in figure 9 of
// HPCC's paper: how equal are they in the second half of the time that each
// number of them has, and how much of the link do they use.
func lawsInTurn(t *testing.T) {
	t.Parallel()
	const each = 5000 * us
	var b strings.Builder
	fmt.Fprintf(&b, "A flow more comes each 5 ms to a link of 100 Gb/s, MTU 1024. In the second half of the 5 ms: Jain's index, and payload of all in Gb/s.\n")
	fmt.Fprintf(&b, "             1 flow       2 flows         3 flows         4 flows\n")
	for _, l := range laws {
		s := Scenario{Name: l.name, Until: 4 * each, Every: 50 * us, Network: Network{Topology: "star", Hosts: 5, Profile: "hpcc-sim"}, Adapter: l.adapter()}
		for i := range 4 {
			s.Traffic = append(s.Traffic, Traffic{Kind: "flow", From: i + 1, To: 0, Start: Time(i) * each})
		}
		r := play(t, s)
		fmt.Fprintf(&b, "%-9s", l.name)
		for n := 1; n <= 4; n++ {
			from, to := r.arrivedBy(Time(n)*each-each/2), r.arrivedBy(Time(n)*each-50*us)
			sum, squares := 0.0, 0.0
			for i := range n {
				v := float64(to[i] - from[i])
				sum, squares = sum+v, squares+v*v
			}
			fmt.Fprintf(&b, "   %.4f %5.1f", sum*sum/squares/float64(n), sum*8/float64(each/2-50*us)*1e12/1e9)
		}
		fmt.Fprintln(&b)
	}
	golden(t, "laws-in-turn", b.String())
}

// arrivedBy returns the payload of each flow that had arrived at a time.
func (r *Result) arrivedBy(at Time) []uint64 {
	i, _ := slices.BinarySearch(r.Samples.Times, at)
	list := make([]uint64, len(r.Flows))
	for n := range list {
		if x := r.Samples.Find(fmt.Sprintf("f%d", n), "received_bytes"); x != nil {
			list[n] = uint64(max(x.Values[i], 0))
		}
	}
	return list
}
