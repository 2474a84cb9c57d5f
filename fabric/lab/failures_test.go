package lab

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/fabric/network"
)

// square is two leaves with two hosts each, and two spines. Cables 0 to 3 are
// the hosts', 4 to 7 between switches.
const square = `
until = "4ms"
[network]
topology = "leaf-spine"
leaves = 2
spines = 2
hosts_per_leaf = 2
rate = "10Gb/s"
converge = "100us"
[adapter]
timeout = 6
recovery = "selective"
[[traffic]]
kind = "flow"
from = 0
to = 2
[[traffic]]
kind = "flow"
from = 1
to = 3
`

// TestStormOfAllClasses: a host that storms pauses the classes of all data,
// also of a flow of a list, or of a program, that has a class of its own.
func TestStormOfAllClasses(t *testing.T) {
	t.Parallel()
	number, dscp, lossless := 2, 10, true
	for _, class := range []string{"", "10"} {
		for what, traffic := range map[string]Traffic{
			"traffic": {Kind: "flow", To: 1, Bytes: 1 << 20, Tenant: Tenant{Class: class}},
			"list":    {Kind: "list", List: "from,to,bytes,class\n0,1,1048576," + class + "\n"},
			"program": {Source: func(s *Source) { s.Start(FlowSpec{Dst: 1, Bytes: 1 << 20, Class: class}) }},
		} {
			s := Scenario{Until: 1000 * us, Network: Network{Topology: "star", Classes: []Class{{DSCP: &dscp, Number: &number, Lossless: &lossless}}},
				Traffic: []Traffic{traffic}, Failures: []Failure{{Kind: "pause-storm", Node: "h1", At: 10 * us}}}
			if r := play(t, s); r.Flows[0].End != 0 {
				t.Errorf("%s, class %q: the flow has come to its end at %v, in spite of the storm", what, class, r.Flows[0].End)
			}
		}
	}
}

// TestFailureKinds: what a failure does shows in the rates of two flows, from
// hosts 0 and 1 of the first leaf to hosts 2 and 3 of the second, and in what
// is dropped. Where it is over, all is as before.
func TestFailureKinds(t *testing.T) {
	t.Parallel()
	measure := func(failure, more string) (first, second int64, r *Result) {
		t.Helper()
		text := strings.Replace(square, "rate = \"10Gb/s\"", "rate = \"10Gb/s\"\n"+more, 1)
		r = play(t, parsed(t, "warm = \"1ms\"\n"+text+failure))
		return int64(r.Rate(r.Flows[0])) / 1e6, int64(r.Rate(r.Flows[1])) / 1e6, r
	}
	const usual = 9000 // Mb/s of payload, at least
	for _, test := range []struct {
		name, failure, more string
		first, second       [2]int64 // Mb/s
		dropped             network.Drop
	}{
		{"nothing", "", "", [2]int64{usual, 10000}, [2]int64{usual, 10000}, network.NumDrops},
		{"a host's cable", "between = [\"h0\", \"s0\"]", "", [2]int64{0, 0}, [2]int64{usual, 10000}, network.CableDown},
		{"a host's cable, for a while", "cable = 0\nuntil = \"800us\"", "", [2]int64{usual, 10000}, [2]int64{usual, 10000}, network.CableDown},
		{"one way, to the host", "kind = \"one-way\"\nbetween = [\"s0\", \"h1\"]", "", [2]int64{usual, 10000}, [2]int64{0, 5000}, network.CableDown}, // its window
		{"one way, from the host", "kind = \"one-way\"\ncable = 1", "", [2]int64{usual, 10000}, [2]int64{0, 0}, network.CableDown},
		{"a slow cable", "kind = \"rate\"\ncable = 2\nrate = \"1Gb/s\"", "", [2]int64{900, 1000}, [2]int64{usual, 10000}, network.CableDown},
		{"a long cable", "kind = \"delay\"\ncable = 2\ndelay = \"1ms\"", "", [2]int64{1, 8900}, [2]int64{usual, 10000}, network.CableDown},
		{"a bad cable", "kind = \"loss\"\ncable = 2\nloss = 0.5", "", [2]int64{0, 8000}, [2]int64{usual, 10000}, network.CableLoss},
		{"a spine", "kind = \"switch\"\nnode = \"s2\"", "", [2]int64{3000, 7000}, [2]int64{3000, 7000}, network.CableDown},
		{"a leaf", "kind = \"switch\"\nnode = \"s0\"", "", [2]int64{0, 0}, [2]int64{0, 0}, network.CableDown},
		{"a host", "kind = \"host\"\nnode = \"h2\"", "", [2]int64{0, 0}, [2]int64{usual, 10000}, network.CableDown},
		{"a storm of pauses", "kind = \"pause-storm\"\nnode = \"h2\"", "", [2]int64{0, 100}, [2]int64{0, 10000}, network.NumDrops},
		{"a storm, and a watchdog", "kind = \"pause-storm\"\nnode = \"h2\"", "watchdog = \"200us\"", [2]int64{0, 100}, [2]int64{usual, 10000}, network.Watchdog},
		{"a storm that ends", "kind = \"pause-storm\"\nnode = \"h2\"\nuntil = \"700us\"", "", [2]int64{usual, 10000}, [2]int64{usual, 10000}, network.NumDrops},
	} {
		failure := ""
		if test.failure != "" {
			failure = "[[failure]]\nat = \"500us\"\n" + test.failure
		}
		a, b, r := measure(failure, test.more)
		if a < test.first[0] || a > test.first[1] || b < test.second[0] || b > test.second[1] {
			t.Errorf("%s: the flows have %d and %d Mb/s", test.name, a, b)
		}
		for why, n := range r.Totals.Drops {
			if n > 0 != (network.Drop(why) == test.dropped) && !(n > 0 && network.Drop(why) == network.NoRoute) {
				t.Errorf("%s: %d packets are dropped by %v", test.name, n, network.Drop(why))
			}
		}
	}
}

// TestFlapping: a failure that comes again is as many failures.
func TestFlapping(t *testing.T) {
	t.Parallel()
	often := play(t, parsed(t, square+"[[failure]]\ncable = 5\nat = \"100us\"\nuntil = \"1ms\"\nevery = \"300us\"\nfor = \"50us\"\n"))
	var list strings.Builder
	for _, at := range []int{100, 400, 700} {
		fmt.Fprintf(&list, "[[failure]]\ncable = 5\nat = \"%dus\"\nuntil = \"%dus\"\n", at, at+50)
	}
	if each := play(t, parsed(t, square+list.String())); often.Digest != each.Digest || often.Totals != each.Totals {
		t.Errorf("digest %x, and %x of the same failures one by one", often.Digest, each.Digest)
	}
	if never := play(t, parsed(t, square)); often.Digest == never.Digest {
		t.Error("nothing has failed")
	}
}

// TestFailuresAddUp: failures of one cable at the same time add up, and each
// ends when it does.
func TestFailuresAddUp(t *testing.T) {
	t.Parallel()
	type change struct {
		at   Time
		down bool
		network.Condition
	}
	s := parsed(t, square+`
[[failure]]
kind = "rate"
cable = 5
rate = "5Gb/s"
at = "1us"
until = "9us"
[[failure]]
kind = "rate"
cable = 5
rate = "2Gb/s"
at = "2us"
until = "4us"
[[failure]]
kind = "loss"
between = ["s0", "s3"]
loss = 0.5
at = "3us"
until = "9us"
[[failure]]
kind = "loss"
between = ["s3", "s0"]
loss = 0.5
at = "4us"
until = "5us"
[[failure]]
kind = "switch"
node = "s0"
at = "4us"
until = "6us"
[[failure]]
cable = 5
at = "6us"
until = "7us"
`)
	r, err := newRun(&s, nil)
	if err != nil {
		t.Fatal(err)
	}
	var list []trouble
	for i := range s.Failures {
		more, err := r.troubles(&s.Failures[i])
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, more...)
	}
	var got []change
	r.happen(list, func(cable int32, _, now trouble) {
		if cable == 5 {
			got = append(got, change{Time(r.net.Now()), now.down, now.Condition})
		}
	})
	r.net.Run(20_000_000)
	want := []change{
		{1 * us, false, network.Condition{Rate: 5e9}},
		{2 * us, false, network.Condition{Rate: 2e9}},
		{3 * us, false, network.Condition{Rate: 2e9, Loss: 5e8}},
		{4 * us, true, network.Condition{Rate: 5e9, Loss: 75e7}},
		{5 * us, true, network.Condition{Rate: 5e9, Loss: 5e8}},
		{7 * us, false, network.Condition{Rate: 5e9, Loss: 5e8}},
		{9 * us, false, network.Condition{}},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v\nwant %v", got, want)
	}
}

// TestFailureMistakes: all that is wrong with failures is said, with its line.
func TestFailureMistakes(t *testing.T) {
	t.Parallel()
	for failure, want := range map[string]string{
		"kind = \"fire\"":                                     `kind is "fire": there are down, one-way, rate, delay, loss, switch, host, pause-storm`,
		"cable = 8":                                           "there is no cable 8: there are 0 to 7",
		"between = \"h0\"":                                    "is a list of two nodes",
		"between = [\"h0\"]":                                  "between has 1 nodes",
		"between = [\"h0\", \"s9\"]":                          `between is "s9": there are 4 switches, from 0 on`,
		"between = [\"h0\", \"s1\"]":                          "no cable joins them",
		"between = [\"\", \"s1\"]":                            `between is "": it is a host, as h0`,
		"between = [\"n4\", \"s1\"]":                          `no file of the network has a node "4"`,
		"between = [\"h0\", \"s0\"]\ncable = 3":               "take one of them out",
		"kind = \"switch\"":                                   "node says which one",
		"kind = \"switch\"\nnode = \"h0\"":                    `node is "h0": it is a switch, as s3`,
		"kind = \"host\"\nnode = \"s0\"":                      `node is "s0": it is a host, as h0`,
		"kind = \"host\"\ncable = 3":                          "failure 1, host: it has no cable",
		"node = \"h0\"":                                       "failure 1, down: it has no node",
		"rate = \"1Gb/s\"":                                    "failure 1, down: it has no rate",
		"kind = \"rate\"":                                     "rate is 0b/s: it is at least 1Mb/s",
		"kind = \"rate\"\nrate = \"11Gb/s\"":                  "a failure makes no cable faster",
		"kind = \"rate\"\nrate = \"0b/s\"":                    "failure.rate is 0: it is 1Mb/s to the rate of the cable",
		"kind = \"delay\"":                                    "how much longer",
		"kind = \"delay\"\ndelay = \"1s\"":                    "together they are at most 1s",
		"kind = \"loss\"":                                     "above 0 and up to 1",
		"kind = \"loss\"\nloss = 1.5":                         "loss is 1.5: it is a share",
		"at = \"1us\"\nevery = \"1us\"":                       "both or none",
		"at = \"1us\"\nevery = \"1us\"\nfor = \"1us\"":        "it is over before it comes again",
		"at = \"1us\"\nevery = \"2ps\"\nfor = \"1ps\"":        "that is too often",
		"at = \"4ms\"":                                        "the run ends at 4ms",
		"kind = \"switch\"\nnode = \"s0\"\nuntil = \"0.0ns\"": "failure.until is 0",
	} {
		s, err := Parse([]byte(square + "[[failure]]\n" + failure))
		if err == nil {
			err = Check(s)
		}
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "line 2") {
			t.Errorf("%q: %v; want %q", failure, err, want)
		}
	}
	s := parsed(t, strings.Replace(square, "converge", "lossy = true\nconverge", 1)+
		"[[failure]]\ncable = 9\n[[failure]]\ncable = 1\n[[failure]]\nkind = \"pause-storm\"\nnode = \"h0\"\n")
	err := Check(s)
	for _, want := range []string{"line 22: failure 1: there is no cable 9", "line 26: failure 3: there are no pauses with network.lossy"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
	if n := strings.Count(err.Error(), "\n"); n != 1 {
		t.Errorf("%d more lines than mistakes: %v", n, err)
	}
}
