package lab

import (
	"strings"
	"testing"
)

// TestIterations: a collective goes on again when each rank has computed, and
// the result has the time of each iteration.
func TestIterations(t *testing.T) {
	t.Parallel()
	s := Scenario{Network: Network{Topology: "star", Hosts: 8}}
	for _, kind := range collectives {
		tr := Traffic{Kind: kind, Bytes: 1 << 20}
		if kind == "hierarchical" {
			tr.Group = 4
		}
		s.Traffic = []Traffic{tr}
		once := play(t, s).Traffics()[0].Iterations
		if len(once) != 1 || once[0].Start != 0 || once[0].End == 0 {
			t.Fatalf("%s: %v", kind, once)
		}
		s.Traffic[0].Iterations, s.Traffic[0].Compute = 5, 100*us
		r := play(t, s)
		all := r.Traffics()[0].Iterations
		if len(all) != 5 || all[0] != once[0] || all[4].End != r.Flows[0].End {
			t.Fatalf("%s: %v, and once %v", kind, all, once)
		}
		for k, it := range all[1:] {
			// The root of a broadcast does not wait for others.
			if gap := it.Start - all[k].End; kind != "broadcast" && gap > 100*us || gap < 100*us-all[k].End+all[k].Start {
				t.Errorf("%s: %v after iteration %d the next one begins", kind, gap, k)
			}
			if took := it.End - it.Start; took > 2*(once[0].End-once[0].Start) {
				t.Errorf("%s: iteration %d takes %v, and the first one %v", kind, k+1, took, once[0].End)
			}
		}
	}
}

// A collective takes what its steps take: those of a ring a chunk each, and
// without a switch between machines the hierarchical one as many.
func TestCollectivesTakeTheirSteps(t *testing.T) {
	t.Parallel()
	const bytes = 8 << 20
	took := func(tr Traffic) float64 {
		t.Helper()
		tr.Bytes = bytes
		return float64(play(t, Scenario{Network: Network{Topology: "star", Hosts: 8}, Traffic: []Traffic{tr}}).Flows[0].End)
	}
	line := float64(bytes) * 80 // ps at 100 Gb/s
	for _, c := range []struct {
		tr     Traffic
		chunks float64 // of the vector, one after the other
	}{
		{Traffic{Kind: "ring"}, 2 * 7. / 8}, {Traffic{Kind: "all-gather"}, 7. / 8}, {Traffic{Kind: "reduce-scatter"}, 7. / 8}, {Traffic{Kind: "pairwise"}, 7. / 8},
		{Traffic{Kind: "broadcast"}, 3}, {Traffic{Kind: "tree"}, 2 * 3}, {Traffic{Kind: "halving"}, 2 * 7. / 8}, {Traffic{Kind: "hierarchical", Group: 4}, 2*3./4 + 2./2/4},
	} {
		if got := took(c.tr) / line; got < c.chunks || got > 1.1*c.chunks+0.05 {
			t.Errorf("%s takes %.3f times what a cable needs for the vector; its steps have %.3f", c.tr.Kind, got, c.chunks)
		}
	}
}

// Several jobs share a network, on ranks that are interleaved: each is as slow
// as its flows are, and its messages are its own.
func TestJobsOnInterleavedRanks(t *testing.T) {
	t.Parallel()
	s := Scenario{Network: Network{Topology: "leaf-spine", Leaves: 2, Spines: 1, HostsPerLeaf: 4}, Traffic: []Traffic{
		{Kind: "ring", Hosts: "0-6/2", Bytes: 4 << 20, Iterations: 3}, {Kind: "pairwise", Hosts: "7,1-5/2", Bytes: 4 << 20, Iterations: 3},
	}}
	r := play(t, s)
	for i, tr := range r.Traffics() {
		if len(tr.Iterations) != 3 || tr.Done != 1 {
			t.Errorf("traffic %d: %+v", i, tr)
		}
	}
	if f := r.Flows[1]; f.Src != 7 || f.Dst != 5 {
		t.Errorf("the ranks of the second are hosts %d to %d", f.Src, f.Dst)
	}
	s.Cores = 3
	if again := play(t, s); again.Digest != r.Digest {
		t.Error("in three parts it is another run")
	}
	// Alone on its leaf the first one does not slow the other down.
	s = Scenario{Network: s.Network, Traffic: []Traffic{{Kind: "ring", Hosts: "0-3", Bytes: 4 << 20}}}
	alone := play(t, s).Flows[0].End
	s.Traffic = append(s.Traffic, Traffic{Kind: "ring", Hosts: "4-7", Bytes: 4 << 20})
	if both := play(t, s).Flows[0].End; both != alone {
		t.Errorf("beside a job at another leaf it ends at %v, and alone at %v", both, alone)
	}
}

// An all-to-all of unequal sizes sends what its matrix says; a rank without any
// part in it waits for nothing.
func TestPairwiseOfMatrix(t *testing.T) {
	t.Parallel()
	s := Scenario{Network: Network{Topology: "star", Hosts: 4}, Traffic: []Traffic{{Kind: "pairwise", List: "# bytes\n0,1MB,0,0\n0,0,2000000,0\n5,0,0,0\n0,0,0,0\n", Iterations: 2}}}
	r := play(t, s)
	if r.Flows[0].Bytes != 3_000_005 || r.Stats.RxBytes != 2*3_000_005 {
		t.Errorf("%d bytes, and %d have arrived in two iterations", r.Flows[0].Bytes, r.Stats.RxBytes)
	}
	s.Traffic[0].Iterations = 50_000 // rank 3 does nothing, as often
	s.Traffic[0].List = "0,1,0,0\n0,0,0,0\n0,0,0,0\n0,0,0,0\n"
	if r := play(t, s); len(r.Traffics()[0].Iterations) != 50_000 {
		t.Error("not all iterations have ended")
	}
	for list, want := range map[string]string{
		"0,1\n":                          "list: record on line 1: wrong number of fields",
		"0,1,2,3\n":                      "there are not as many rows as ranks, 4",
		strings.Repeat("0,1,2,3\n", 5):   "there are not as many rows as ranks, 4",
		"0,1,2,3\n0,x,2,3\n":             "list: line 2: for rank 1: \"x\" is no number of bytes",
		"0,1,2,3\n0,-1,2,3\n":            "list: line 2: for rank 1: \"-1\": it is up to 1GiB",
		"0,1,2,3\n0,1,2GiB,3\n":          "list: line 2: for rank 2: \"2GiB\": it is up to 1GiB",
		"0,1,2,3\n0,1,\"2,3\n0,1,1,1\n,": "list: ",
	} {
		s.Traffic[0].List = list
		if err := Check(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", list, err, want)
		}
	}
}

// What a collective cannot be is said.
func TestMistakesOfCollectives(t *testing.T) {
	t.Parallel()
	for want, tr := range map[string]Traffic{
		"group is 3: it is how many ranks a machine has": {Kind: "hierarchical", Group: 3, Bytes: 1},
		"group is 8":                           {Kind: "hierarchical", Group: 8, Bytes: 1},
		"iterations is -1: with 8 ranks it is": {Kind: "ring", Bytes: 1, Iterations: -1},
		"iterations is 1000000: with 8 ranks it is 1 to 524288": {Kind: "ring", Bytes: 1, Iterations: 1000000},
		"compute is the time between two iterations":            {Kind: "ring", Bytes: 1, Compute: us},
		"5 ranks with 1B: there must be 2 to 4":                 {Kind: "ring", Bytes: 1, Ranks: 5, Hosts: "0-3"},
		"start or another time is negative":                     {Kind: "ring", Bytes: 1, Compute: -1, Iterations: 2},
		"list has the bytes":                                    {Kind: "pairwise", File: "x.csv", Bytes: 1},
	} {
		s := Scenario{Network: Network{Topology: "star", Hosts: 8}, Traffic: []Traffic{tr}}
		if err := Check(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v; want %q", tr, err, want)
		}
	}
}
