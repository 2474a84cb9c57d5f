package lab

import (
	"fmt"
	"strings"
	"testing"
	"text/tabwriter"
)

// onClos is hosts that write for ever on 4 leaves with 5 hosts each and 2
// spines, 40 Gb/s everywhere, with switches that pause. Host 0 is on the first
// leaf, 5 to 9 on the second, and so on. A flow is two hosts and a source port,
// which chooses its spine.
func onClos(name, control string, flows [][3]int) Scenario {
	alpha := -3
	s := Scenario{
		Name: name, Seed: 2, Until: 40 * ms, Warm: 10 * ms, Every: 200 * us,
		Network: Network{Topology: "leaf-spine", Leaves: 4, Spines: 2, HostsPerLeaf: 5, Rate: 40 * Gbps, Profile: "dcqcn-paper", Buffer: 4e6, Alpha: &alpha},
		Adapter: Adapter{MTU: 1024, Control: control, Window: 4e6, Notify: 50 * us},
	}
	if control == "static" {
		s.Network.RED = &RED{} // pauses alone: nothing is marked
	} else {
		s.Until, s.Warm = 100*ms, 20*ms
	}
	for _, f := range flows {
		s.Traffic = append(s.Traffic, Traffic{Kind: "flow", From: f[0], To: f[1], SrcPort: f[2]})
	}
	return s
}

// near reports whether a rate in Gb/s is within a part of what it should be.
func near(got Rate, gbps, part float64) bool {
	return float64(got) >= gbps*1e9*(1-part) && float64(got) <= gbps*1e9*(1+part)
}

// TestUnfairness: switches that pause are fair to their ingress ports, not to
// flows. One sender is behind the switch of the receiver, three behind others.
// Where these come in by one port, the first gets half of 37.03 Gb/s; where
// they come in by two, a third, and so does the one that has a port alone. With
// DCQCN all get a quarter (Zhu et al., SIGCOMM 2015, figures 3 and 8).
func TestUnfairness(t *testing.T) {
	t.Parallel()
	long(t)
	var b strings.Builder
	for _, c := range []struct {
		name, control string
		port          int // of the first remote sender
		want          [4]float64
		part          float64
	}{
		{"PFC alone, one way", "static", 50002, [4]float64{18.52, 6.17, 6.17, 6.17}, .02},
		{"PFC alone, two ways", "static", 50000, [4]float64{12.34, 12.34, 6.17, 6.17}, .02},
		{"with DCQCN, one way", "dcqcn", 50002, [4]float64{9.26, 9.26, 9.26, 9.26}, .15},
		{"with DCQCN, two ways", "dcqcn", 50000, [4]float64{9.26, 9.26, 9.26, 9.26}, .15},
	} {
		r := play(t, onClos(c.name, c.control, [][3]int{{1, 0, 50000}, {5, 0, c.port}, {10, 0, 50000}, {15, 0, 50000}}))
		rates, _, jain := r.Rates()
		fmt.Fprintf(&b, "%-22s %v  Jain %.4f, %d XOFFs, digest %016x\n", c.name, rates, jain, r.Totals.XOFFs, r.Digest)
		for i, want := range c.want {
			if !near(rates[i], want, c.part) {
				t.Errorf("%s: flow %d gets %v, want %.2f Gb/s within %.0f %%", c.name, i, rates[i], want, 100*c.part)
			}
		}
		if drops := r.Totals.Drops; drops != [len(drops)]uint64{} {
			t.Errorf("%s: %v dropped", c.name, drops)
		}
	}
	golden(t, "unfairness", b.String())
}

// victim: a flow from the leaf of four senders shares no cable that is full
// with them, and two of them each take one of its two ways. Pauses hold it back
// all the same, to what a sender beside it gets; more senders elsewhere halve
// that. With DCQCN it gets what is left (Zhu et al., SIGCOMM 2015, figures 4
// and 9).
func victim(t *testing.T) {
	t.Parallel()
	const victim = 4 // the flow 9 > 11
	flows := [][3]int{{5, 0, 50000}, {6, 0, 50001}, {7, 0, 50004}, {8, 0, 50003}, {9, 11, 50001}}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "more senders\tPFC alone\tXOFFs\twith DCQCN\tXOFFs\tdigests\t\t\n")
	for more, pfc := range []float64{9.30, 9.30, 4.65} {
		if more > 0 {
			flows = append(flows, [3]int{14 + more, 0, 49999 + more})
		}
		alone := play(t, onClos("PFC alone", "static", flows))
		with := play(t, onClos("with DCQCN", "dcqcn", flows))
		held, _, _ := alone.Rates()
		free, _, _ := with.Rates()
		fmt.Fprintf(w, "%d\t%v\t%d\t%v\t%d\t%016x\t%016x\t\n", more, held[victim], alone.Totals.XOFFs, free[victim], with.Totals.XOFFs, alone.Digest, with.Digest)
		if !near(held[victim], pfc, .02) {
			t.Errorf("PFC alone, %d more senders: the victim gets %v, want %.2f Gb/s", more, held[victim], pfc)
		}
		if free[victim] < 18*Gbps {
			t.Errorf("with DCQCN, %d more senders: the victim gets %v, want 18 Gb/s at least", more, free[victim])
		}
		if alone.Totals.XOFFs < 10_000 {
			t.Errorf("%d more senders: %d XOFFs in 40 ms", more, alone.Totals.XOFFs)
		}
	}
	w.Flush()
	golden(t, "victim", b.String())
}
