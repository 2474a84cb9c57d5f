package lab

import (
	"testing"

	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/internal/race"
)

// flapping is an incast through a lossless network with small buffers, beside
// other flows, in which cables flap: some for less time than a pause frame
// takes.
func flapping(seed uint64) Scenario {
	d := &dice{event.NewRand(seed, 78)}
	alpha := d.below(5) - 8
	s := Scenario{Seed: seed, Until: 400 * us, Warm: 100 * us,
		Network: Network{Topology: "leaf-spine", Leaves: 4, Spines: 1 + d.below(3), HostsPerLeaf: 3, Rate: 100 * Gbps, Delay: Time(200+d.below(1500)) * nanosecond,
			Profile: d.one("spectrum", "dcqcn-paper"), Alpha: &alpha, Routing: d.one("ecmp", "flowlet", "least-queue", "spray"), CutThrough: d.below(2) == 0,
			Converge: Time(1+d.below(60)) * us, UpDown: d.below(2) == 0, Watchdog: Time(d.rarely(100)) * us},
		Adapter: Adapter{MTU: 1024, Control: d.one("window", "static", "dcqcn"), NoECN: d.below(2) == 0, Window: Bytes(d.rarely(2_000_000)), Timeout: 6, Recovery: d.one("selective", "go-back-n")},
		Traffic: []Traffic{{Kind: "incast", Senders: 11}, {Kind: "permutation", Bytes: 2 << 20, Op: d.one("write", "read", "send")}, {Kind: "load", Sizes: "hadoop", Load: .2}},
	}
	for range 25 {
		at := Time(20+d.below(350)) * us
		s.Failures = append(s.Failures, Failure{Cable: d.below(12 + 4*s.Network.Spines), At: at, Until: at + 1 + Time(d.below([]int{1000, 1_000_000, 40_000_000}[d.below(3)]))})
	}
	return s
}

// TestFlaps plays adapters on networks whose cables flap while buffers are full
// and pauses are out: on one core and on up to four the same happens, down to
// the flows.
func TestFlaps(t *testing.T) {
	t.Parallel()
	seeds := uint64(8)
	if testing.Short() || race.Enabled {
		seeds = 1
	}
	var pauses, lost, again uint64
	for seed := range seeds {
		one := play(t, flapping(seed))
		for cores := 2; cores <= 4; cores++ {
			s := flapping(seed)
			s.Cores, s.Every = cores, Time(1+10*cores)*us
			r := play(t, s)
			if r.Digest != one.Digest || r.Stats != one.Stats || r.Totals != one.Totals || len(r.Flows) != len(one.Flows) {
				t.Fatalf("seed %d: digest %x, and %x on %d cores\n%+v\n%+v", seed, one.Digest, r.Digest, cores, one.Totals, r.Totals)
			}
			for i, f := range one.Flows {
				if g := r.Flows[i]; f.Src != g.Src || f.Dst != g.Dst || f.End != g.End || f.Status != g.Status || f.Measured != g.Measured {
					t.Fatalf("seed %d, flow %d: %+v, and on %d cores %+v", seed, i, f, cores, g)
				}
			}
		}
		pauses, lost, again = pauses+one.Totals.XOFFs, lost+one.Totals.Dropped(), again+one.Stats.Retransmits
	}
	t.Logf("%d networks: %d pauses, %d packets lost, %d sent again", seeds, pauses, lost, again)
	if pauses < 100*seeds || lost < 1000*seeds || again < 100*seeds {
		t.Error("they do not meet everything")
	}
}
