package verbs_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/verbs"
)

// waiter takes one completion in one of the ways in which programs do.
type waiter func(ctx context.Context, t *testing.T, cq *verbs.CQ, ch *verbs.CompChannel) verbs.WC

var waiters = []waiter{
	func(ctx context.Context, t *testing.T, cq *verbs.CQ, _ *verbs.CompChannel) verbs.WC { // polls
		var wc [1]verbs.WC
		for cq.Poll(wc[:]) == 0 {
			if ctx.Err() != nil {
				t.Error("polled in vain")
				break
			}
			runtime.Gosched()
		}
		return wc[0]
	},
	func(ctx context.Context, t *testing.T, cq *verbs.CQ, _ *verbs.CompChannel) verbs.WC { // waits
		var wc [1]verbs.WC
		if _, err := cq.Wait(ctx, wc[:]); err != nil {
			t.Error(err)
		}
		return wc[0]
	},
	func(ctx context.Context, t *testing.T, cq *verbs.CQ, ch *verbs.CompChannel) verbs.WC { // sleeps on a channel
		var wc [1]verbs.WC
		for {
			cq.Arm(false)
			if cq.Poll(wc[:]) == 1 {
				return wc[0]
			}
			if _, err := ch.Get(ctx); err != nil {
				t.Error(err)
				return wc[0]
			}
		}
	},
}

// Two programs play ping-pong and change now and then how they wait, so that
// receiving changes hands in every way. Neither ever sleeps while a message
// waits.
func TestReceivingChangesHands(t *testing.T) {
	t.Parallel()
	const rounds, change = 4000, 37
	a, b := newPair(t, 64)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	play := func(s *side, qp *verbs.QP, cq *verbs.CQ, ch *verbs.CompChannel, first bool, seed int) {
		for i := range rounds {
			wait := waiters[(i/change*7+seed)%len(waiters)]
			if first || i > 0 {
				if err := qp.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Inline: []byte{1}}); err != nil {
					t.Error(err)
					return
				}
			}
			if wc := wait(ctx, t, cq, ch); wc.Status != verbs.StatusSuccess || wc.Opcode != verbs.WCRecv {
				t.Errorf("round %d: %+v (%v)", i, wc, wc.Status)
				return
			}
			if err := qp.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{s.mr.Slice(0, 1)}}); err != nil {
				t.Error(err)
				return
			}
			if t.Failed() {
				return
			}
		}
		if !first {
			// The last answer.
			check(t, qp.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Inline: []byte{1}}))
		}
	}
	mk := func(s *side) (*verbs.QP, *verbs.CQ, *verbs.CompChannel) {
		ch, err := s.dev.CreateCompChannel()
		check(t, err)
		cq, err := s.dev.CreateCQ(64, verbs.WithChannel(ch))
		check(t, err)
		sendCQ, err := s.dev.CreateCQ(64)
		check(t, err)
		q, err := s.pd.CreateQP(verbs.QPConfig{SendCQ: sendCQ, RecvCQ: cq})
		check(t, err)
		return q, cq, ch
	}
	qa, cqa, cha := mk(a)
	qb, cqb, chb := mk(b)
	connect(t, qa, qb)
	for range 4 {
		check(t, qa.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{a.mr.Slice(0, 1)}}))
		check(t, qb.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{b.mr.Slice(0, 1)}}))
	}
	var wg sync.WaitGroup
	wg.Go(func() { play(a, qa, cqa, cha, true, 0) })
	wg.Go(func() { play(b, qb, cqb, chb, false, 1) })
	wg.Wait()
}

// A program that closes right after it has received does not leave its peer
// waiting for the acknowledgement, which may have been put off until its next
// call.
func TestLastMessageIsAcknowledged(t *testing.T) {
	t.Parallel()
	for range 20 {
		a, b := newPair(t, 64)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		const rounds = 100
		var wg sync.WaitGroup
		wg.Go(func() {
			for i := range rounds {
				waiters[0](ctx, t, b.cq, nil)
				if i < rounds-1 {
					check(t, b.qp.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{b.mr.Slice(0, 1)}}))
					check(t, b.qp.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Inline: []byte{1}}))
				}
			}
			check(t, b.qp.Close())
		})
		check(t, a.qp.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{a.mr.Slice(0, 1)}}))
		check(t, b.qp.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{b.mr.Slice(0, 1)}}))
		for i := range rounds {
			last := i == rounds-1
			check(t, a.qp.PostSend(verbs.SendWR{ID: 7, Opcode: verbs.OpSend, Inline: []byte{1}, Signaled: last}))
			wc := waiters[0](ctx, t, a.cq, nil)
			if wc.Status != verbs.StatusSuccess || (wc.ID == 7) != last {
				t.Fatalf("round %d: %+v (%v)", i, wc, wc.Status)
			}
			if !last {
				check(t, a.qp.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{a.mr.Slice(0, 1)}}))
			}
		}
		wg.Wait()
	}
}
