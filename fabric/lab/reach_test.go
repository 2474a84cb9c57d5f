package lab

import (
	"context"
	"strings"
	"testing"
)

// TestNoWay: traffic between hosts that have no way to each other is refused
// before the run, and what has one is played.
func TestNoWay(t *testing.T) {
	t.Parallel()
	const next = ": without spines the rails are apart: set network.spines, or take hosts of one rail, as in hosts = \"0-12/4\""
	reduce := func() *tracer {
		return new(tracer).node(1, etCollective, 0, nil, "comm_type", etAllReduce, "comm_size", 4096, "pg_name", "")
	}
	network := Network{Topology: "rails", Machines: 4, GPUs: 4}
	for want, traffic := range map[string]Traffic{
		"from host 0 to host 5":  {Kind: "flow", To: 5, Bytes: 9},
		"from host 3 to host 2":  {Kind: "list", List: "from,to,bytes\n1,5,9\n3,2,9\n"},
		"from host 0 to host 1":  {Kind: "ring", Bytes: 9},
		"from host 4 to host 9":  {Kind: "hierarchical", Group: 2, Hosts: "4,8,12,9", Bytes: 9},
		"from host 2 to host 3":  {Kind: "load", Load: .1, Bytes: 9, Until: us, Hosts: "2,6,3"},
		"from host 0 to host 13": {Kind: "bursts", Load: .1, Bytes: 9, Until: us, Senders: 1, Hosts: "0,13"},
		"from host 5 to host 0":  {Kind: "incast", Senders: 1, Bytes: 9, Hosts: "0,5"},
		"from host 2 to host 7":  {Kind: "all-to-all", Bytes: 9, Hosts: "2,7"},
		"from host 1 to host 6":  {Kind: "chakra", Hosts: "1,6", List: packed(reduce(), reduce())},
		"from host 9 to host 10": {Source: func(s *Source) { s.Start(FlowSpec{Src: 9, Dst: 10, Bytes: 9}) }},
	} {
		s := Scenario{Network: network, Traffic: []Traffic{traffic}}
		err := Check(s)
		if traffic.Source != nil { // it says so when it is asked
			_, err = Run(context.Background(), s)
		}
		if err == nil || !strings.Contains(err.Error(), "there is no way "+want+next) {
			t.Errorf("%s: %v; it should say %q", traffic.Kind, err, want)
		}
	}
	for _, traffic := range []Traffic{
		{Kind: "ring", Bytes: 999, Hosts: "0-12/4"},
		{Kind: "flow", From: 1, To: 9, Bytes: 9},
	} {
		if r := play(t, Scenario{Network: network, Traffic: []Traffic{traffic}}); r.Totals.Dropped() > 0 {
			t.Errorf("%s: %d packets were dropped", traffic.Kind, r.Totals.Dropped())
		}
	}
	links := Network{Topology: "links", Hosts: 4, Switches: 2, Links: []Link{{From: "h0", To: "s0"}, {From: "h1", To: "s0"}, {From: "h2", To: "s1"}, {From: "h3", To: "s1"}}}
	err := Check(Scenario{Network: links, Traffic: []Traffic{{Kind: "permutation", Bytes: 9}}})
	if err == nil || !strings.Contains(err.Error(), "they must be joined by cables and switches") {
		t.Errorf("two stars: %v", err)
	}
}
