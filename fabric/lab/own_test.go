package lab

import (
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/fabric/network"
)

const ownNetwork = `
[network]
topology = "links"
hosts    = 8
switches = 4
routing  = "spray"
[[network.link]]
from = "h0-3"
to   = "s0"
[[network.link]]
from = "h4-7"
to   = "s1"
[[network.link]]
from = "s0-1"
to   = "s2-3"
`

// TestOwnNetwork: a leaf-spine that is written link by link is that which the
// topology makes, to the last event; and what differs of a cable shows.
func TestOwnNetwork(t *testing.T) {
	t.Parallel()
	const flows = "[[traffic]]\nkind = \"permutation\"\nbytes = \"256KiB\"\n"
	parsed := func(text string) Scenario {
		t.Helper()
		s, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	own := play(t, parsed(ownNetwork+flows))
	made := play(t, parsed("[network]\ntopology = \"leaf-spine\"\nleaves = 2\nspines = 2\nhosts_per_leaf = 4\nrouting = \"spray\"\n"+flows))
	if own.Digest != made.Digest {
		t.Errorf("digest %016x, and %016x of the same network", own.Digest, made.Digest)
	}
	slow := play(t, parsed(strings.Replace(ownNetwork, `from = "h4-7"`, `rate = "10Gb/s"`+"\n"+`from = "h4-7"`, 1)+flows))
	if slow.End < 5*own.End {
		t.Errorf("with slow cables it ends at %v, and without at %v", slow.End, own.End)
	}
	thick := parsed(strings.Replace(ownNetwork, `from = "s0-1"`, "count = 3\n"+`from = "s0-1"`, 1) + flows)
	if g, err := thick.Network.graph(); err != nil || len(g.Links()) != 8+4*3 {
		t.Errorf("%d links, %v", len(g.Links()), err)
	}
	lossy := play(t, parsed(strings.Replace(ownNetwork, `from = "s0-1"`, "loss = 0.01\n"+`from = "s0-1"`, 1)+flows))
	if lossy.Totals.Dropped() == 0 || lossy.Stats.Retransmits == 0 {
		t.Error("cables that lose packets lose none")
	}
	bad := play(t, parsed(strings.Replace(ownNetwork, `from = "s0-1"`, "ber = 1e-7\n"+`from = "s0-1"`, 1)+flows))
	if n := bad.Totals.Drops[network.Corrupted]; n == 0 || n != bad.Totals.Dropped() {
		t.Errorf("of %d packets that were dropped %d had wrong bits", bad.Totals.Dropped(), n)
	}
}

// What is wrong with a link is said with its line.
func TestOwnNetworkMistakes(t *testing.T) {
	t.Parallel()
	for want, change := range map[string][2]string{
		`line 7: network.link 1: from is "h0-8": there are 8 hosts`: {`"h0-3"`, `"h0-8"`},
		`line 10: network.link 2: to is "s4": there are 4 switches`: {`"s1"`, `"s4"`},
		`line 7: network.link 1: from is "0": it is a host`:         {`"h0-3"`, `"0"`},
		`line 7: network.link 1: from is "h3-0"`:                    {`"h0-3"`, `"h3-0"`},
		`line 7: network.link 1: to is "s99999999999999999999"`:     {`"s0"`, `"s99999999999999999999"`},
		"host 4 has 0 links":               {`"h4-7"`, `"h5-7"`},
		"at least 2 and 1":                 {"switches = 4", "# "},
		"network.switches is 99999999":     {"switches = 4", "switches = 99999999"},
		"line 13: network.link 3: loss is": {`from = "s0-1"`, "loss = 2.0\n" + `from = "s0-1"`},
		"line 13: network.link 3: ber is":  {`from = "s0-1"`, "ber = 2.0\n" + `from = "s0-1"`},
		"burst is -1":                      {`from = "s0-1"`, "burst = -1\n" + `from = "s0-1"`},
		"then at most 3 of 4 are lost":     {`from = "s0-1"`, "loss = 0.9\nburst = 3\n" + `from = "s0-1"`},
		"count is -1":                      {`from = "s0-1"`, "count = -1\n" + `from = "s0-1"`},
		"rate is":                          {`from = "s0-1"`, "rate = \"1b/s\"\n" + `from = "s0-1"`},
		"delay is at most 1s":              {`from = "s0-1"`, "delay = \"2s\"\n" + `from = "s0-1"`},
		"from node 8 to itself":            {`to   = "s2-3"`, `to   = "s0"`},
		"there is no setting":              {`from = "s0-1"`, "speed = 1\n" + `from = "s0-1"`},
		"a node has at most 65535":         {`from = "s0-1"`, "count = 65535\n" + `from = "s0-1"`},
	} {
		text := strings.Replace(ownNetwork, change[0], change[1], 1) + "[[traffic]]\nkind = \"permutation\"\nbytes = \"1KiB\"\n"
		s, err := Parse([]byte(text))
		if err == nil {
			_, err = Run(t.Context(), s)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", change, err, want)
		}
	}
}

// TestOwnFlows: a list has its flows begin when it says, of the sizes and
// operations that it says.
func TestOwnFlows(t *testing.T) {
	t.Parallel()
	s := Scenario{Network: Network{Topology: "star", Hosts: 4}, Traffic: []Traffic{{
		Kind: "list", Start: 10 * us, Op: "send",
		List: "from,to,bytes,start,op,src_port\n# comment\n0,1,64KiB,1us,write,\n2,3,1000,0us,,50000\n1,0,5,2.5us,read,\n",
	}}}
	r := play(t, s)
	if len(r.Flows) != 3 {
		t.Fatalf("%d flows", len(r.Flows))
	}
	for i, want := range []Flow{
		{Src: 2, Dst: 3, Bytes: 1000, Start: 10 * us, op: 1, port: 50000}, {Src: 0, Dst: 1, Bytes: 65536, Start: 11 * us, op: 0},
		{Src: 1, Dst: 0, Bytes: 5, Start: 12*us + us/2, op: 2},
	} {
		f := r.Flows[i]
		if f.Src != want.Src || f.Dst != want.Dst || f.Bytes != want.Bytes || f.Start != want.Start || f.op != want.op || f.port != want.port || f.End == 0 {
			t.Errorf("flow %d is %+v", i, f)
		}
	}
	for list, want := range map[string]string{
		"":                                   "list has the flows",
		"from,to\n0,1\n":                     `"bytes" is missing`,
		"from,to,bytes,x\n":                  `no column "x"`,
		"from,to,bytes,to\n":                 "twice",
		"from,to,bytes\n":                    "no flow",
		"from,to,bytes\n0,4,1\n":             `line 2: to: "4" is no host`,
		"from,to,bytes\n0,1,1\n1,1,1\n":      "line 3: from host 1 to itself",
		"from,to,bytes\n0,1,0\n":             "line 2: bytes",
		"from,to,bytes\n0,1,-1\n":            "line 2: bytes",
		"from,to,bytes\n0,1,99999999TiB\n":   "line 2: bytes",
		"from,to,bytes\n0,1\n":               "line 2",
		"from,to,bytes,op\n0,1,1,push\n":     `line 2: op: it is "push"`,
		"from,to,bytes,start\n0,1,1,-1us\n":  "line 2: start",
		"from,to,bytes,src_port\n0,1,1,80\n": "line 2: src_port",
		"from,to,bytes\n0,1,\"1\n":           "line",
	} {
		s.Traffic[0].List = list
		if _, err := Run(t.Context(), s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", list, err, want)
		}
	}
	for file, ok := range map[string]bool{"flows.csv": true, "a/b.csv": true, "../x": false, "/etc/passwd": false} {
		s := Scenario{Traffic: []Traffic{{Kind: "incast"}, {Kind: "list", File: file}}}
		if got, err := s.Files(); (err == nil) != ok || ok && got["traffic.1.list"] != file {
			t.Errorf("%s: %v, %v", file, got, err)
		}
	}
}
