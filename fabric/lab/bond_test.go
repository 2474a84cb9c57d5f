package lab

import (
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/fabric/network"
)

// dual is four hosts with a cable to each of two leaves, which a spine joins.
// Cables 0 to 3 go to the first leaf, 4 to 7 to the second.
const dual = `
until = "4ms"
[network]
topology = "links"
hosts = 4
switches = 3
rate = "10Gb/s"
converge = "50us"
[[network.link]]
from = "h0-3"
to = "s0"
[[network.link]]
from = "h0-3"
to = "s1"
[[network.link]]
from = "s0-1"
to = "s2"
[adapter]
timeout = 8
control = "dcqcn"
`

// TestSeveralCables: flows of a host with two cables are divided among them by
// their hash, and all go by the other one when one is down.
func TestSeveralCables(t *testing.T) {
	t.Parallel()
	flows := strings.Repeat("[[traffic]]\nkind = \"flow\"\nfrom = 0\nto = 1\n", 12)
	rate := func(more string) (Rate, *Result) {
		t.Helper()
		r := play(t, parsed(t, "warm = \"1500us\"\n"+dual+flows+more))
		_, sum, _ := r.Rates()
		return sum, r
	}
	both, r := rate("")
	if both < 14*Gbps || both > 20*Gbps {
		t.Errorf("two cables of 10 Gb/s carry %v", both)
	}
	if n := r.Totals.Dropped(); n != 0 {
		t.Errorf("%d packets are dropped", n)
	}
	for name, failure := range map[string]string{
		"the first":  "between = [\"h0\", \"s0\"]\n",
		"the second": "cable = 4\n",
		"far away":   "between = [\"s1\", \"h1\"]\n",
		"a leaf":     "kind = \"switch\"\nnode = \"s0\"\n",
	} {
		sum, r := rate("[[failure]]\nat = \"200us\"\n" + failure)
		if sum < 7*Gbps || sum > 10*Gbps {
			t.Errorf("%s is down: %v", name, sum)
		}
		for _, f := range r.Flows {
			if r.Rate(f) == 0 {
				t.Errorf("%s is down: a flow stands still", name)
			}
		}
		if r.Totals.Drops[network.CableDown] == 0 {
			t.Errorf("%s is down: nothing was lost", name)
		}
	}
	if sum, _ := rate("[[failure]]\nkind = \"host\"\nnode = \"h1\"\n"); sum != 0 {
		t.Errorf("the host is deaf, and takes %v", sum)
	}
}

// TestSeveralCablesInParts: with several cables the same happens on several
// cores, with failures and all kinds of routes.
func TestSeveralCablesInParts(t *testing.T) {
	t.Parallel()
	for _, routing := range []string{"ecmp", "spray", "flowlet", "least-queue"} {
		for _, upDown := range []string{"", "up_down = true\n"} {
			text := strings.Replace(dual, "converge", upDown+"routing = \""+routing+"\"\nconverge", 1) +
				"[[traffic]]\nkind = \"all-to-all\"\nbytes = \"200KiB\"\n[[traffic]]\nkind = \"incast\"\nsenders = 3\n" +
				"[[failure]]\nbetween = [\"h0\", \"s0\"]\nat = \"100us\"\nevery = \"400us\"\nfor = \"90us\"\n" +
				"[[failure]]\nkind = \"one-way\"\nbetween = [\"h1\", \"s1\"]\nat = \"1ms\"\nuntil = \"2ms\"\n"
			one := play(t, parsed(t, text))
			for cores := 2; cores <= 3; cores++ {
				s := parsed(t, text)
				s.Cores = cores
				if r := play(t, s); r.Digest != one.Digest || r.Totals != one.Totals || r.Stats != one.Stats {
					t.Errorf("%s %s: digest %x, and %x on %d cores", routing, upDown, one.Digest, r.Digest, cores)
				}
			}
		}
	}
}

// TestSeveralCablesOfAFile: in a file of ns-3 hosts may have several cables.
func TestSeveralCablesOfAFile(t *testing.T) {
	t.Parallel()
	const text = "5 2 6\n0 4\n1 0 25Gbps 1us 0\n1 4 25Gbps 1us 0\n2 0 25Gbps 1us 0\n2 4 25Gbps 1us 0\n3 0 25Gbps 1us 0\n3 4 25Gbps 1us 0\n"
	s := Scenario{Network: Network{Topology: "file", Text: text}, Traffic: []Traffic{{Kind: "all-to-all", Bytes: 100_000}},
		Failures: []Failure{{Between: []string{"n1", "n4"}, At: 20 * us}}}
	r := play(t, s)
	if done, failed, _ := r.Done(); r.Hosts != 3 || done != 6 || failed != 0 {
		t.Errorf("%d hosts, %d flows, %d failed", r.Hosts, done, failed)
	}
}
