package perftest

import "testing"

// Messages that the peer answers have few completions of their own, because
// each costs an acknowledgement; but the send queue never fills for want of
// one, and the last operation has one.
func TestLatencyAsksForFewCompletions(t *testing.T) {
	t.Parallel()
	const goal = 1001
	for _, c := range []struct {
		verb    Verb
		patient bool
		most    int
	}{
		{Send, false, goal/signalEvery + 1},
		{Write, false, goal/signalEvery + 1},
		{Write, true, goal}, // its number lies in memory that may be read again
		{Read, false, goal},
		{Atomic, false, goal},
	} {
		s := &session{cfg: Config{Test: Test{c.verb, Latency}, TxDepth: 1}}
		p := &pinger{s: s, goal: goal, patient: c.patient}
		signalled, open := 0, 0
		for n := uint64(1); n <= goal; n++ {
			if open++; p.signals(n) {
				signalled, open = signalled+1, 0
			}
			if open >= s.cfg.sendDepth() {
				t.Fatalf("%v: the send queue is full of operations without a completion", c.verb)
			}
		}
		if open > 0 || signalled > c.most {
			t.Errorf("%v, patient %v: %d completions, and %d operations after the last", c.verb, c.patient, signalled, open)
		}
	}
}
