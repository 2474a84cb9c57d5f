package lab

import (
	"fmt"
	"strings"
	"testing"
	"text/tabwriter"
)

// routingsUnderLoad: flows of web search at 80 % of a Clos network that does
// not block, by how switches choose among equal ways. DRILL says of its
// simulations at 80 % that the mean completion time is lower by 1.3 to 1.4
// times than that of recent proposals (Ghorbani et al., SIGCOMM 2017,
// abstract): CONGA, which moves flowlets, and Presto, which sprays parts of
// flows.
func routingsUnderLoad(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "routing\tmean µs\tover drill\tmean slowdown\tp99\tup to 100 KB, mean\tp99\tsent again\tdropped\t\n")
	type row struct {
		routing        string
		mean           float64
		all, small     Spread
		again, dropped uint64
	}
	var rows []row
	for _, routing := range []string{"ecmp", "flowlet", "spray", "least-queue", "weighted", "drill"} {
		one := row{routing: routing}
		s := Scenario{Seed: 3, Network: Network{Topology: "leaf-spine", Leaves: 8, Spines: 8, HostsPerLeaf: 8, Rate: 10 * Gbps, Delay: 500 * Time(nanosecond), Lossy: true, Routing: routing},
			Adapter: Adapter{Control: "dcqcn"},
			Traffic: []Traffic{{Kind: "load", Sizes: "websearch", Load: .8, Until: 20_000 * us}}}
		r := play(t, s)
		var sum float64
		n := 0
		for _, f := range r.Flows {
			if f.End != 0 {
				sum += float64(f.End-f.Start) / float64(us)
				n++
			}
		}
		one.mean, one.all, one.small = sum/float64(n), r.Slowdowns(0, 1<<40), r.Slowdowns(0, 100_000)
		one.again, one.dropped = r.Stats.Retransmits, r.Totals.Dropped()
		rows = append(rows, one)
	}
	drill := rows[len(rows)-1].mean
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%.0f\t%.2f\t%.2f\t%.1f\t%.2f\t%.1f\t%d\t%d\t\n", r.routing, r.mean, r.mean/drill, r.all.Mean, r.all.P99, r.small.Mean, r.small.P99, r.again, r.dropped)
	}
	// Presto sprays parts of 64 KB, and queues are longer for that. Packet
	// by packet, where all ways are alike, spraying does as well.
	if ecmp, flowlet, spray := rows[0].mean/drill, rows[1].mean/drill, rows[2].mean/drill; ecmp < 1.1 || flowlet < 1.1 || flowlet > 1.45 || !near(Rate(spray*1e9), 1, .05) {
		t.Errorf("the mean of ECMP is %.2f of DRILL's, that of flowlets %.2f, of spraying %.2f", ecmp, flowlet, spray)
	}
	w.Flush()
	golden(t, "drill", b.String())
}
