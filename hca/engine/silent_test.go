package engine

import (
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
)

// A queue pair whose peer is gone keeps asking for it without result. That does
// not hold up queue pairs whose own packet was lost, before, at the same time
// or later.
func TestLossBesideQueuePairsWithoutPeer(t *testing.T) {
	t.Parallel()
	for _, gone := range []int{1, 5, 100} {
		for _, before := range []time.Duration{0, 900 * time.Microsecond, 10 * time.Millisecond, 100 * time.Millisecond} {
			w := newWorld(t, 1)
			w.delay = 10 * time.Microsecond
			a, b := w.newPair(Config{})
			qps := make([]*QP, 1+gone)
			for i := range qps {
				qa, qb := connectPair(a, b, true)
				for range 10 {
					a.write(qa, b, 8)
					a.waitOK(1)
				}
				if qps[i] = qa; i > 0 {
					b.destroy(qb)
				}
			}
			for _, q := range qps[1:] {
				for range 4 {
					a.write(q, b, 100000)
				}
			}
			w.sleep(before)
			start := w.now
			w.loss = 1
			a.write(qps[0], b, 8)
			w.sleep(50 * time.Microsecond)
			w.loss = 0
			a.waitOK(1)
			if d := w.now.Sub(start); d > 10*time.Millisecond {
				t.Errorf("%v after %d have lost their peers a lost request took %v", before, gone, d)
			}
		}
	}
}

// However many queue pairs have lost their peer, all of them learn it about
// when one does.
func TestManyLoseTheirPeers(t *testing.T) {
	t.Parallel()
	const qps = 300
	last := func(n int) time.Duration {
		w := newWorld(t, 1)
		a, b := w.newPair(Config{Window: qp.WindowConfig{MaxBytes: 64 << 10}})
		start := w.now
		for range n {
			a.write(a.connectNobody(b), b, 100000)
		}
		a.wait(n)
		for _, c := range a.done {
			if c.Status != ib.StatusRetryExcErr {
				t.Fatal(c)
			}
		}
		return w.now.Sub(start)
	}
	one, many := last(1), last(qps)
	if many > one+qps*5*time.Millisecond { // none begins before it has room, which another's probe makes
		t.Errorf("the last of many took %v, one alone %v", many, one)
	}
}

// Queue pairs whose peers do not answer hold their neighbour up a little, until
// that shows, and then not at all.
func TestSilentQueuePairsLeaveTheirNeighboursAShare(t *testing.T) {
	t.Parallel()
	for _, op := range []ib.Opcode{ib.OpWrite, ib.OpRead} {
		for _, silent := range []int{1, 3, 30} {
			const size, timeout = 100000, 68 * time.Millisecond
			w := newWorld(t, 1)
			w.delay = 20 * time.Microsecond
			a, b := w.newPair(Config{Window: qp.WindowConfig{MaxBytes: max(4, silent) * 16 << 10}})
			qa, _ := connectPair(a, b, false)
			for range silent {
				q := a.connectNobody(b)
				for range 8 {
					_, err := a.e.PostSend(q, []ib.SendWR{{Opcode: op, SGList: []ib.SGE{a.mr.SGE(0, size)},
						Remote: ib.RemoteAddr{Addr: b.mr.Addr(), RKey: b.mr.RKey()}}})
					w.must(err)
				}
				a.transmit()
			}
			start := w.now
			a.write(qa, b, size)
			a.waitOK(1)
			first := w.now.Sub(start)
			w.sleep(2 * timeout)
			start = w.now
			for range 10 {
				a.post(qa, op, b, size)
				a.waitOK(1)
			}
			// A packet and its acknowledgement take four times the
			// delay. Of very many not all can have a share at once.
			most := 8 * w.delay * size / 1024
			if op == ib.OpRead {
				most += timeout // they are larger than what is left of the limit
			}
			if first > most && silent < 30 {
				t.Errorf("%v beside %d silent: the first took %v", op, silent, first)
			}
			if d := w.now.Sub(start) / 10; d > 4*w.delay*10 {
				t.Errorf("%v beside %d known to be silent: %v each", op, silent, d)
			}
		}
	}
}
