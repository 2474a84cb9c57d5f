package hca

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/ib"
)

// What a program has received is acknowledged before its queue pair goes, in
// whatever way that is, also beside another one that keeps a slow link full.
func TestReceivedIsAcknowledged(t *testing.T) {
	t.Parallel()
	const messages = 100
	toState := func(s ib.State) func(*host, *QP) {
		return func(b *host, q *QP) { b.must(q.Modify(&ib.Attr{State: s}, ib.AttrState)) }
	}
	for _, c := range []struct {
		why string
		all bool // at once
		end func(b *host, q *QP)
	}{
		{"Close", false, func(b *host, q *QP) { b.must(q.Close()) }},
		{"ERR", false, toState(ib.StateErr)},
		{"RESET", false, toState(ib.StateReset)},
		{"owner", true, func(b *host, _ *QP) { b.must(b.owner.Close()) }},
		{"device", true, func(b *host, _ *QP) { b.must(b.dev.Close()) }},
		{"local error", false, func(b *host, q *QP) {
			_, err := q.PostSend([]ib.SendWR{{Opcode: ib.OpSend, SGList: []ib.SGE{{Addr: 1, Length: 8, LKey: 1}}}})
			b.must(err)
		}},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				port := fabric.PortConfig{Rate: 1e9, Delay: 10 * time.Microsecond, SendBuffer: 64 << 10}
				a, b := newHosts(t, Config{}, fabric.Config{Port: port})
				bulkA, bulkB := a.newQP(), b.newQP()
				a.connect(bulkA, testAddrB, bulkB.QPN())
				b.connect(bulkB, testAddrA, bulkA.QPN())
				sends, recvs := make([]*QP, messages/10), make([]*QP, messages/10)
				for i := range recvs {
					sends[i], recvs[i] = a.newQP(), b.newQP()
					a.connect(sends[i], testAddrB, recvs[i].QPN())
					b.connect(recvs[i], testAddrA, sends[i].QPN())
				}
				b.standBy() // as where a program polls: lone acknowledgements wait
				var over atomic.Bool
				var wg sync.WaitGroup
				defer wg.Wait()
				defer over.Store(true)
				wg.Go(func() {
					bulk := []ib.SendWR{{Opcode: ib.OpWrite, SGList: []ib.SGE{b.mr.Region().SGE(0, 1<<20)},
						Remote: ib.RemoteAddr{Addr: a.mr.Region().Addr(), RKey: a.mr.Region().RKey()}}}
					for range 16 {
						if _, err := bulkB.PostSend(bulk); err != nil && !errors.Is(err, ErrClosed) {
							t.Error(err)
						}
					}
					for ; !over.Load(); time.Sleep(time.Microsecond) {
						b.dev.Progress() // and sends what goes on then
					}
				})
				for i, q := range recvs {
					for range 10 {
						_, err := q.PostRecv([]ib.RecvWR{{SGList: []ib.SGE{b.mr.Region().SGE(0, 8)}}})
						b.must(err)
						_, err = sends[i].PostSend([]ib.SendWR{{Opcode: ib.OpSend, Signaled: true, SGList: []ib.SGE{a.mr.Region().SGE(0, 8)}}})
						a.must(err)
					}
				}
				for _, q := range recvs {
					for q.Stats().RecvDone < 10 {
						b.dev.Progress()
						time.Sleep(time.Microsecond)
					}
					if !c.all {
						c.end(b, q)
					}
				}
				if c.all {
					c.end(b, nil)
				}
				a.waitOK(messages)
			})
		})
	}
}

// An acknowledgement that another goroutine is just about to hand to the link
// is waited for as well.
func TestAcknowledgementUnderWay(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		why string
		end func(b *host, q *QP) error
	}{
		{"Close", func(_ *host, q *QP) error { return q.Close() }},
		{"ERR", func(_ *host, q *QP) error { return q.Modify(&ib.Attr{State: ib.StateErr}, ib.AttrState) }},
		{"device", func(b *host, _ *QP) error { return b.dev.Close() }},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := &meddler{}
				b, a := newMeddled(t, Config{}, m)
				qb, qa := b.newQP(), a.newQP()
				b.connect(qb, testAddrB, qa.QPN())
				a.connect(qa, testAddrA, qb.QPN())
				b.standBy()
				a.write(qa, b, 8)
				synctest.Wait()
				if !b.dev.Progress() {
					t.Fatal("nothing came")
				}
				held := make(chan struct{})
				m.sending = func() { <-held }
				go b.dev.Settle() // the acknowledgement
				synctest.Wait()
				var ended atomic.Bool
				go func() {
					if err := c.end(b, qb); err != nil {
						t.Error(err)
					}
					ended.Store(true)
				}()
				synctest.Wait()
				if ended.Load() {
					t.Error("returned before the acknowledgement was sent")
				}
				close(held)
				synctest.Wait()
				if !ended.Load() {
					t.Error("did not return when it was sent")
				}
				a.waitOK(1)
			})
		})
	}
}

// A link that takes nothing any more holds up one Close for a while, and then
// no other.
func TestCloseOnAStuckLink(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stuck := make(chan struct{})
		m := &meddler{}
		b, a := newMeddled(t, Config{}, m)
		var qps []*QP
		for range 10 {
			qb, qa := b.newQP(), a.newQP()
			b.connect(qb, testAddrB, qa.QPN())
			a.connect(qa, testAddrA, qb.QPN())
			qps = append(qps, qb)
			a.write(qa, b, 8)
			synctest.Wait()
		}
		m.sent = func() { <-stuck }
		go b.write(qps[0], a, 8)
		synctest.Wait()
		m.sent = nil
		start := time.Now()
		for _, q := range qps {
			s := b.shard()
			s.lock()
			s.eng.PostSend(q.core, nil) // it has something to say, perhaps
			s.unlock()
			b.must(q.Close())
		}
		if d := time.Since(start); d < finalWait || d > 2*finalWait {
			t.Errorf("closing took %v", d)
		}
		close(stuck)
		synctest.Wait()
	})
}
