package lab

import (
	"bytes"
	"runtime"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
)

func play(t *testing.T, s Scenario) *Result {
	t.Helper()
	r, err := Run(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// small is a run in which much happens: marks, pauses, and flows of all sizes.
func small() Scenario {
	return Scenario{
		Name: "small", Seed: 7, Limit: 50_000 * us,
		Network: Network{Topology: "leaf-spine", Leaves: 2, Spines: 2, HostsPerLeaf: 4, Profile: "dcqcn-paper", Rate: 40 * Gbps},
		Adapter: Adapter{MTU: 1024, Control: "dcqcn"},
		Traffic: []Traffic{{Kind: "load", Sizes: "hadoop", Load: .5, Until: 500 * us}, {Kind: "incast", Senders: 5, Bytes: 200_000}},
	}
}

// A scenario and a seed have one result, however often it is played and looked
// at, and on however many processors. Another seed has another one.
func TestRepeatable(t *testing.T) { // not parallel: it changes GOMAXPROCS
	first := play(t, small())
	if n, failed, _ := first.Done(); n < fewFlows || failed > 0 {
		t.Fatalf("%d flows have completed, %d failed", n, failed)
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	s := small()
	s.Every = 3 * us
	if again := play(t, s); again.Digest != first.Digest {
		t.Errorf("digest %x, and %x when it is looked at more often", first.Digest, again.Digest)
	}
	runtime.GOMAXPROCS(2)
	again := play(t, small())
	var a, b bytes.Buffer
	first.WriteTo(&a)
	again.WriteTo(&b)
	if a.String() != b.String() {
		t.Errorf("one time\n%s\nanother time\n%s", &a, &b)
	}
	s.Seed++
	if other := play(t, s); other.Digest == first.Digest {
		t.Errorf("two seeds have the digest %x", first.Digest)
	}
}

// All kinds of traffic come to their end, by all operations.
func TestKinds(t *testing.T) {
	t.Parallel()
	net := Network{Topology: "leaf-spine", Leaves: 2, Spines: 2, HostsPerLeaf: 4}
	for _, c := range []struct {
		traffic Traffic
		flows   int
	}{
		{Traffic{Kind: "flow", To: 5, Bytes: 100_000}, 1},
		{Traffic{Kind: "flow", To: 5, Bytes: 100_000, Op: "send"}, 1},
		{Traffic{Kind: "flow", To: 5, Bytes: 100_000, Op: "read", SrcPort: 50000}, 1},
		{Traffic{Kind: "incast", Senders: 7, Bytes: 50_000, Start: 5 * us}, 7},
		{Traffic{Kind: "permutation", Bytes: 50_000}, 8},
		{Traffic{Kind: "permutation", Across: 4, Bytes: 50_000, Op: "read"}, 8},
		{Traffic{Kind: "all-to-all", Bytes: 10_000}, 56},
		{Traffic{Kind: "ring", Bytes: 100_000}, 1},
		{Traffic{Kind: "tree", Bytes: 100_000, Ranks: 7}, 1},
		{Traffic{Kind: "halving", Bytes: 100_000, Ranks: 6}, 1},
	} {
		for _, shared := range []bool{false, true} {
			r := play(t, Scenario{Network: net, Adapter: Adapter{Shared: shared}, Traffic: []Traffic{c.traffic, c.traffic}})
			if n, failed, last := r.Done(); n != 2*c.flows || failed > 0 || last == 0 {
				t.Errorf("%+v, shared %v: %d flows have completed, want %d; %d have failed", c.traffic, shared, n, 2*c.flows, failed)
			}
		}
	}
	r := play(t, Scenario{Network: net, Until: 500 * us, Traffic: []Traffic{{Kind: "bursts", Senders: 3, Bytes: 5000, Load: .3}}})
	if n := len(r.Flows); n < 6 || n%3 != 0 {
		t.Errorf("bursts of 3: %d flows", n)
	}
}

// A flow alone takes what the formula says.
func TestAlone(t *testing.T) {
	t.Parallel()
	for _, op := range operations {
		for _, bytes := range []Bytes{1, 4096, 5000, 1 << 20} {
			r := play(t, Scenario{Network: Network{Topology: "leaf-spine", Leaves: 2, Spines: 1, HostsPerLeaf: 2, UpRate: 400 * Gbps},
				Adapter: Adapter{Control: "static", Window: 1 << 20},
				Traffic: []Traffic{{Kind: "flow", From: 0, To: 3, Bytes: bytes, Op: op}}})
			if s := r.Flows[0].Slowdown(); s < .995 || s > 1.005 {
				t.Errorf("%s of %v: %v, and alone %v", op, bytes, r.Flows[0].End, r.Flows[0].Ideal)
			}
		}
	}
}

// Flows that lose their way for a while survive; those that lose it for good
// fail, and say why.
func TestFailures(t *testing.T) {
	t.Parallel()
	s := Scenario{Network: Network{Topology: "star", Hosts: 3}, Limit: 5_000_000 * us,
		Traffic: []Traffic{{Kind: "flow", From: 1, To: 0, Bytes: 10 << 20}}, Failures: []Failure{{Cable: 0, At: 100 * us, Until: 2000 * us}}}
	r := play(t, s)
	if f := r.Flows[0]; f.Status != ib.StatusSuccess || f.End < 2000*us {
		t.Errorf("status %v at %v", f.Status, f.End)
	}
	if r.Totals.Dropped() == 0 {
		t.Error("nothing was lost")
	}
	s.Failures[0].Until = 0
	r = play(t, s)
	if f := r.Flows[0]; f.Status != ib.StatusRetryExcErr {
		t.Errorf("without its cable the flow ends with %v", f.Status)
	}
	if _, failed, _ := r.Done(); failed != 1 {
		t.Errorf("%d flows have failed", failed)
	}
}

// What a result has to show can be drawn.
func TestPlots(t *testing.T) {
	t.Parallel()
	r := play(t, small())
	names := ""
	for _, p := range r.Plots() {
		var b bytes.Buffer
		if err := p.WriteSVG(&b); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
		names += p.Name + " "
	}
	if names != "queues rates slowdowns " && names != "queues rates pauses slowdowns " {
		t.Errorf("there are the plots %s", names)
	}
}

// A long run keeps a bounded number of samples.
func TestSamplesAreBounded(t *testing.T) {
	t.Parallel()
	r := play(t, Scenario{Network: Network{Topology: "pair", Rate: Gbps}, Every: us, Traffic: []Traffic{{Kind: "flow", To: 1, Bytes: 1 << 20}}})
	m := r.Samples
	n := len(m.Times)
	if n < mostSamples/2 || n > mostSamples {
		t.Errorf("%d samples", n)
	}
	for _, x := range m.Series {
		if len(x.Values) != n {
			t.Errorf("%s %s has %d values, of %d samples", x.Of, x.What, len(x.Values), n)
		}
	}
	if step := m.Times[1] - m.Times[0]; step < 8*us {
		t.Errorf("one each %v", step)
	}
}
