package topofile

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/fabric/topology"
)

// ns3Text writes a network as ns-3 reads it. The number of a node in the file
// is what number says.
func ns3Text(g *topology.Graph, number func(int32) int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %d %d\n", g.Nodes(), g.Switches(), len(g.Links()))
	for s := g.Hosts(); s < g.Nodes(); s++ {
		fmt.Fprintf(&b, "%d ", number(s))
	}
	for _, l := range g.Links() {
		fmt.Fprintf(&b, "\n%d %d %dGbps %dns %g", number(l.A), number(l.B), l.Rate/topology.Gbps, l.Delay/1000, float64(l.Loss)/1e9)
	}
	return b.String()
}

// TestHPCC reads the network of the HPCC paper as its file has it, and with
// nodes in another order.
func TestHPCC(t *testing.T) {
	t.Parallel()
	g, err := topology.HPCC()
	if err != nil {
		t.Fatal(err)
	}
	for name, number := range map[string]func(int32) int{
		"as it is":       func(n int32) int { return int(n) },
		"switches first": func(n int32) int { return int(n+g.Switches()) % int(g.Nodes()) },
		"backwards":      func(n int32) int { return int(g.Nodes() - 1 - n) },
	} {
		got, err := Read(ns3Text(g, number), "")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got.Hosts() != g.Hosts() || got.Nodes() != g.Nodes() || len(got.Links()) != len(g.Links()) {
			t.Fatalf("%s: %d hosts of %d nodes, %d links", name, got.Hosts(), got.Nodes(), len(got.Links()))
		}
		for n := range g.Nodes() {
			node, ok := got.Named(fmt.Sprint(number(n)))
			if !ok || got.Tier(node) != g.Tier(n) || got.IsHost(node) != g.IsHost(n) || got.NameOf(node) != fmt.Sprint(number(n)) {
				t.Fatalf("%s: node %d is %d, %v", name, number(n), node, ok)
			}
		}
		for i, l := range g.Links() {
			a, _ := got.Named(fmt.Sprint(number(l.A)))
			b, _ := got.Named(fmt.Sprint(number(l.B)))
			if k := got.Link(int32(i)); k.A != a || k.B != b || k.Cable != l.Cable {
				t.Fatalf("%s: link %d is %+v, not %+v", name, i, k, l)
			}
		}
	}
}

// TestUnitsOfNS3 reads rates, delays and losses as files write them.
func TestUnitsOfNS3(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]topology.Cable{
		"100Gbps 1000ns 0.000000": {Rate: 100e9, Delay: 1e6},
		"1.5Gb/s 0.001ms 0":       {Rate: 1.5e9, Delay: 1e6},
		"10MB/s 2us 1e-5":         {Rate: 80e6, Delay: 2e6, Loss: 10_000},
		"8000000bps 0.001 1":      {Rate: 8e6, Delay: 1e9, Loss: 1e9},
	} {
		g, err := Read("3 1 2\r\n0\r\n1 0 "+text+"\r\n\r\n0 2 "+text+"\n7 8 and more\n", "")
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		for _, l := range g.Links() {
			if l.Cable != want {
				t.Errorf("%s: %+v", text, l.Cable)
			}
		}
		if n, ok := g.Named("2"); n != 1 || !ok {
			t.Errorf("host 2 of the file is node %d", n)
		}
	}
}

// TestFatTreeOfHTSim reads a file of 128 hosts. It is the fat tree of package
// topology but for the numbers of the core switches.
func TestFatTreeOfHTSim(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/fat_tree_128.topo")
	if err != nil {
		t.Fatal(err)
	}
	g, err := Read(string(text), "")
	if err != nil {
		t.Fatal(err)
	}
	want, err := topology.FatTree(8, topology.Cable{Rate: 100 * topology.Gbps, Delay: topology.Microsecond})
	if err != nil {
		t.Fatal(err)
	}
	const half, cores = 4, 16
	other := func(n int32) int32 { // the node of package topology
		core := n - (g.Nodes() - cores)
		if core < 0 {
			return n
		}
		return g.Nodes() - cores + core%half*half + core/half
	}
	if g.Hosts() != 128 || g.Nodes() != want.Nodes() || len(g.Links()) != len(want.Links()) {
		t.Fatalf("%d hosts of %d nodes, %d links", g.Hosts(), g.Nodes(), len(g.Links()))
	}
	for _, l := range g.Links() {
		i, ok := want.LinkBetween(other(l.A), other(l.B))
		if k := want.Link(i); !ok || k.Cable != l.Cable || g.Tier(l.B) != want.Tier(k.B) {
			t.Fatalf("%+v is not there", l)
		}
	}
}

const tiny = `
# eight to a leaf, two spines
Nodes 32
tiers 2
Podsize 32
Tier 0
Downlink_speed_Gbps 100
Radix_Down 8
Radix_Up 4
Downlink_Latency_ns 1000
Switch_Latency_ns 500
Oversubscribed 1
Queue_Up 1000000

Tier 1
Downlink_speed_Gbps 200
Radix_Down 8
Bundle 2
Downlink_Latency_ns 3000
Switch_Latency_ns 301
`

// TestLeafSpineOfHTSim: two tiers, with bundles, and latencies of switches.
func TestLeafSpineOfHTSim(t *testing.T) {
	t.Parallel()
	g, err := Read(tiny, HTSim)
	if err != nil {
		t.Fatal(err)
	}
	if g.Hosts() != 32 || g.Switches() != 6 || len(g.Links()) != 32+4*2*2 {
		t.Fatalf("%d hosts, %d switches, %d links", g.Hosts(), g.Switches(), len(g.Links()))
	}
	if l := g.Link(0); l.Rate != 100e9 || l.Delay != 1_000_000+250_000 {
		t.Errorf("the cable of a host is %+v", l)
	}
	if l := g.Link(32); l.Rate != 200e9 || l.Delay != 3_000_000+250_000+150_500 {
		t.Errorf("a cable to a spine is %+v", l)
	}
	if ways, err := g.Shortest(nil).Ways(0, 31); ways != 2*2*2 || err != nil {
		t.Errorf("%d ways, %v", ways, err)
	}
}

// TestMistakes: what is wrong is said, with its line.
func TestMistakes(t *testing.T) {
	t.Parallel()
	ns3 := "4 1 3\n3\n0 3 100Gbps 1us 0\n1 3 100Gbps 1us 0\n2 3 100Gbps 1us 0\n"
	for _, test := range []struct{ text, old, by, want string }{
		{ns3, "4 1 3", "", "line 3: an end of a link is \"100Gbps\""}, // what is left begins with 3
		{ns3, "4 1 3", "-4 1 3", "it begins with"},
		{ns3, "4 1 3", "999999999999999 1 3", "line 1: the number of nodes"},
		{ns3, "4 1 3", "4 4 3", "line 1: the number of switches"},
		{ns3, "4 1 3", "4 1 0", "line 1: the number of links"},
		{ns3, "4 1 3", "4 1 4", "line 6: the file ends, and an end of a link should follow"},
		{ns3, "4 1 3", "4 2 3", "line 3: the other end of the link is \"100Gbps\""}, // node 0 is a switch then
		{ns3, "\n3\n", "\n4\n", "line 2: a switch is \"4\": it is 0 to 3"},
		{ns3, "2 3 100Gbps", "2 9 100Gbps", "line 5: the other end of the link is \"9\": it is 0 to 3"},
		{ns3, "2 3 100Gbps", "2 2 100Gbps", "line 5: a link from node 2 to itself"},
		{ns3, "2 3 100Gbps", "2 3 100Gbit", "line 5: rate: \"100Gbit\" has no unit that is known: there are bps"},
		{ns3, "2 3 100Gbps", "2 3 100", "line 5: rate"},
		{ns3, "2 3 100Gbps", "2 3 9Tbps", "line 5: rate: a rate of 9000000000000 bit/s: it is 1 Mb/s to 8 Tb/s"},
		{ns3, "2 3 100Gbps", "2 3 1.2.3Gbps", "line 5: rate: \"1.2.3\" is no number"},
		{ns3, "2 3 100Gbps 1us", "2 3 100Gbps 0.0000001us", "line 5: delay: 0.0000001 is too exact"},
		{ns3, "2 3 100Gbps 1us", "2 3 100Gbps 1.5s", "line 5: delay: a delay of 1500000000000 ps: it is at most 1 s"},
		{ns3, "2 3 100Gbps 1us", "2 3 100Gbps 99999999999999999999999s", "line 5: delay: 99999999999999999999999 is too large"},
		{ns3, "2 3 100Gbps 1us", "2 3 100Gbps -1us", "line 5: delay"},
		{ns3, "2 3 100Gbps 1us 0", "2 3 100Gbps 1us 2", "line 5: error rate: \"2\" is no share"},
		{ns3, "2 3 100Gbps 1us 0", "2 3 100Gbps 1us NaN", "line 5: error rate"},
		{ns3, "2 3 100Gbps 1us 0", "2 3 100Gbps 1us 1e-12", "no multiple of 1e-09"},
		{ns3, "2 3 100Gbps", "0 1 100Gbps", "host 2 has 0 links"},
		{tiny, "Nodes 32", "Nodes", "line 3: a line has a setting and a number"},
		{tiny, "Nodes 32", "Nodes many", "line 3: Nodes is \"many\""},
		{tiny, "Nodes 32", "Hosts 32", "line 3: there is no setting \"Hosts\": the header has Nodes, Tiers, Podsize"},
		{tiny, "Nodes 32", "", "the header does not say Nodes"},
		{tiny, "Nodes 32", "Nodes 64", "two tiers are one pod"},
		{tiny, "Nodes 32", "Nodes 33", "Nodes is a multiple of it"},
		{tiny, "Nodes 32", "Nodes 999999999", "at most 131072"},
		{tiny, "tiers 2", "tiers 3", "nothing is said of Tier 2"},
		{tiny, "tiers 2", "tiers 4", "Tiers is 4: it is 2 or 3"},
		{tiny, "Tier 1", "Tier 0", "line 15: tier 0 is there twice"},
		{tiny, "Tier 1", "Tier 3", "line 15: tier 3: there are 0 to 2"},
		{tiny, "Radix_Up 4", "Radix_Up 0", "line 9: Radix_Up is 0: it is at least 1"},
		{tiny, "Radix_Up 4", "Radix_Up 3", "line 15: tier 1: a Bundle of 2: the Radix_Up of tier 0, 3, is a multiple of it"},
		{tiny, "Radix_Up 4", "Radix_Up 8", "line 6: tier 0: Oversubscribed is 1, and its ports have 800 Gb/s down and 1600 Gb/s up"},
		{tiny, "Radix_Up 4", "", "line 6: tier 0 does not say Radix_Up"},
		{tiny, "Radix_Up 4", "Radix_Up 4\nRadix_Up 4", "line 10: Radix_Up is there twice"},
		{tiny, "Radix_Up 4", "Radix 4", "line 9: there is no setting \"Radix\": a tier has"},
		{tiny, "Radix_Down 8\nBundle", "Radix_Down 1000000000\nBundle", "line 15: tier 1: a switch with 1000000000 ports"},
		{tiny, "Radix_Down 8\nBundle", "Radix_Down 4\nBundle", "line 15: tier 1: Radix_Down is 4: it has 4 switches below it, with 2 cables each, so it is 8"},
		{tiny, "Bundle 2", "Bundle 2\nRadix_Up 4", "no tier is above it"},
		{tiny, "Downlink_speed_Gbps 200", "Downlink_speed_Gbps 9000", "a rate of 9000000000000 bit/s"},
		{tiny, "Downlink_Latency_ns 3000", "Downlink_Latency_ns 1000000001", "line 15: tier 1: a delay of"},
		{tiny, tiny, "", "there is nothing in it"},
		{tiny, tiny, "[network]", "it begins with \"[network]\""},
	} {
		if strings.Count(test.text, test.old) != 1 {
			t.Fatalf("%q is there %d times", test.old, strings.Count(test.text, test.old))
		}
		text := strings.Replace(test.text, test.old, test.by, 1)
		if _, err := Read(text, ""); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q by %q: %v; want %q", test.old, test.by, err, test.want)
		}
	}
	for text, want := range map[string][]string{
		strings.ReplaceAll(ns3, "100Gbps", "fast"):  {"line 3: rate", "line 4: rate", "line 5: rate"},
		strings.ReplaceAll(tiny, "Radix_", "Ports"): {"line 8: there is", "line 9: there is", "line 17: there is"},
	} {
		_, err := Read(text, "")
		for _, want := range want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v; want %q", err, want)
			}
		}
	}
	if _, err := Read(tiny, "gml"); err == nil || !strings.Contains(err.Error(), "there are ns3, htsim") {
		t.Errorf("an unknown format: %v", err)
	}
}

// FuzzRead: any text is read, or refused with an error, without a panic. What
// was read has the bounds of package topology.
func FuzzRead(f *testing.F) {
	f.Add(tiny)
	f.Add("4 1 3\n3\n0 3 100Gbps 1us 0\n1 3 10Gbps 0.1ms 1e-3\n2 3 100MB/s 1 0\n")
	f.Add("Nodes 8\nTiers 3\nPodsize 4\nTier 0\nDownlink_speed_Gbps 200\nRadix_Down 2\nRadix_Up 2\nDownlink_Latency_ns 1\nTier 1\nDownlink_speed_Gbps 200\n" +
		"Radix_Down 2\nRadix_Up 4\nDownlink_Latency_ns 1\nTier 2\nDownlink_speed_Gbps 100\nRadix_Down 4\nDownlink_Latency_ns 1\nBundle 2\n")
	f.Fuzz(func(t *testing.T, text string) {
		g, err := Read(text, "")
		if err != nil {
			return
		}
		if g.Nodes() > topology.MaxNodes || g.Switches() > topology.MaxSwitches || len(g.Links()) > topology.MaxLinks {
			t.Errorf("%d nodes, %d switches, %d links", g.Nodes(), g.Switches(), len(g.Links()))
		}
		for i, l := range g.Links() {
			if l.Rate < leastRate || l.Rate > mostRate || l.Delay < 0 || l.Delay > topology.MaxDelay {
				t.Errorf("link %d is %+v", i, l)
			}
		}
	})
}
