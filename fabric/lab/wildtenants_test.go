package lab

import (
	"context"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/fabric/event"
)

// wildTenants returns a random scenario whose traffic has classes, controls and
// queue pairs of its own, jobs on some of the hosts, and execution traces.
func wildTenants(seed uint64) Scenario {
	s := wild(seed)
	d := &dice{event.NewRand(seed, 78)}
	if s.Network.Topology != "pair" {
		s.Network.Classes = []Class{{Name: "bulk", DSCP: new(10), Number: new(1 + d.below(2)), Weight: 1 + d.below(60)}, {Name: "top", DSCP: new(40), Number: new(5), Strict: new(d.below(2) == 0)}}
		if d.below(2) == 0 {
			s.Network.Classes[0].RED = &RED{Kmin: 5000, Kmax: 100_000, Pmax: 0.5}
		}
		if !s.Network.Lossy && d.below(2) == 0 {
			s.Network.Classes[0].Lossless = new(true)
			s.Network.Buffer = 0
		}
	}
	for i := range s.Traffic {
		t := &s.Traffic[i]
		t.Tenant = Tenant{
			Control: d.one("", "window", "static", "dcqcn", "static,bytes=64K"), Window: Bytes(d.rarely(4_000_000)), Recovery: d.one("", "selective", "go-back-n"),
			QueuePairs: d.rarely(5), Rate: Rate(d.rarely(50)) * Gbps,
		}
		if strings.Contains(t.Control, "bytes") {
			t.Window = 0
		}
		if s.Network.Topology != "pair" {
			t.Class = d.one("", "bulk", "top", "0", "63")
		}
		if d.below(3) == 0 {
			t.Kind, t.Sizes, t.Op = d.one("ring", "tree", "halving", "all-gather", "reduce-scatter", "broadcast", "pairwise"), "", ""
			t.Iterations = 1 + d.below(4)
			if t.Iterations > 1 {
				t.Compute = Time(d.rarely(30_000_000))
			}
		}
		if d.below(3) == 0 {
			t.Hosts = d.one("0-1", "1,0", "0-2/2,1")
			if t.Kind == "flow" || s.Network.Topology == "pair" {
				t.Hosts = ""
			}
		}
	}
	if d.below(3) == 0 {
		s.Traffic = append(s.Traffic, Traffic{Kind: "chakra", List: wildTraces(d), Algorithm: d.one("", "tree"), Tenant: Tenant{QueuePairs: 1 + d.below(3)}})
	}
	return s
}

// wildTraces returns traces of two ranks.
func wildTraces(d *dice) string {
	all := []*tracer{{}, {}}
	for id := range uint64(1 + d.below(30)) {
		var deps []uint64
		if id > 0 && d.below(3) > 0 {
			deps = append(deps, uint64(d.below(int(id))))
		}
		kind, size, from := d.below(3), d.below(100_000), d.below(2)
		for rank, w := range all {
			switch {
			case kind == 0:
				w.node(id, etCompute, uint64(d.below(20)), deps, "is_cpu_op", d.below(2) == 0)
			case kind == 1 && rank == from:
				w.node(id, etSend, 0, deps, "comm_dst", 1-rank, "comm_size", size)
			case kind == 1:
				w.node(id, etRecv, 0, deps, "comm_src", 1-rank, "comm_size", size)
			default:
				w.node(id, etCollective, 0, deps, "comm_type", []int{etAllReduce, etAllGather, etBroadcast, etAllToAll, etReduceScatter, etBarrier}[size%6], "comm_size", size)
			}
		}
	}
	return packed(all...)
}

// TestWildTenants is TestWild for tenants.
func TestWildTenants(t *testing.T) {
	t.Parallel()
	played, seeds := 0, *wildSeeds
	if seeds == 0 {
		seeds = 60
		if testing.Short() {
			seeds = 15
		}
	}
	for seed := range uint64(seeds) {
		s := wildTenants(seed)
		r, err := Run(context.Background(), s)
		if err != nil {
			// Some networks have two hosts, and a buffer that is
			// too small for one more class without losses.
			known := absent(err)
			for _, text := range []string{"there is no cable", "no cable joins", "a message from rank", "is a host of 0 to", "network.buffer", "buffer of", "reserve"} {
				known = known || strings.Contains(err.Error(), text)
			}
			if !known {
				t.Errorf("seed %d: %v", seed, err)
			}
			continue
		}
		played++
		s.Every, s.Cores = 7*us, 1+int(seed%8)
		again, err := Run(context.Background(), s)
		if err != nil {
			t.Errorf("seed %d, again: %v", seed, err)
		} else if r.Digest != again.Digest || r.Stats != again.Stats || r.Totals != again.Totals {
			t.Errorf("seed %d: digest %x and %x, %+v and %+v", seed, r.Digest, again.Digest, r.Totals, again.Totals)
		}
	}
	if played < seeds/2 {
		t.Errorf("%d of %d scenarios can be played", played, seeds)
	}
}
