package verbs_test

import (
	"slices"
	"testing"

	"github.com/gosoftroce/rocev2/verbs"
)

// The list has what is open, in order, and nothing else.
func TestQPNs(t *testing.T) {
	t.Parallel()
	a, _ := newPair(t, 64)
	var made []*verbs.QP
	want := []verbs.QPN{a.qp.QPN()}
	for range 100 {
		q := a.newQP(verbs.QPConfig{})
		made = append(made, q)
		want = append(want, q.QPN())
	}
	slices.Sort(want)
	if got := a.dev.QPNs(); !slices.Equal(got, want) {
		t.Errorf("%d numbers, want %d: %v", len(got), len(want), got)
	}
	if got := a.dev.QPStates(); len(got) != 2 || got[verbs.StateReset] != 100 || got[verbs.StateRTS] != 1 {
		t.Errorf("states: %v", got)
	}
	for _, q := range made {
		check(t, q.Close())
	}
	if got := a.dev.QPNs(); !slices.Equal(got, []verbs.QPN{a.qp.QPN()}) {
		t.Errorf("when all but one are closed: %v", got)
	}
}

// What is posted and not completed shows, and a round trip is measured.
func TestFlow(t *testing.T) {
	t.Parallel()
	a, b := newPair(t, 64)
	if f := a.qp.Flow(); f.Queued != 0 || f.InFlight != 0 || f.Window == 0 || f.RTT != 0 {
		t.Errorf("before anything was sent: %+v", f)
	}
	for id := range uint64(20) {
		b.recv(id, 0, 64)
		a.post(verbs.SendWR{ID: id, Opcode: verbs.OpSend, Signaled: true, SGList: []verbs.SGE{a.mr.Slice(0, 64)}})
		a.waitOK(id)
		b.waitOK(id)
	}
	f := a.qp.Flow()
	if f.Queued != 0 || f.InFlight != 0 || f.RTT <= 0 {
		t.Errorf("after 20 messages: %+v", f)
	}
	if at := a.qp.Query(); f.OldestPSN != at.SQPSN {
		t.Errorf("nothing is in flight, and the oldest PSN is %v of %v", f.OldestPSN, at.SQPSN)
	}
	b.qp.Close() // no peer answers any more
	a.post(verbs.SendWR{ID: 1, Opcode: verbs.OpSend, Signaled: true, SGList: []verbs.SGE{a.mr.Slice(0, 64)}})
	if g := a.qp.Flow(); g.Queued != 1 || g.InFlight < 64 || g.OldestPSN != f.OldestPSN {
		t.Errorf("while a message is not acknowledged: %+v", g)
	}
	if f := a.newQP(verbs.QPConfig{Type: verbs.UD}).Flow(); f != (verbs.Flow{}) {
		t.Errorf("of a datagram service: %+v", f)
	}
}
