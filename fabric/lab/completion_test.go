package lab

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// means of keeping queues short, or not.
type means struct {
	name    string
	control string
	window  Bytes
	red     *RED
	noECN   bool
	notify  Time
}

// completion returns what flows have come to, by one means after the other.
func completion(t *testing.T, s Scenario, all []means) []*Result {
	t.Helper()
	results := make([]*Result, len(all))
	t.Run("each", func(t *testing.T) {
		for i, m := range all {
			t.Run(m.name, func(t *testing.T) {
				t.Parallel()
				s := s
				s.Name = m.name
				s.Network.RED = m.red
				s.Adapter.Control, s.Adapter.Window, s.Adapter.NoECN, s.Adapter.Notify = m.control, m.window, m.noECN, m.notify
				r, err := Run(context.Background(), s)
				if err != nil {
					t.Fatal(err)
				}
				if done, failed, _ := r.Done(); failed != 0 || done == 0 || r.Totals.Dropped() != 0 {
					t.Errorf("%d flows completed, %d failed, %d packets dropped", done, failed, r.Totals.Dropped())
				}
				results[i] = r
			})
		}
	})
	for _, r := range results {
		if r == nil {
			t.FailNow()
		}
	}
	return results
}

// completionTable writes slowdowns: how many times as long as alone flows took.
func completionTable(b *strings.Builder, results []*Result) {
	fmt.Fprintf(b, "                     up to 10 KB              100 KB           1 MB            above 1 MB\n")
	fmt.Fprintf(b, "                flows    p50    p95    p99    p50    p95    p50    p95   mean    p95   pauses    marks  cuts  sent again\n")
	for _, r := range results {
		tiny, small := r.Slowdowns(0, 10_000), r.Slowdowns(10_000, 100_000)
		medium, long := r.Slowdowns(100_000, 1_000_000), r.Slowdowns(1_000_000, 1<<62)
		fmt.Fprintf(b, "%-13s  %6d %6.2f %6.2f %6.2f %6.2f %6.2f %6.2f %6.2f %6.2f %6.2f  %7d  %7d %5d  %10d\n", r.Scenario.Name,
			tiny.N, tiny.P50, tiny.P95, tiny.P99, small.P50, small.P95, medium.P50, medium.P95, long.Mean, long.P95,
			r.Totals.XOFFs, r.Totals.Marks, r.Stats.WindowCuts+r.Stats.RateCuts, r.Stats.Retransmits)
	}
}

// webSearch has flows as of a web search at 128 hosts, two to one above the
// leaves. With pauses alone, short flows wait for long ones. DCQCN keeps queues
// short, and long flows pay for it. The window does so at a lower price.
func webSearch(t *testing.T) {
	t.Parallel()
	s := Scenario{Seed: 1, Limit: 100_000 * us}
	s.Network = Network{Topology: "leaf-spine", Leaves: 8, Spines: 8, HostsPerLeaf: 16, Profile: "hpcc-sim"}
	s.Traffic = []Traffic{{Kind: "load", Sizes: "websearch", Load: .3, Until: 3000 * us}}
	early := &RED{5000, 200_000, .01}
	results := completion(t, s, []means{
		{name: "pauses alone", control: "static", window: 8 << 20, noECN: true},
		{name: "dcqcn", control: "dcqcn", red: early},
		{name: "dcqcn-adapter", control: "dcqcn-adapter", notify: 4 * us}, // marks by HPCC's profile
		{name: "window", control: "window", red: early},
	})
	var b strings.Builder
	fmt.Fprintf(&b, "WebSearch at 30 %%, 3 ms of arrivals, 128 hosts of 100 Gb/s behind 8 leaves, 8 spines, MTU 4096.\n")
	fmt.Fprintf(&b, "Slowdown by size of flows. Marks from 5 to 200 KB (1 %%); for dcqcn-adapter from 400 KB to 1.6 MB (20 %%).\n\n")
	completionTable(&b, results)

	tiny := func(i int) float64 { return results[i].Slowdowns(0, 10_000).P95 }
	long := func(i int) float64 { return results[i].Slowdowns(1_000_000, 1<<62).Mean }
	for i, times := range []float64{1, 5, 4, 5} { // late marks help less
		if tiny(0) < times*tiny(i) {
			t.Errorf("%s: the 95th percentile of flows up to 10 KB is %.2f, with pauses alone %.2f: want it %.0f times better", results[i].Scenario.Name, tiny(i), tiny(0), times)
		}
	}
	if long(1) < long(0) || long(1) > 2.5*long(0) {
		t.Errorf("long flows: dcqcn %.2f, pauses alone %.2f: want a price of at most 2.5", long(1), long(0))
	}
	if long(3) > long(1) || long(3) > long(2) {
		t.Errorf("long flows: window %.2f, dcqcn %.2f and %.2f: want the window below", long(3), long(1), long(2))
	}
	if results[0].Totals.XOFFs == 0 {
		t.Error("pauses alone, and there are none")
	}
	golden(t, "websearch", b.String())
	for i, of := range []string{
		"pauses alone", "DCQCN of the paper, marks from 5 KB on",
		"DCQCN as adapters have it, with HPCC's marks from 400 KB on", "the window of queue pairs, the same marks",
	} {
		short := results[i].Slowdowns(0, 10_000)
		inManual(t, fmt.Sprintf("| %s | %.2f | %.2f | %.2f | %d |", of, short.P95, short.P99, long(i), results[i].Totals.XOFFs))
	}
}

// hadoopWithBursts is the load of the HPCC paper's evaluation, on its
// network: Hadoop at 50 %, and incasts of 60 hosts at 2 %.
func hadoopWithBursts(t *testing.T) {
	t.Parallel()
	s := Scenario{Seed: 1, Limit: 100_000 * us}
	s.Network = Network{Topology: "hpcc", Profile: "hpcc-sim"}
	s.Traffic = []Traffic{
		{Kind: "load", Sizes: "hadoop", Load: .5, Until: 300 * us},
		{Kind: "bursts", Senders: 60, Bytes: 500_000, Load: .02, Until: 300 * us},
	}
	results := completion(t, s, []means{
		{name: "pauses alone", control: "static", window: 8 << 20, noECN: true},
		{name: "dcqcn-adapter", control: "dcqcn-adapter", notify: 4 * us},
		{name: "window", control: "window"},
	})
	var b strings.Builder
	fmt.Fprintf(&b, "Hadoop at 50 %% and bursts of 60 x 500 KB at 2 %%, 0.3 ms of arrivals, HPCC's 320 hosts, MTU 4096.\n")
	fmt.Fprintf(&b, "Slowdown by size of flows; those of the bursts are among the ones up to 1 MB. Marks as in HPCC's simulator.\n\n")
	completionTable(&b, results)
	tiny := func(i int) Spread { return results[i].Slowdowns(0, 10_000) }
	if !(tiny(0).P95 > tiny(1).P95 && tiny(1).P95 > tiny(2).P95 && tiny(0).P99 > tiny(1).P99 && tiny(1).P99 > tiny(2).P99) {
		t.Errorf("flows up to 10 KB: %+v, %+v, %+v: want each better than the one before", tiny(0), tiny(1), tiny(2))
	}
	if results[0].Totals.XOFFs <= results[1].Totals.XOFFs {
		t.Error("DCQCN has not made pauses fewer")
	}
	golden(t, "hadoop", b.String())
}

// TestTrafficsDrawTheirOwn checks that no two traffics of a scenario draw the
// same numbers, one later than the other.
func TestTrafficsDrawTheirOwn(t *testing.T) {
	t.Parallel()
	s := Scenario{Seed: 7}
	seen := map[uint64]int{}
	for i := range 8 {
		rand := s.random(i)
		for range 1000 {
			word := rand.Uint64()
			if by, ok := seen[word]; ok {
				t.Fatalf("traffics %d and %d draw %#x", by, i, word)
			}
			seen[word] = i
		}
	}
}
