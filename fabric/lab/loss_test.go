package lab

import (
	"fmt"
	"strings"
	"testing"
)

// lossOverECMP plays a permutation on cables that each lose packets at random,
// four of them on a way. Flows take at most 5 % longer than without loss, also
// where each cable loses 1 %, and 4 % of the packets are sent twice.
func lossOverECMP(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	fmt.Fprintln(&b, "Permutation of 4 MiB, 128 hosts of 100 Gb/s over 16 equal ways by ECMP; each of four cables loses a share of the packets.")
	fmt.Fprintln(&b, "lost    seed  drops  sent again  mean   p99    the last at")
	for seed := range uint64(3) {
		without := 0.0
		for _, loss := range []float64{0, .001, .0025, .01} {
			s := Scenario{Seed: seed, Limit: 100_000 * us}
			s.Network = Network{Topology: "leaf-spine", Leaves: 8, Spines: 16, HostsPerLeaf: 16, RED: &RED{}, Loss: loss}
			s.Adapter.Window = 256 << 10
			s.Traffic = []Traffic{{Kind: "permutation", Across: 16, Bytes: 4 << 20}}
			r := play(t, s)
			all := r.Slowdowns(0, 1<<40)
			_, failed, last := r.Done()
			if failed > 0 {
				t.Errorf("%d flows have failed", failed)
			}
			fmt.Fprintf(&b, "%-6v  %4d  %5d  %10d  %5.3f  %5.2f  %v\n", loss, seed, r.Totals.Dropped(), r.Stats.Retransmits, all.Mean, all.P99, last)
			if loss == 0 {
				without = all.Mean
			} else if all.Mean > 1.05*without {
				t.Errorf("seed %d: with %v of the packets lost on each cable the mean slowdown is %.3f, and %.3f without", seed, loss, all.Mean, without)
			}
		}
	}
	golden(t, "loss", b.String())
}
