package hca

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
)

var allMTUs = []rocev2.MTU{rocev2.MTU256, rocev2.MTU512, rocev2.MTU1024, rocev2.MTU2048, rocev2.MTU4096}

// boundless lets a queue pair send without an acknowledgement.
var boundless = qp.WindowConfig{InitialBytes: 1 << 30, MaxBytes: 1 << 30, MaxPSNs: 1 << 22}

// hold has nothing sent but by nextTurns, until the end of the test.
func (s *shard) hold(t *testing.T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sending = true
	t.Cleanup(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.sending = false
	})
}

// nextTurns fills a batch, and returns the bytes of each queue pair in it by the
// number of its peer.
func (s *shard) nextTurns() map[rocev2.QPN]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tx.Reset()
	s.fill(s.dev.now())
	bytes := map[rocev2.QPN]int{}
	for i := range s.tx.Len() {
		data, _ := s.tx.Packet(i)
		bytes[destQPN(data)] += len(data)
	}
	return bytes
}

// Queue pairs that send bulk have the same share of the link, whatever the path
// MTU, and in runs of packets that fill a segmentation buffer.
func TestBulkIsFairAtEveryMTU(t *testing.T) {
	t.Parallel()
	for _, mtu := range allMTUs {
		for _, reads := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				const senders, rounds = 3, 60
				a, _, peers := bulkSenders(t, mtu, senders, reads)
				total := map[rocev2.QPN]int{}
				for i := range rounds {
					for qpn, n := range a.shard().nextTurns() {
						total[qpn] += n
					}
					if len(total) < min(i+1, senders) {
						t.Fatalf("MTU %v: after %d batches only %d queue pairs have had a turn", mtu, i+1, len(total))
					}
				}
				least, most := total[peers[0]], total[peers[0]]
				for _, qpn := range peers {
					least, most = min(least, total[qpn]), max(most, total[qpn])
				}
				if most-least > most/20 {
					t.Errorf("MTU %v, reads %v: one has sent %d bytes and another %d", mtu, reads, most, least)
				}
			})
		}
	}
}

// bulkSenders returns a host with so many queue pairs that have very much to
// send to the other: WRITEs, or the answers to sixteen READs each. It does not
// send by itself.
func bulkSenders(t *testing.T, mtu rocev2.MTU, n int, reads bool) (a, b *host, peers []rocev2.QPN) {
	t.Helper()
	a, b = newHosts(t, Config{Window: boundless, ReadChunk: -1})
	a.mtu, b.mtu = mtu, mtu
	a.lead()
	b.lead()
	a.shard().hold(t)
	for range n {
		qa, qb := a.newQP(), b.newQP()
		a.connect(qa, testAddrB, qb.QPN())
		b.connect(qb, testAddrA, qa.QPN())
		peers = append(peers, qb.QPN())
		q, op, from, to := qa, ib.OpWrite, a, b
		if reads {
			q, op, from, to = qb, ib.OpRead, b, a
		}
		wr := ib.SendWR{Opcode: op, SGList: []ib.SGE{from.mr.Region().SGE(0, 1<<20)},
			Remote: ib.RemoteAddr{Addr: to.mr.Region().Addr(), RKey: to.mr.Region().RKey()}}
		for range 16 {
			_, err := q.PostSend([]ib.SendWR{wr})
			a.must(err)
		}
	}
	for a.dev.Progress() { // takes the READs
	}
	return a, b, peers
}

// A caller sends for its own queue pair, and not for long: what is left is the
// transmitter's.
func TestCallerSendsBriefly(t *testing.T) {
	t.Parallel()
	const batch = 100 * time.Microsecond // that the link takes for one
	for _, c := range []struct {
		why     string
		size    uint32
		longest time.Duration
	}{
		{"a small request beside bulk", 8, 3 * batch}, // the acknowledgement may call for more
		{"bulk of its own", 1 << 20, time.Duration(txLongest) + 2*batch},
	} {
		synctest.Test(t, func(t *testing.T) {
			var slow atomic.Bool
			m := &meddler{sent: func() {
				if slow.Load() {
					time.Sleep(batch)
				}
			}}
			a, b := newMeddled(t, Config{Window: boundless}, m)
			s := a.shard()
			hold := func(on bool) {
				s.mu.Lock()
				s.sending = on
				s.mu.Unlock()
			}
			hold(true)
			for range 4 {
				qa, qb := a.newQP(), b.newQP()
				a.connect(qa, testAddrB, qb.QPN())
				b.connect(qb, testAddrA, qa.QPN())
				for range 8 {
					a.write(qa, b, 1<<20)
				}
			}
			qa, qb := a.newQP(), b.newQP()
			a.connect(qa, testAddrB, qb.QPN())
			b.connect(qb, testAddrA, qa.QPN())
			for range 4 {
				s.nextTurns() // they all have had their first turn
			}
			hold(false)
			slow.Store(true)
			start := time.Now()
			a.write(qa, b, c.size)
			if d := time.Since(start); d > c.longest {
				t.Errorf("%s: posting took %v, want at most %v", c.why, d, c.longest)
			}
		})
	}
}

// An acknowledgement goes with the next batch, however many queue pairs send
// bulk, and nobody who has just a little to say shuts the others out.
func TestAcknowledgementsPassBulk(t *testing.T) {
	t.Parallel()
	for _, mtu := range allMTUs {
		for _, reads := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				a, b, peers := bulkSenders(t, mtu, 8, reads)
				qa, qb := a.newQP(), b.newQP()
				a.connect(qa, testAddrB, qb.QPN())
				b.connect(qb, testAddrA, qa.QPN())
				for range peers {
					a.shard().nextTurns() // they all have had their first turn
				}
				total := map[rocev2.QPN]int{}
				for range 12 {
					b.write(qb, a, 8)
					if !a.dev.Progress() {
						t.Fatal("nothing came")
					}
					a.dev.Settle()
					got := a.shard().nextTurns()
					if got[qb.QPN()] == 0 {
						t.Fatalf("MTU %v: the acknowledgement is not in the next batch", mtu)
					}
					for qpn, n := range got {
						total[qpn] += n
					}
				}
				for _, qpn := range peers {
					if total[qpn] == 0 {
						t.Errorf("MTU %v: a queue pair that sends bulk had no turn", mtu)
					}
				}
			})
		}
	}
}
