package lab

import (
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/fabric/network"
)

// What a scenario says is lost is lost once, whatever the operation, and what
// it says is marked comes marked, on any number of cores.
func TestLossesAndMarks(t *testing.T) {
	t.Parallel()
	for _, op := range operations {
		s := Scenario{Cores: 1, Network: Network{Topology: "star", Hosts: 4}, Adapter: Adapter{MTU: 1024},
			Traffic: []Traffic{{Kind: "flow", From: 0, To: 3, Bytes: 100 << 10, Op: op}, {Kind: "incast", Senders: 3, Bytes: 50 << 10, Op: op}},
			Losses:  []Packets{{Flow: 0, Packets: "3 17-20 99"}, {Flow: 2, Packets: "0 49"}},
			Marks:   []Packets{{Flow: 0, Packets: "30-32"}, {Flow: 3, Packets: "7"}}}
		s.Output.Record = true
		r := play(t, s)
		if n := r.Totals.Drops[network.CableLoss]; n != 8 || r.Totals.Dropped() != 8 {
			t.Errorf("%s: %d packets were lost, want 8", op, n)
		}
		if r.Stats.ECNMarked != 4 || r.Stats.CNPsReceived == 0 && op != "read" || r.Unsent != 0 {
			t.Errorf("%s: %d packets came marked, %d notifications, %d were never sent", op, r.Stats.ECNMarked, r.Stats.CNPsReceived, r.Unsent)
		}
		for i, again := range []bool{true, false, true, false} {
			c := r.Flows[i].Counters
			if (c.Retransmits+c.ReadReplays > 0) != again || (c.Marked > 0) != (i == 0 || i == 3) {
				t.Errorf("%s: flow %d: %+v", op, i, c)
			}
		}
		s.Cores = 3
		if other := play(t, s); other.Digest != r.Digest {
			t.Errorf("%s: on three cores the digest is %x, on one %x", op, other.Digest, r.Digest)
		}
		if done, _, _ := r.Done(); done != 4 {
			t.Errorf("%s: %d flows have completed", op, done)
		}
	}
}

// Packets that no flow sends are said.
func TestLossesThatNeverCome(t *testing.T) {
	t.Parallel()
	s, err := Parse([]byte("[network]\ntopology = \"star\"\n[[traffic]]\nkind = \"flow\"\nto = 1\nbytes = \"10KB\"\n[[loss]]\nflow = 0\npackets = \"1 7\"\n[[mark]]\nflow = 5\npackets = \"0-2\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	r := play(t, s)
	var text strings.Builder
	r.WriteTo(&text)
	if r.Unsent != 4 || !strings.Contains(text.String(), "4 packets were never sent") || r.Summary().Unsent != 4 {
		t.Errorf("%d packets\n%s", r.Unsent, &text)
	}
}

func TestLossMistakes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"[[loss]]\nflow = 0":                                           `line 7: loss 1: packets says which`,
		"[[loss]]\nflow = -1\npackets = \"1\"":                         `line 7: loss 1: flow is -1`,
		"[[mark]]\npackets = \"x\"":                                    `line 7: mark 1: packets: "x": they are numbers`,
		"[[mark]]\npackets = \"3-1\"":                                  `"3-1": they are numbers`,
		"[[loss]]\npackets = \"8388608\"":                              `"8388608": they are numbers from 0 to 8388607`,
		"[[loss]]\npackets = \"0-1048575\"\n[[mark]]\npackets = \"0\"": `mark 1: packets: with what stands before it "0" is more than 1048576 packets`,
		"[[loss]]\npackets = \"1\"\n[adapter]\nshared = true":          `adapter.shared has flows share connections`,
		"[[loss]]\npacket = \"1\"":                                     `[[loss]] has flow, packets`,
		"[[loss]]\npackets = 1":                                        `must be a text`,
	} {
		s, err := Parse([]byte("[network]\ntopology = \"star\"\n[[traffic]]\nkind = \"flow\"\nto = 1\nbytes = \"1KB\"\n" + text))
		if err == nil {
			err = Check(s)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; it should say %s", text, err, want)
		}
	}
}
