package verbs_test

import (
	"runtime"
	"testing"
	"testing/synctest"
	"weak"

	"github.com/gosoftroce/rocev2/verbs"
)

// mustBeCollected fails if objects that are closed and out of the test's reach
// stay in memory.
func mustBeCollected[T any](t *testing.T, what string, objects ...weak.Pointer[T]) {
	t.Helper()
	left := 0
	for range 10 { // another goroutine's stack may hold one for a moment
		runtime.GC()
		left = 0
		for _, p := range objects {
			if p.Value() != nil {
				left++
			}
		}
		if left == 0 {
			return
		}
		runtime.Gosched()
	}
	t.Errorf("%s: %d of %d are still in memory", what, left, len(objects))
}

// refused has the peer of a new queue pair of b name a wrong key, and closes
// both sides. The event is not read.
func refused(t *testing.T, a, b *side) weak.Pointer[verbs.QP] {
	t.Helper()
	small := verbs.QPConfig{MaxSendWR: 1, MaxRecvWR: 1, MaxInline: 8}
	qa, qb := a.newQP(small), b.newQP(small)
	connect(t, qa, qb)
	check(t, qa.PostSend(verbs.SendWR{Opcode: verbs.OpWrite, Inline: []byte("x"), Signaled: true,
		Remote: verbs.RemoteAddr{Addr: b.mr.Addr(), RKey: b.mr.RKey() ^ 1}}))
	if wc := a.wait(); wc.Status != verbs.StatusRemAccessErr {
		t.Fatalf("status %v", wc.Status)
	}
	check(t, qa.Close())
	check(t, qb.Close())
	return weak.Make(qb)
}

// A peer that comes again and again with wrong keys costs no memory, even if
// the events are not read.
func TestRefusedPeersLeaveNothing(t *testing.T) {
	t.Parallel()
	n := 10_000
	if testing.Short() {
		n = 1000
	}
	a, b := newPair(t, 64)
	var closed []weak.Pointer[verbs.QP]
	for range n {
		closed = append(closed, refused(t, a, b))
	}
	mustBeCollected(t, "closed queue pairs", closed...)
}

// What a program reads after it has closed an object is never about that one.
func TestEventsEndWithTheirObject(t *testing.T) {
	t.Parallel()
	a, b := newPair(t, 64)
	refused(t, a, b)
	check(t, a.qp.PostSend(verbs.SendWR{Opcode: verbs.OpWrite, Inline: []byte("x"), Signaled: true,
		Remote: verbs.RemoteAddr{Addr: b.mr.Addr(), RKey: b.mr.RKey() ^ 1}}))
	a.wait()
	e, err := b.dev.AsyncEvent(t.Context())
	if err != nil || e.QP != b.qp || e.Event != verbs.EventQPAccessError {
		t.Errorf("event %v (%v), want the one of the queue pair that is open", e, err)
	}
}

func TestClosedObjectsAreCollected(t *testing.T) {
	t.Parallel()
	a, b := newPair(t, 64)
	t.Run("queue pair whose event was read", func(t *testing.T) {
		q := func() weak.Pointer[verbs.QP] {
			qa, qb := a.newQP(verbs.QPConfig{}), b.newQP(verbs.QPConfig{})
			check(t, qb.Init())
			check(t, qb.ReadyToReceive(qa.Endpoint()))
			check(t, qa.Connect(t.Context(), qb.Endpoint()))
			check(t, qa.PostSend(verbs.SendWR{Opcode: verbs.OpWrite, Inline: []byte("x"), Signaled: true, Remote: b.mr.RemoteAt(0)}))
			a.waitOK(0)
			if e, err := b.dev.AsyncEvent(t.Context()); err != nil || e.QP != qb {
				t.Errorf("event %v (%v)", e, err)
			}
			check(t, qa.Close())
			check(t, qb.Close())
			return weak.Make(qb)
		}()
		mustBeCollected(t, "queue pair", q)
	})
	t.Run("completion queue with an event", func(t *testing.T) {
		p := func() weak.Pointer[verbs.CQ] {
			cq, err := a.dev.CreateCQ(1)
			check(t, err)
			q, err := a.pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq})
			check(t, err)
			connect(t, q, b.newQP(verbs.QPConfig{}))
			for range 2 {
				check(t, q.PostSend(verbs.SendWR{Opcode: verbs.OpWrite, Inline: []byte("x"), Signaled: true, Remote: b.mr.RemoteAt(0)}))
			}
			for q.State() != verbs.StateErr {
				runtime.Gosched()
			}
			check(t, q.Close())
			check(t, cq.Close())
			return weak.Make(cq)
		}()
		mustBeCollected(t, "completion queue", p)
	})
	t.Run("completion queue with a notification", func(t *testing.T) {
		ch, err := b.dev.CreateCompChannel()
		check(t, err)
		p := func() weak.Pointer[verbs.CQ] {
			cq, err := b.dev.CreateCQ(4, verbs.WithChannel(ch))
			check(t, err)
			q, err := b.pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq})
			check(t, err)
			cq.Arm(false)
			connect(t, q, a.newQP(verbs.QPConfig{}))
			check(t, q.PostSend(verbs.SendWR{Opcode: verbs.OpWrite, Inline: []byte("x"), Signaled: true, Remote: a.mr.RemoteAt(0)}))
			waitCQ(t, cq)
			check(t, q.Close())
			check(t, cq.Close())
			return weak.Make(cq)
		}()
		mustBeCollected(t, "completion queue", p)
		runtime.KeepAlive(ch)
	})
}

// A timer that runs for a long time does not keep a queue pair that was closed.
func TestTimersDoNotKeepQueuePairs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // where no timer comes up
		a, _ := newPair(t, 64)
		// No peer answers, so that the timers run. Fewer queue pairs
		// are closed than stay open, so that their entries are not
		// cleared away.
		open := make([]*verbs.QP, 8)
		for i := range open {
			open[i] = a.newQP(verbs.QPConfig{})
			check(t, open[i].Connect(t.Context(), verbs.Endpoint{Addr: addrB, QPN: 0xfffffe}))
			check(t, open[i].PostSend(verbs.SendWR{Opcode: verbs.OpWrite, Inline: []byte("x")}))
		}
		var closed []weak.Pointer[verbs.QP]
		for range 3 {
			check(t, open[0].Close())
			closed = append(closed, weak.Make(open[0]))
			open[0], open = nil, open[1:]
		}
		mustBeCollected(t, "queue pairs", closed...)
	})
}
