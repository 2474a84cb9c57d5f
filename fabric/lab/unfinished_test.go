package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// playEarly plays a scenario that ends early, on one core and on three, and
// returns its result and what is written of it.
func playEarly(t *testing.T, s Scenario, want string) (r *Result, text string) {
	t.Helper()
	for _, cores := range []int{1, 3} {
		s.Cores = cores
		var err error
		var b bytes.Buffer
		if r, err = Run(t.Context(), s); r == nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Fatalf("result %v, %v; it should say %q", r != nil, err, want)
		}
		if _, err := r.WriteTo(&b); err != nil {
			t.Fatal(err)
		}
		if text != "" && text != b.String() {
			t.Errorf("on one core\n%s\non three\n%s", text, &b)
		}
		text = b.String()
	}
	if !strings.Contains(text, "ended early: ") || !strings.Contains(text, want) {
		t.Errorf("it does not say %q:\n%s", want, text)
	}
	return r, text
}

// A run that comes to its limit has its result all the same, with the plots,
// and with what each flow waits for.
func TestResultAtTheLimit(t *testing.T) {
	t.Parallel()
	incast := []Traffic{{Kind: "incast", Senders: 3, Bytes: 1 << 20}}
	star := Network{Topology: "star", Hosts: 4}
	for _, c := range []struct {
		what, want string
		s          Scenario
	}{
		{"a queue", "wait in switch 0, port 0", Scenario{Network: star, Traffic: incast}},
		{"a READ", "wait in switch 0, port 1", Scenario{Network: star, Traffic: []Traffic{
			{Kind: "flow", From: 1, Bytes: 1 << 20, Op: "read"}, {Kind: "flow", From: 1, To: 2, Bytes: 1 << 20, Op: "read"}}}},
		{"a cable", "on the cable from host 0, port 0", Scenario{Network: Network{Topology: "pair"}, Traffic: []Traffic{{Kind: "flow", To: 1, Bytes: 1 << 20}}}},
		{"no answers", "waits for answers about", Scenario{Network: star, Traffic: incast[:1], Failures: []Failure{{At: 5 * us}}}},
		{"a rate", "host 1 sends at ", Scenario{Limit: 2000 * us, Network: Network{Topology: "star", Hosts: 9, Rate: 40 * Gbps, Profile: "dcqcn-paper"},
			Adapter: Adapter{Control: "dcqcn", MTU: 1024}, Traffic: []Traffic{{Kind: "incast", Senders: 8, Bytes: 4 << 20}}}},
		{"an all-reduce", "4 of 4 ranks are not done; rank 0 waits in round 0 for rank 3", Scenario{Network: star, Traffic: []Traffic{{Kind: "ring", Bytes: 1 << 20}}}},
		{"a rank that the others wait for", "16 of 16 ranks are not done; rank 6 waits in round 4 for rank 5: nothing of it is in the network: host 5 waits for answers about", Scenario{Limit: 30_000 * us,
			Network: Network{Topology: "star", Hosts: 16}, Traffic: []Traffic{{Kind: "ring", Bytes: 1 << 20, Iterations: 2}}, Failures: []Failure{{Kind: "host", Node: "h5", At: 35 * us}}}},
		{"a root that the others wait for", "rank 0 waits in round 2 for rank 4: nothing of it is in the network", Scenario{Limit: 30_000 * us,
			Network: Network{Topology: "star", Hosts: 8}, Traffic: []Traffic{{Kind: "tree", Bytes: 1 << 20}}, Failures: []Failure{{Kind: "host", Node: "h0", At: 250 * us}}}},
	} {
		c.s.Limit = orDefault(c.s.Limit, 20*us)
		r, text := playEarly(t, c.s, "have not completed at the limit")
		if r.Early == nil || len(r.Unfinished) == 0 || r.Digest == 0 || len(r.Plots()) == 0 || !strings.Contains(text, c.want) {
			t.Errorf("%s: it should say %q:\n%s", c.what, c.want, text)
		}
		for _, u := range r.Unfinished {
			if u.Arrived > u.Bytes || u.Where == "" {
				t.Errorf("%s: %d of %d bytes have arrived, %q", c.what, u.Arrived, u.Bytes, u.Where)
			}
		}
	}
}

// Flows that come to their end are not among those that hang, and of many some
// are written.
func TestUnfinishedAreThoseThatHang(t *testing.T) {
	t.Parallel()
	s := Scenario{Limit: 1000 * us, Network: Network{Topology: "star", Hosts: 30},
		Traffic: []Traffic{{Kind: "incast", Senders: 29, Bytes: 1 << 20}, {Kind: "flow", From: 0, To: 1, Bytes: 100}, {Kind: "flow", From: 1, To: 2, Bytes: 9, Start: 40_000 * us}}}
	r, text := playEarly(t, s, "30 flows have not completed")
	if done, _, _ := r.Done(); done != 1 || len(r.Unfinished) != 29 || !strings.Contains(text, "and 13 more\n") {
		t.Errorf("%d have completed, and %d hang\n%s", done, len(r.Unfinished), text)
	}
}

// The report of flows that pauses hold up names the switch that pauses.
func TestUnfinishedBehindPauses(t *testing.T) {
	t.Parallel()
	text, err := Text("deadlock")
	if err != nil {
		t.Fatal(err)
	}
	s, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	s.Until, s.Warm, s.Limit = 0, 0, 3000*us
	for i := range s.Traffic {
		s.Traffic[i].Bytes = 100 << 20
	}
	if _, text := playEarly(t, s, "the network stands still"); !strings.Contains(text, "packets wait in switch 0, port 2, which switch 1 pauses") {
		t.Errorf("it does not say which port is paused:\n%s", text)
	}
}

// A run that its caller ends has what it has come to.
func TestResultOfAnInterruptedRun(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("that is enough")
	cancel(why)
	r, err := Run(ctx, small())
	if r == nil || !errors.Is(err, why) || !errors.Is(r.Early, why) {
		t.Fatalf("result %v, %v", r != nil, err)
	}
	if r.End == 0 {
		t.Error("nothing was played")
	}
}

// Flows that have failed are written with the reason.
func TestFailedFlowsAreWritten(t *testing.T) {
	t.Parallel()
	r := play(t, Scenario{Network: Network{Topology: "star", Hosts: 3}, Adapter: Adapter{Timeout: 1}, Limit: 5_000_000 * us,
		Traffic: []Traffic{{Kind: "incast", Senders: 2, Bytes: 10 << 20}}, Failures: []Failure{{Cable: 0, At: 100 * us}}})
	var b bytes.Buffer
	r.WriteTo(&b)
	for _, f := range r.Flows {
		if want := fmt.Sprintf("host %d to 0", f.Src); !strings.Contains(b.String(), want) || !strings.Contains(b.String(), "failed: RETRY_EXC_ERR") {
			t.Errorf("it does not say that %s has failed:\n%s", want, &b)
		}
	}
}

// What adapters do by go-back-N has their timers alone: where nothing is lost,
// and the local ACK timeout is longer than any pause, nothing is sent again.
func TestGoBackNSendsNothingAgainWithoutLoss(t *testing.T) {
	t.Parallel()
	r := play(t, Scenario{Limit: 1_000_000 * us, Network: Network{Topology: "leaf-spine", Leaves: 2, Spines: 1, HostsPerLeaf: 8, RED: &RED{}},
		Adapter: Adapter{Recovery: "go-back-n"}, Traffic: []Traffic{{Kind: "incast", Senders: 15, Bytes: 1 << 20}, {Kind: "all-to-all", Bytes: 100_000}}})
	if r.Totals.XOFFs == 0 || r.Totals.Dropped() != 0 {
		t.Fatalf("%d pauses, %d packets dropped: this does not test what it should", r.Totals.XOFFs, r.Totals.Dropped())
	}
	if s := r.Stats; s.Retransmits+s.Probes+s.Timeouts != 0 {
		t.Errorf("%d sent again, %d probes, %d timeouts", s.Retransmits, s.Probes, s.Timeouts)
	}
}
