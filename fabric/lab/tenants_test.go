package lab

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

const twoClasses = `
until = "5ms"
warm = "1ms"
[network]
topology = "star"
hosts = 3
[[network.class]]
name = "compute"
dscp = 26
weight = 30
[[network.class]]
name = "storage"
dscp = 10
number = 2
weight = 10
lossless = true
red = { kmin = "100KB", kmax = "400KB", pmax = 0.2 }
[[traffic]]
name = "compute"
kind = "flow"
from = 1
[[traffic]]
name = "storage"
kind = "flow"
from = 2
class = "storage"
`

// TestClassesShareByWeight: two tenants in classes of their own share a cable
// by the weights, or the strict one has it.
func TestClassesShareByWeight(t *testing.T) {
	t.Parallel()
	s := parsed(t, twoClasses)
	s.Adapter.Control, s.Adapter.Window = "static", 1<<20 // more than the share needs
	s.Network.RED = &RED{}                                // no marks but those of storage, which static does not obey
	rates := func(s Scenario) (compute, storage float64) {
		t.Helper()
		r := play(t, s)
		if r.Totals.Dropped() != 0 {
			t.Errorf("%d packets were dropped, and both classes are lossless", r.Totals.Dropped())
		}
		all := r.Traffics()
		return float64(all[0].Rate) / 1e9, float64(all[1].Rate) / 1e9
	}
	if compute, storage := rates(s); compute < 2.9*storage || compute > 3.1*storage || compute+storage < 95 {
		t.Errorf("compute has %.1f Gb/s, and storage %.1f, with weights of 30 and 10", compute, storage)
	}
	yes := true
	s.Network.Classes = slices.Clone(s.Network.Classes)
	s.Network.Classes[0].Strict, s.Network.Classes[0].Weight = &yes, 0
	if compute, storage := rates(s); compute < 95 || storage > 1 {
		t.Errorf("compute has %.1f Gb/s, and storage %.1f, where compute is strict", compute, storage)
	}
	s = parsed(t, twoClasses)
	if r := play(t, s); r.Totals.Marks == 0 {
		t.Error("no class has marked")
	}
}

// TestClassesShareAHost: two tenants of one host share its cable by the weights
// of their classes as well, also with long turns of queue pairs, and a strict
// one has it.
func TestClassesShareAHost(t *testing.T) {
	t.Parallel()
	yes := true
	for _, c := range []struct {
		number, weight int
		strict         *bool
		want           float64 // of what both have, for storage
	}{{number: 2, weight: 10, want: .25}, {number: 5, weight: 10, want: .25}, {number: 2, weight: 30, want: .5}, {number: 2, strict: &yes, want: 1}} {
		for _, turn := range []Bytes{0, 64 << 10} {
			s := parsed(t, twoClasses)
			s.Network.Classes[1].Number, s.Network.Classes[1].Weight, s.Network.Classes[1].Strict = &c.number, c.weight, c.strict
			s.Adapter.Turn = turn
			for i := range s.Traffic {
				s.Traffic[i].From, s.Traffic[i].To = 0, 1+i
			}
			all := play(t, s).Traffics()
			compute, storage := float64(all[0].Rate)/1e9, float64(all[1].Rate)/1e9
			if d := storage/(compute+storage) - c.want; d < -.01 || d > .01 || compute+storage < 97 {
				t.Errorf("%+v, turns of %v: compute has %.1f Gb/s, and storage %.1f", c, turn, compute, storage)
			}
		}
	}
}

// Each tenant has its own control, window, rate and queue pairs.
func TestTenantsHaveTheirOwn(t *testing.T) {
	t.Parallel()
	const text = `
until = "4ms"
warm = "1ms"
[network]
topology = "star"
hosts = 6
[[traffic]]
kind = "flow"
from = 1
rate = "10Gb/s"
queue_pairs = 3
[[traffic]]
kind = "flow"
from = 2
to = 3
control = "static"
window = "8KiB"
recovery = "go-back-n"
[[traffic]]
kind = "flow"
from = 4
to = 5
window = "64KiB"
`
	r := play(t, parsed(t, text))
	all := r.Traffics()
	if v := all[0].Rate; v < 9*Gbps || v > 10*Gbps {
		t.Errorf("with a rate of 10 Gb/s it has %v", v)
	}
	if len(r.Flows[0].conns) != 3 {
		t.Errorf("it has %d queue pairs", len(r.Flows[0].conns))
	}
	// 8 KiB with headers is one packet, in each round trip over 4 cables of
	// 1 us and through a switch that stores it.
	if v := all[1].Rate; v < 6500*Mbps || v > 7500*Mbps {
		t.Errorf("with a window of one packet it has %v", v)
	}
	if v := all[2].Rate; v < 80*Gbps {
		t.Errorf("with a window of 64 KiB it has %v", v)
	}
	s := parsed(t, strings.Replace(text, `window = "64KiB"`, `window = "16KiB"`, 1))
	if v := play(t, s).Traffics()[2].Rate; v > 35*Gbps {
		t.Errorf("with a window of 16 KiB it has %v", v)
	}
}

// A window of which go-back-n leaves most unused is said.
func TestWindowsOfGoBackN(t *testing.T) {
	t.Parallel()
	of := func(recovery string, window Bytes) string {
		r := play(t, Scenario{Network: Network{Topology: "pair"}, Traffic: []Traffic{{Kind: "flow", To: 1, Bytes: 9}, {Kind: "flow", To: 1, Bytes: 9, Tenant: Tenant{Recovery: recovery, Window: window}}}})
		var b strings.Builder
		if _, err := r.WriteTo(&b); err != nil || strings.Contains(b.String(), "uses at most") != (r.GoBack != "") || r.Summary().GoBack != r.GoBack {
			t.Errorf("%v\n%s", err, &b)
		}
		return r.GoBack
	}
	if got := of("go-back-n", 1<<30); !strings.HasPrefix(got, "traffic 2 has one of 1GiB, of which go-back-n uses at most 128 packets: ") {
		t.Errorf("1 GiB: %q", got)
	}
	for _, got := range []string{of("go-back-n", 560<<10), of("go-back-n", 0), of("selective", 1<<30)} {
		if got != "" {
			t.Errorf("%q", got)
		}
	}
}

// The window of a tenant is its own, whatever recovery and control it has: the
// same as if all adapters had it, and a large one of another tenant between
// other hosts changes nothing.
func TestWindowsStayApart(t *testing.T) {
	t.Parallel()
	for _, recovery := range recoveries {
		for _, control := range []string{"window", "static", "swift", "dcqcn", "timely", "hpcc"} {
			for _, window := range []Bytes{0, 64 << 10} {
				s := Scenario{Network: Network{Topology: "star", Hosts: 4, Delay: 15 * us}, Adapter: Adapter{MTU: 1024, Window: window},
					Traffic: []Traffic{{Kind: "flow", To: 1, Bytes: 4 << 20, Tenant: Tenant{Recovery: recovery, Control: control}},
						{Kind: "flow", From: 2, To: 3, Bytes: 4 << 20}}}
				alone := play(t, s).Flows[0].End
				s.Adapter.Window, s.Traffic[0].Window, s.Traffic[1].Window = 0, window, 64<<20
				if beside := play(t, s).Flows[0].End; beside != alone {
					t.Errorf("%s, %s, window %v: it takes %v, and %v where another one has a window of 64 MiB", recovery, control, window, alone, beside)
				}
			}
		}
	}
}

// Several queue pairs take several ways: a flow that is divided is as fast as
// its cable, though each way is slower.
func TestQueuePairsTakeMoreWays(t *testing.T) {
	t.Parallel()
	s := Scenario{Network: Network{Topology: "leaf-spine", Leaves: 2, Spines: 8, HostsPerLeaf: 1, UpRate: 25 * Gbps},
		Traffic: []Traffic{{Kind: "flow", To: 1, Bytes: 16 << 20}}}
	one := play(t, s).End
	s.Traffic[0].QueuePairs = 32
	if many := play(t, s).End; 2*many > one {
		t.Errorf("32 queue pairs take %v, and one %v", many, one)
	}
}

// A flow has at most as many queue pairs as bytes; all of them are closed.
func TestQueuePairsOfShortFlows(t *testing.T) {
	t.Parallel()
	s := Scenario{Network: Network{Topology: "star", Hosts: 4},
		Traffic: []Traffic{{Kind: "all-to-all", Bytes: 3, Tenant: Tenant{QueuePairs: 64}}, {Kind: "all-to-all", Bytes: 100, Op: "read", Tenant: Tenant{QueuePairs: 64}}}}
	for _, shared := range []bool{false, true} {
		s.Adapter.Shared = shared
		r := play(t, s)
		if done, failed, _ := r.Done(); done != 24 || failed != 0 {
			t.Errorf("%d flows have completed, and %d failed", done, failed)
		}
	}
}

// The summary and the table tell of each traffic, where there are several.
func TestResultByTraffic(t *testing.T) {
	t.Parallel()
	s := Scenario{Network: Network{Topology: "star", Hosts: 8}, Traffic: []Traffic{
		{Kind: "permutation", Name: "big", Bytes: 2 << 20, Hosts: "0-3"},
		{Kind: "ring", Bytes: 1 << 10, Hosts: "4-7", Iterations: 3},
	}}
	r := play(t, s)
	text, err := json.Marshal(r.Summary())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"traffic":[{"name":"big","kind":"permutation","flows_completed":4,`, `"name":"ring","kind":"ring"`, `"iterations_us":[`, `"slowdown_by_size":[{"sizes":"above 1 MB"`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	var b strings.Builder
	if _, err := r.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"traffic 1, big", "4 completed", "traffic 2, ring", "  iterations  "} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	s.Traffic = s.Traffic[:1]
	s.Traffic[0].Name = ""
	if sum := play(t, s).Summary(); sum.Traffic != nil {
		t.Error("one traffic is told of twice")
	}
}

// What is wrong with several traffics is told together, with lines.
func TestMistakesOfTenants(t *testing.T) {
	t.Parallel()
	const text = `name = "x"
[network]
topology = "star"
hosts = 4
[[network.class]]
name = "bulk"
dscp = 10
number = 2
[[traffic]]
kind = "incast"
senders = 2
bytes = "1B"
[[traffic]]
kind = "incast"
senders = 2
bytes = "1B"
`
	for want, change := range map[string][2]string{
		"line 9: traffic 1, incast: queue_pairs is 65: it is 1 to 64":                    {`"1B"`, "\"1B\"\nqueue_pairs = 65"},
		"rate is 1b/s: it is 1Mb/s to 4Tb/s":                                             {`"1B"`, "\"1B\"\nrate = \"1b/s\""},
		"control: bad choice of congestion control":                                      {`"1B"`, "\"1B\"\ncontrol = \"x\""},
		"recovery is \"x\": there are selective, go-back-n":                              {`"1B"`, "\"1B\"\nrecovery = \"x\""},
		"window is 2GiB: it is at most 1GiB":                                             {`"1B"`, "\"1B\"\nwindow = \"2GiB\""},
		"dscp is 64: there are 0 to 63":                                                  {`"1B"`, "\"1B\"\ndscp = 64"},
		"class is \"bulc\": there are bulk, or a DSCP (do you mean bulk?)":               {`"1B"`, "\"1B\"\nclass = \"bulc\""},
		"class 99 is no DSCP":                                                            {`"1B"`, "\"1B\"\nclass = \"99\""},
		"line 9: traffic 1: dscp and class say the same":                                 {`"1B"`, "\"1B\"\ndscp = 4\nclass = \"bulk\""},
		"hosts has \"9\": it is a host of 0 to 3, or some, as 0-7 or 0-14/2":             {`"1B"`, "\"1B\"\nhosts = \"0-2,9\""},
		"hosts has host 1 twice":                                                         {`"1B"`, "\"1B\"\nhosts = \"0-2,1\""},
		"hosts is \"1\": it takes two hosts or more":                                     {`"1B"`, "\"1B\"\nhosts = \"1\""},
		"hosts has \"0-2/0\"":                                                            {`"1B"`, "\"1B\"\nhosts = \"0-2/0\""},
		"2 senders to host 0, of 2 hosts":                                                {`"1B"`, "\"1B\"\nhosts = \"0-1\""},
		"src_port is 65530":                                                              {`"1B"`, "\"1B\"\nsrc_port = 65530\nqueue_pairs = 64"},
		"line 9: traffic 1, incast: it has no group":                                     {`"1B"`, "\"1B\"\ngroup = 2"},
		"line 5: network.class 1: number is 8: there are 0 to 7":                         {"number = 2", "number = 8"},
		"network.class 1: dscp says which packets get into it":                           {"dscp = 10", ""},
		"network.class 1: weight is 65536: it is 1 to 65535":                             {"number = 2", "weight = 65536"},
		"network.class 1: strict goes before all weights":                                {"number = 2", "weight = 6\nstrict = true"},
		"network.class 1: name is \"7\": it is no number":                                {`"bulk"`, `"7"`},
		"network.class 2: there is another class \"bulk\"":                               {"[[network.class]]", "[[network.class]]\nname = \"bulk\"\ndscp = 1\nnumber = 1\n[[network.class]]"},
		"network.class 2: there is another class with dscp 10":                           {"[[network.class]]", "[[network.class]]\ndscp = 10\nnumber = 1\n[[network.class]]"},
		"network.class 2: it is class 2 of the switches, as another one is: number says": {"[[network.class]]", "[[network.class]]\ndscp = 11\nnumber = 2\n[[network.class]]"},
		"network.class 1: lossless does nothing beside network.lossy":                    {"hosts = 4\n[[network.class]]", "hosts = 4\nlossy = true\n[[network.class]]\nlossless = true"},
		"network.class 1: red.pmax is 2: it is a share":                                  {"number = 2", "red = { kmax = \"1KB\", pmax = 2.0 }"},
		"network.class 1: red.kmin is 1.953KiB, above kmax, 1000B":                       {"number = 2", "red = { kmin = \"2KB\", kmax = \"1KB\" }"},
	} {
		_, err := Parse([]byte(strings.Replace(text, change[0], change[1], 1)))
		if err == nil {
			s := parsed(t, strings.Replace(text, change[0], change[1], 1))
			_, err = Run(t.Context(), s)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", change, err, want)
		}
	}
	wrong := strings.ReplaceAll(text, `"1B"`, "\"1B\"\nqueue_pairs = 65")
	err := Check(parsed(t, wrong))
	if err == nil || !strings.Contains(err.Error(), "line 9: traffic 1") || !strings.Contains(err.Error(), "line 14: traffic 2") {
		t.Errorf("%v; it should tell of both", err)
	}
	wrong = strings.ReplaceAll(text, "senders = 2", "senders = 5")
	if err := Check(parsed(t, wrong)); err == nil || strings.Count(err.Error(), "5 senders to host 0") != 2 {
		t.Errorf("%v; it should tell of both", err)
	}
	if _, err = Parse([]byte(strings.ReplaceAll(text, "senders = 2", "load = 0.5"))); err == nil || !strings.Contains(err.Error(), "traffic 1, incast: it has no load") || !strings.Contains(err.Error(), "traffic 2, incast: it has no load") {
		t.Errorf("%v; it should tell of both", err)
	}
}

// What tenants differ in does not depend on how many parts the network has.
func TestTenantsInParts(t *testing.T) {
	t.Parallel()
	s := parsed(t, `
seed = 3
until = "600us"
[network]
topology = "fat-tree"
k = 4
[[network.class]]
name = "bulk"
dscp = 10
number = 2
lossless = true
weight = 5
red = { kmin = "10KB", kmax = "100KB", pmax = 0.2 }
[[traffic]]
kind = "load"
sizes = "hadoop"
load = 0.3
class = "bulk"
control = "dcqcn"
queue_pairs = 3
hosts = "0-14/2"
[[traffic]]
kind = "hierarchical"
group = 4
bytes = "64KiB"
iterations = 4
compute = "3.3us"
queue_pairs = 2
rate = "50Gb/s"
hosts = "1-15/2"
[[traffic]]
kind = "list"
list = "from,to,bytes,class,op\n0,1,1000000,bulk,read\n3,4,500000,0,send\n"
recovery = "go-back-n"
`)
	want := play(t, s)
	for _, cores := range []int{2, 4} {
		s.Cores = cores
		if r := play(t, s); r.Digest != want.Digest || r.End != want.End {
			t.Errorf("%d parts: digest %016x, want %016x", cores, r.Digest, want.Digest)
		}
	}
	if done := want.Traffics()[1]; len(done.Iterations) != 4 {
		t.Errorf("%d iterations", len(done.Iterations))
	}
}

// A flow with a rate has it beside others of its host, too, whose packets it
// waits for: what it comes late it makes up for.
func TestRateBesideOthers(t *testing.T) {
	t.Parallel()
	s := parsed(t, strings.Replace(twoClasses, "weight = 10", "strict = true", 1))
	for i := range s.Traffic {
		s.Traffic[i].From, s.Traffic[i].To = 0, 1+i
	}
	s.Network.Classes = append(s.Network.Classes, Class{DSCP: new(int), Weight: 10})
	s.Traffic = append(s.Traffic, Traffic{Kind: "flow", To: 1, Tenant: Tenant{Transport: "tcp", Control: "dctcp"}})
	for _, rate := range []Rate{5 * Gbps, 20 * Gbps, 60 * Gbps} {
		s.Traffic[1].Rate = rate
		want := float64(rate) * 4096 / 4158 // in frames with their headers
		if got := float64(play(t, s).Traffics()[1].Rate); got < .995*want || got > 1.005*want {
			t.Errorf("of %v it has %v, want %v", rate, Rate(got), Rate(want))
		}
	}
}
