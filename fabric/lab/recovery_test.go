package lab

import (
	"fmt"
	"strings"
	"testing"
)

// TestRecoveryInFullQueues plays storage traffic on a network that drops, with
// selective repeat and with go-back-N. Where switches mark, selective repeat is
// better in all. Where only losses say that a queue is full, flows are slowed
// down about as much, and long ones less; but it drops up to half as much
// again: single losses are taken for noise of the path.
func TestRecoveryInFullQueues(t *testing.T) {
	t.Parallel()
	long(t)
	text, err := Text("storage")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	fmt.Fprintln(&b, "AliStorage at 50 %, 128 hosts 2:1, queues of 300 KB that drop, 1 ms of arrivals, windows of 128 KiB.")
	fmt.Fprintln(&b, "marks  seed  recovery   drops  sent again  mean   p95    p99    the last at")
	for _, marks := range []bool{true, false} {
		for seed := range uint64(3) {
			var of [2]*Result
			for i, recovery := range recoveries {
				s, err := Parse(text)
				if err != nil {
					t.Fatal(err)
				}
				s.Seed, s.Adapter.Recovery = seed, recovery
				if !marks {
					s.Network.RED = &RED{}
				}
				r := play(t, s)
				of[i] = r
				all := r.Slowdowns(0, 1<<40)
				_, failed, last := r.Done()
				if failed > 0 {
					t.Errorf("%s: %d flows have failed", recovery, failed)
				}
				fmt.Fprintf(&b, "%-5v  %4d  %-9s  %5d  %10d  %5.2f  %5.2f  %6.2f  %v\n", marks, seed, recovery, r.Totals.Dropped(), r.Stats.Retransmits, all.Mean, all.P95, all.P99, last)
			}
			worse := func(what string, selective, goBack, most float64) {
				if selective > goBack*most {
					t.Errorf("marks %v, seed %d: %s is %.2f, and %.2f with go-back-N", marks, seed, what, selective, goBack)
				}
			}
			most := 1.0
			if !marks {
				most = 1.6
			}
			s, g := of[0].Slowdowns(0, 1<<40), of[1].Slowdowns(0, 1<<40)
			worse("the mean slowdown", s.Mean, g.Mean, min(most, 1.1))
			worse("the 99th percentile", s.P99, g.P99, most)
			worse("drops", float64(of[0].Totals.Dropped()), float64(of[1].Totals.Dropped()), most)
			worse("the mean slowdown above 1 MB", of[0].Slowdowns(1e6, 1<<40).Mean, of[1].Slowdowns(1e6, 1<<40).Mean, 1)
			if s := of[0].Slowdowns(0, 10_000); marks && s.P99 > 10 {
				t.Errorf("seed %d: the 99th percentile of flows up to 10 KB is %.2f", seed, s.P99)
			}
		}
	}
	golden(t, "recovery", b.String())
}
