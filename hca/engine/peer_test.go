package engine

import (
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
)

// However many queue pairs there are, together they have no more in flight to a
// peer than its limit, what is shared out beyond it, and a packet of each, and
// all get their turn.
func TestQueuePairsShareThePeersLimit(t *testing.T) {
	t.Parallel()
	const qps, limit, size = 100, 32 << 10, 20000
	w := newWorld(t, 1)
	a, b := w.newPair(Config{Window: qp.WindowConfig{MaxBytes: limit}})
	for range qps {
		qa, _ := connectPair(a, b, false)
		a.write(qa, b, size)
	}
	most := 0
	for range 200 {
		w.sleep(200 * time.Microsecond)
		u := a.e.Usage()
		most = max(most, u.InFlight-u.Silent)
	}
	if most < limit/2 || most > limit+limit/sharePart+3000 {
		t.Errorf("at most %d bytes were in flight, want about the limit of %d", most, limit)
	}
	a.waitOK(qps)
	if u := a.e.Usage(); u.InFlight != 0 || u.Busy != 0 || u.Limited != 0 || u.Peers != 1 || u.QPs != qps {
		t.Errorf("in the end: %+v", u)
	}
}

// A queue pair that closes while its peer's limit holds it back leaves nothing.
func TestClosedQueuePairsLeaveThePeer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.loss = 1 // nothing is acknowledged
	a, b := w.newPair(Config{Window: qp.WindowConfig{MaxBytes: 4 << 10}})
	var qps []*QP
	for range 10 {
		q := a.connectNobody(b)
		a.write(q, b, 20000)
		qps = append(qps, q)
	}
	for _, q := range qps {
		a.destroy(q)
	}
	if u := a.e.Usage(); u != (Usage{}) || a.e.Pending() {
		t.Errorf("left is %+v", u)
	}
}

// A queue pair that has failed has nothing in flight, and takes nothing of the
// limit that it shares with others.
func TestFailedQueuePairFreesTheLimit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		why  string
		fail func(a, b *host, q *QP)
	}{
		{"refused READs", func(a, b *host, q *QP) {
			for range 16 {
				_, err := a.e.PostSend(q, []ib.SendWR{{Opcode: ib.OpRead, SGList: []ib.SGE{a.mr.SGE(0, 20000)},
					Remote: ib.RemoteAddr{Addr: b.mr.Addr(), RKey: b.mr.RKey() + 1}}})
				a.w.must(err)
				a.transmit()
			}
			a.w.sleep(2 * a.w.delay)
		}},
		{"Modify", func(a, b *host, q *QP) {
			a.write(q, b, 100000)
			a.modify(q, ib.Attr{State: ib.StateErr}, ib.AttrState)
		}},
		{"RESET", func(a, b *host, q *QP) {
			a.write(q, b, 100000)
			a.modify(q, ib.Attr{State: ib.StateReset}, ib.AttrState)
		}},
	} {
		a, b := newWorld(t, 1).newPair(Config{Window: qp.WindowConfig{MaxBytes: 16 << 10}})
		qa, _ := connectPair(a, b, false)
		c.fail(a, b, qa)
		if st := qa.Core().State(); st == ib.StateRTS {
			t.Fatalf("%s: state %v", c.why, st)
		}
		if u := a.e.Usage(); u.InFlight != 0 || u.Busy != 0 {
			t.Errorf("%s: %d bytes in flight of %d queue pairs", c.why, u.InFlight, u.Busy)
		}
	}
}

// Beyond the limit of a peer a part of it is shared out: a queue pair that has
// nothing in flight sends a little although others have used the limit up, and
// not all of them do when they are many.
func TestShareBeyondTheLimit(t *testing.T) {
	t.Parallel()
	const limit = 64 << 10
	for _, others := range []int{1, 5, 100} {
		w := newWorld(t, 1)
		w.loss = 1 // nothing is acknowledged
		a, b := w.newPair(Config{Window: qp.WindowConfig{MaxBytes: limit}})
		qps := make([]*QP, 1+others)
		for i := range qps {
			qps[i] = a.connectNobody(b)
		}
		var sent []int
		for _, q := range qps {
			for range 4 {
				a.write(q, b, 20000)
			}
			if q.inFlight > 0 {
				sent = append(sent, q.inFlight)
			}
		}
		together := a.e.Usage().InFlight
		if sent[0] < limit/2 || len(sent) < min(1+others, 10) || together < limit+limit/sharePart/4 || together > limit+limit/sharePart+3000 {
			t.Errorf("%d queue pairs beside the first: in flight are %v bytes, together %d, with a limit of %d", others, sent, together, limit)
		}
	}
}
