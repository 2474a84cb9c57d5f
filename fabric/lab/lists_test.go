package lab

import (
	"strings"
	"testing"
)

// TestNS3List: flows of ns-3's HPCC go at their times and in their classes, of
// which RoCE's has its own DSCP.
func TestNS3List(t *testing.T) {
	t.Parallel()
	s := Scenario{Network: Network{Topology: "star", Hosts: 4, Profile: "hpcc-sim"}, Traffic: []Traffic{{
		Kind: "list", Format: "ns3", Rebase: true, Start: 5 * us,
		List: "2\n2 1 3 100 20000 2.000001\n3 1 1 100 5000 2\n",
	}}}
	r := play(t, s)
	if len(r.Flows) != 2 {
		t.Fatalf("%d flows", len(r.Flows))
	}
	for i, want := range []Flow{{Src: 3, Dst: 1, Bytes: 5000, Start: 5 * us, class: 9}, {Src: 2, Dst: 1, Bytes: 20000, Start: 6 * us, class: 27}} {
		f := r.Flows[i]
		if f.Src != want.Src || f.Dst != want.Dst || f.Bytes != want.Bytes || f.Start != want.Start || f.class != want.class || f.End == 0 {
			t.Errorf("flow %d is %+v", i, f)
		}
	}
	for list, want := range map[string]string{
		"2\n2 9 3 100 20000 2\n2 7 3 1 1 2\n": "list: line 2: to: \"9\" is no host: there are 0 to 3\nline 3: to: \"7\"",
		"1\n2 1 3 100 0 2\n":                  "line 2: bytes is 0",
	} {
		s.Traffic[0].List = list
		if err := Check(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", list, err, want)
		}
	}
	s.Network.Profile = "spectrum"
	s.Traffic[0].List = "1\n2 1 5 100 1 2\n"
	if err := Check(s); err == nil || !strings.Contains(err.Error(), "line 2: priority group 5: no DSCP leads to this class of switches: there are 0, 3, 6") {
		t.Errorf("%v", err)
	}
}

// TestListOfANetworkOfAFile: a list names hosts as the file of the network
// does, where switches stand among them.
func TestListOfANetworkOfAFile(t *testing.T) {
	t.Parallel()
	s := Scenario{Network: Network{Topology: "file", Text: starText, Profile: "hpcc-sim"}, Traffic: []Traffic{{
		Kind: "list", Format: "ns3", List: "2\n3 0 3 100 20000 0\n2 3 3 100 5000 0\n",
	}}}
	r := play(t, s)
	if a, b := r.Flows[0], r.Flows[1]; a.Src != 2 || a.Dst != 0 || b.Src != 1 || b.Dst != 2 {
		t.Errorf("%+v, %+v", a, b)
	}
	s.Traffic[0].List = "1\n3 1 3 100 20000 0\n"
	if err := Check(s); err == nil || !strings.Contains(err.Error(), `list: line 2: to: "1" is no host in the file of the network`) {
		t.Errorf("%v", err)
	}
}

// TestHTSimList: triggers start flows after others, by what the sender has or
// by what the receiver has.
func TestHTSimList(t *testing.T) {
	t.Parallel()
	const list = `Nodes 4
Connections 7
Triggers 3
1->0 id 1 start 0 size 200000 send_done_trigger 7
2->0 id 2 start 0 size 200000 recv_done_trigger 7
3->0 id 3 trigger 7 size 1000 send_done_trigger 8
0->1 id 4 trigger 7 size 1000 send_done_trigger 8
0->2 id 5 trigger 8 size 1000
0->3 id 6 trigger 8 size 1000 recv_done_trigger 9
1->3 id 7 trigger 9 size 1000
trigger id 7 barrier count 2
trigger id 8 multishot
trigger id 9 oneshot
`
	s := Scenario{Cores: 4, Network: Network{Topology: "star", Hosts: 4}, Traffic: []Traffic{{Kind: "list", Format: "htsim", List: list}}}
	for _, op := range operations {
		s.Traffic[0].Op = op
		r := play(t, s)
		at := map[[2]int]*Flow{}
		for _, f := range r.Flows {
			at[[2]int{f.Src, f.Dst}] = f
		}
		first, second := at[[2]int{1, 0}], at[[2]int{2, 0}]
		if len(r.Flows) != 7 {
			t.Fatalf("%s: %d flows", op, len(r.Flows))
		}
		after := at[[2]int{3, 0}].Start
		if after <= first.Start || after < first.End && after >= second.End || after > max(first.End, second.End) || at[[2]int{0, 1}].Start != after {
			t.Errorf("%s: the barrier is over at %v, flows had ended at %v and %v", op, after, first.End, second.End)
		}
		ends := []Time{at[[2]int{3, 0}].End, at[[2]int{0, 1}].End}
		starts := []Time{at[[2]int{0, 2}].Start, at[[2]int{0, 3}].Start}
		if starts[0] != min(ends[0], ends[1]) || starts[1] != max(ends[0], ends[1]) {
			t.Errorf("%s: flows begin at %v, those before have ended at %v", op, starts, ends)
		}
		last, before := at[[2]int{1, 3}], at[[2]int{0, 3}]
		if last.Start <= before.Start || last.Start > before.End || op != "read" && last.Start == before.End {
			t.Errorf("%s: the receiver has all at %v, of a flow from %v to %v", op, last.Start, before.Start, before.End)
		}
	}
	s.Adapter.Shared = true
	if err := Check(s); err == nil || !strings.Contains(err.Error(), "take adapter.shared out") {
		t.Errorf("%v", err)
	}
	s.Adapter.Shared = false
	s.Traffic[0].List = "0->1 start 0 size 0\n"
	if err := Check(s); err == nil || !strings.Contains(err.Error(), "line 1: without bytes it goes on until the end: set until") {
		t.Errorf("%v", err)
	}
	s.Until = 100 * us
	s.Traffic[0].List += "2->3 start 200000000 size 1\n"
	if err := Check(s); err == nil || !strings.Contains(err.Error(), "line 2: it starts at 200us, and the run ends at 100us") {
		t.Errorf("%v", err)
	}
	s.Traffic[0].List = "0->1 start 0 size 0\n2->3 trigger 1 size 1\n1->2 start 0 size 5 send_done_trigger 1\ntrigger id 1 oneshot\n"
	if r := play(t, s); len(r.Flows) != 3 || r.Flows[0].Measured == 0 {
		t.Error("the flow without an end has not gone on")
	}
	s.Traffic[0].Format = "csvv"
	if err := Check(s); err == nil || !strings.Contains(err.Error(), `format is "csvv": there are csv, ns3, htsim (do you mean csv?)`) {
		t.Errorf("%v", err)
	}
}

// A trigger that nothing activates leaves flows that never begin: that is an
// error at the limit, not a run without an end.
func TestTriggerThatNothingActivates(t *testing.T) {
	t.Parallel()
	s := Scenario{Limit: 100 * us, Network: Network{Topology: "star", Hosts: 4}, Traffic: []Traffic{{Kind: "list", Format: "htsim",
		List: "0->1 start 0 size 5\n2->3 trigger 1 size 1\ntrigger id 1 oneshot\n"}}}
	if _, err := Run(t.Context(), s); err == nil || !strings.Contains(err.Error(), "1 flows have not completed at the limit") {
		t.Errorf("%v", err)
	}
}
