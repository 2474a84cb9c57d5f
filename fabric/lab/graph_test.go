package lab

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/fabric/topology"
)

func parsed(t *testing.T, text string) Scenario {
	t.Helper()
	s, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// starText is a star of three hosts as ns-3 has it, whose switch is node 1.
const starText = "4 1 3\n1\n0 1 100Gbps 1us 0\n2 1 100Gbps 1us 0\n3 1 100Gbps 1us 0\n"

// TestNetworkOfAFile: a network that is read from a file is that which the
// topology makes, to the last event, and the scenario is whole with its text.
func TestNetworkOfAFile(t *testing.T) {
	t.Parallel()
	const flows = "[[traffic]]\nkind = \"permutation\"\nbytes = \"256KiB\"\n"
	tree, err := os.ReadFile("../topology/topofile/testdata/fat_tree_128.topo")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ file, text, format, same string }{
		{"star.txt", starText, "ns3", "topology = \"star\"\nhosts = 3\n"},
		{"star.txt", strings.ReplaceAll(starText, "\n", "\r\n"), "", "topology = \"star\"\nhosts = 3\n"},
		{"a/fat_tree_128.topo", string(tree), "", ""},
	} {
		text := "[network]\ntopology = \"file\"\nfile = \"" + test.file + "\"\n"
		if test.format != "" {
			text += "format = \"" + test.format + "\"\n"
		}
		s := parsed(t, text+flows)
		files, err := s.Files()
		if err != nil || len(files) != 1 || files["network.text"] != test.file {
			t.Fatalf("%v, %v", files, err)
		}
		if _, err := Run(t.Context(), s); err == nil || !strings.Contains(err.Error(), "network.file says in which file") {
			t.Errorf("without its text: %v", err)
		}
		whole, err := Set([]byte(text+flows), "network.text", test.text)
		if err != nil {
			t.Fatal(err)
		}
		s = parsed(t, string(whole))
		if files, err := s.Files(); err != nil || len(files) != 0 {
			t.Errorf("%v, %v", files, err)
		}
		got := play(t, s)
		if test.same == "" {
			if got.Hosts != 128 || len(got.Flows) != 128 {
				t.Errorf("%s: %d hosts, %d flows", test.file, got.Hosts, len(got.Flows))
			}
			continue
		}
		if want := play(t, parsed(t, "[network]\n"+test.same+flows)); got.Digest != want.Digest {
			t.Errorf("%s: digest %016x, and %016x of the same network", test.file, got.Digest, want.Digest)
		}
	}
}

// TestNetworkOfAFileMistakes: errors name the line of the scenario and of the
// file.
func TestNetworkOfAFileMistakes(t *testing.T) {
	t.Parallel()
	good := Network{Topology: "file", File: "star.txt", Text: starText}
	for want, change := range map[string]func(*Network){
		"network.file, star.txt: line 4: rate":                  func(n *Network) { n.Text = strings.Replace(starText, "2 1 100Gbps", "2 1 fast", 1) },
		"network.file, text: topofile: it begins":               func(n *Network) { n.Text, n.File = "?", "" },
		"network.format is \"gml\": there are ns3, htsim":       func(n *Network) { n.Format = "gml" },
		"line 5: a line has a setting and a number":             func(n *Network) { n.Format = "htsim" },
		"a program has built the network":                       func(n *Network) { n.Graph = new(topology.Graph) },
		"network is too large":                                  func(n *Network) { n.Text = wide },
		"the network of the file: topology: host 2 has 0 links": func(n *Network) { n.Text = strings.Replace(starText, "\n3 1", "\n2 1", 1) },
	} {
		s := Scenario{Network: good, Traffic: []Traffic{{Kind: "permutation", Bytes: 1}}}
		change(&s.Network)
		if err := Check(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
	_, err := Parse([]byte("[network]\ntopology = \"star\"\nfile = \"x\"\n"))
	if err == nil || !strings.Contains(err.Error(), "network, star: it has no file") {
		t.Error(err)
	}
	s := parsed(t, "[network]\ntopology = \"file\"\nfile = \"../x\"\n")
	if _, err := s.Files(); err == nil || !strings.Contains(err.Error(), "line 3: network.file is \"../x\"") {
		t.Error(err)
	}
}

// wide is a network whose tables would not fit: 60000 hosts at 12000 switches.
const wide = "Nodes 60000\nTiers 2\nPodsize 60000\nTier 0\nDownlink_speed_Gbps 100\nRadix_Down 5\nRadix_Up 1\nDownlink_Latency_ns 1\n" +
	"Tier 1\nDownlink_speed_Gbps 100\nRadix_Down 12000\nDownlink_Latency_ns 1\n"

// TestNetworkOfAProgram: Run takes a network that a program has built.
func TestNetworkOfAProgram(t *testing.T) {
	t.Parallel()
	g, err := topology.Star(3, topology.Cable{Rate: 100 * topology.Gbps, Delay: topology.Microsecond})
	if err != nil {
		t.Fatal(err)
	}
	traffic := []Traffic{{Kind: "permutation", Bytes: 256 << 10}}
	got := play(t, Scenario{Network: Network{Graph: g}, Traffic: traffic})
	if want := play(t, Scenario{Network: Network{Topology: "star", Hosts: 3}, Traffic: traffic}); got.Digest != want.Digest {
		t.Errorf("digest %016x, and %016x of the same network", got.Digest, want.Digest)
	}
	var b bytes.Buffer
	if _, err := got.WriteTo(&b); err != nil || !strings.Contains(b.String(), "3 hosts") {
		t.Errorf("%v\n%s", err, b.String())
	}
}
