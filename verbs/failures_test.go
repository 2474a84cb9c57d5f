package verbs_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/verbs"
)

// Each refusal has its status on one side (IBTA 11.6.2) and its event on the
// other (IBTA 11.6.3). In ERR requests are flushed (IBTA 10.3.1.7).
func TestFaultsOfThePeerBecomeStatuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		wr     func(a, b *side) verbs.SendWR
		status verbs.Status
		event  verbs.Event
	}{
		{"unknown rkey", func(a, b *side) verbs.SendWR {
			r := b.mr.RemoteAt(0)
			r.RKey ^= 0x5555
			return verbs.SendWR{Opcode: verbs.OpWrite, SGList: []verbs.SGE{a.mr.Slice(0, 8)}, Remote: r}
		}, verbs.StatusRemAccessErr, verbs.EventQPAccessError},
		{"beyond the region", func(a, b *side) verbs.SendWR {
			return verbs.SendWR{Opcode: verbs.OpRead, SGList: []verbs.SGE{a.mr.Slice(0, 8)}, Remote: b.mr.RemoteAt(4090)}
		}, verbs.StatusRemAccessErr, verbs.EventQPAccessError},
		{"address wraps", func(a, b *side) verbs.SendWR {
			return verbs.SendWR{Opcode: verbs.OpWrite, SGList: []verbs.SGE{a.mr.Slice(0, 64)}, Remote: verbs.RemoteAddr{Addr: ^uint64(0) - 3, RKey: b.mr.RKey()}}
		}, verbs.StatusRemAccessErr, verbs.EventQPAccessError},
		{"misaligned atomic", func(a, b *side) verbs.SendWR {
			return verbs.SendWR{Opcode: verbs.OpFetchAdd, SGList: []verbs.SGE{a.mr.Slice(0, 8)}, Remote: b.mr.RemoteAt(4)}
		}, verbs.StatusRemInvReqErr, verbs.EventQPRequestError},
		{"no such local memory", func(a, b *side) verbs.SendWR {
			return verbs.SendWR{Opcode: verbs.OpWrite, SGList: []verbs.SGE{{Addr: a.mr.Addr(), Length: 8, LKey: 1}}, Remote: b.mr.RemoteAt(0)}
		}, verbs.StatusLocProtErr, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a, b := newPair(t, 4096)
			a.post(c.wr(a, b))
			if wc := a.wait(); wc.Status != c.status {
				t.Fatalf("status %v, want %v", wc.Status, c.status)
			}
			if a.qp.State() != verbs.StateErr {
				t.Errorf("the requester is in %v, want ERR", a.qp.State())
			}
			a.post(verbs.SendWR{ID: 9, Opcode: verbs.OpSend})
			if wc := a.wait(); wc.Status != verbs.StatusWRFlushErr || wc.ID != 9 {
				t.Errorf("posting in ERR gives %+v, want a flush", wc)
			}
			if c.event == 0 {
				return
			}
			e, err := b.dev.AsyncEvent(t.Context())
			for err == nil && e.Event == verbs.EventCommEstablished {
				e, err = b.dev.AsyncEvent(t.Context())
			}
			if err != nil || e.Event != c.event || e.QP != b.qp {
				t.Errorf("event %v (%v), want %v", e, err, c.event)
			}
		})
	}
}

// A peer that vanishes is noticed in the time that timeout and retry count
// give: (3+1) × 4.096 µs × 2^14 = 268 ms (IBTA 9.7.6.1.3, 9.9.2.1).
func TestVanishedPeerIsNoticedInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := newPair(t, 64, verbs.WithConfig(verbs.ConnectConfig{RetryCount: verbs.Set(3)}))
		check(t, b.dev.Close())
		start := time.Now()
		a.post(verbs.SendWR{ID: 1, Opcode: verbs.OpWrite, SGList: []verbs.SGE{a.mr.Slice(0, 8)}, Remote: b.mr.RemoteAt(0)})
		wc := a.wait()
		if wc.Status != verbs.StatusRetryExcErr {
			t.Errorf("status %v, want %v", wc.Status, verbs.StatusRetryExcErr)
		}
		if d := time.Since(start); d < 268*time.Millisecond || d > 350*time.Millisecond {
			t.Errorf("noticed after %v, want 268 ms", d)
		}
	})
}

// An RNR retry count of 7 waits for a receive without limit (IBTA 9.7.5.2.8,
// 9.9.2.1).
func TestMissingReceiveIsAwaited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := newPair(t, 64)
		a.post(verbs.SendWR{ID: 1, Opcode: verbs.OpSend, SGList: []verbs.SGE{a.mr.Slice(0, 8)}})
		time.Sleep(10 * time.Second) // virtual: rnr_retry 7 waits for ever
		b.recv(2, 0, 64)
		b.waitOK(2)
		a.waitOK(1)
	})
}

// A request that cannot be carried out is refused at the post (IBTA 11.4.1.1,
// 11.4.1.2).
func TestPostErrors(t *testing.T) {
	t.Parallel()
	la, lb := fabric.Pair(addrA, addrB)
	da, err := verbs.OpenLink(la, verbs.Config{})
	check(t, err)
	defer da.Close()
	defer lb.Close()
	a := newSide(t, da, 64)
	err = a.qp.PostSend(verbs.SendWR{ID: 3, Opcode: verbs.OpSend})
	var post *verbs.PostError
	if !errors.As(err, &post) || post.ID != 3 || !strings.Contains(err.Error(), "RESET") {
		t.Errorf("posting in RESET: %v", err)
	}
	check(t, a.qp.Connect(t.Context(), verbs.Endpoint{Addr: addrB, QPN: 99}))
	for name, wr := range map[string]verbs.SendWR{
		"too many entries": {Opcode: verbs.OpSend, SGList: make([]verbs.SGE, 33)},
		"too long inline":  {Opcode: verbs.OpSend, Inline: make([]byte, 1000)},
		"no such opcode":   {Opcode: 200},
	} {
		if err := a.qp.PostSend(wr); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if err := a.qp.PostRecv(verbs.RecvWR{SGList: make([]verbs.SGE, 33)}); err == nil {
		t.Error("a receive with too many entries is accepted")
	}
}

func TestConnectRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	a, _ := newPair(t, 64)
	for name, peer := range map[string]string{"another family": "::1", "multicast": "224.0.0.1", "unspecified": "0.0.0.0"} {
		q := a.newQP(verbs.QPConfig{})
		if err := q.Connect(t.Context(), verbs.Endpoint{Addr: parseAddr(peer), QPN: 5}); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if err := a.qp.Connect(t.Context(), verbs.Endpoint{Addr: addrB, QPN: 5}); err == nil {
		t.Error("a connected queue pair connects again")
	}
}

func TestWaitEndsWithItsContextOrQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, _ := newPair(t, 64)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var wc [1]verbs.WC
		if _, err := a.cq.Wait(ctx, wc[:]); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Wait: %v", err)
		}
		done := make(chan error)
		go func() {
			_, err := a.cq.Wait(t.Context(), wc[:])
			done <- err
		}()
		synctest.Wait()
		check(t, a.cq.Close())
		if err := <-done; !errors.Is(err, net.ErrClosed) {
			t.Errorf("Wait on a closed queue: %v", err)
		}
	})
}

// A completion queue that overflows raises an event that names it (IBTA
// 11.6.3).
func TestCompletionQueueOverflow(t *testing.T) {
	t.Parallel()
	a, b := newPair(t, 64)
	small, err := a.dev.CreateCQ(2)
	check(t, err)
	q, err := a.pd.CreateQP(verbs.QPConfig{SendCQ: small, RecvCQ: small, SignalAll: true})
	check(t, err)
	qb := b.newQP(verbs.QPConfig{})
	connect(t, q, qb)
	for i := range 8 {
		check(t, q.PostSend(verbs.SendWR{ID: uint64(i), Opcode: verbs.OpWrite, Inline: []byte{1}, Remote: b.mr.RemoteAt(0)}))
	}
	for {
		e, err := a.dev.AsyncEvent(t.Context())
		check(t, err)
		if e.Event == verbs.EventCQError && e.CQ == small {
			want := fmt.Sprintf("CQ_ERR on CQ %d: a completion of QP %v was lost, because the queue with room for 2 was full; poll it sooner, or make it larger (Resize)", small.Handle(), q.QPN())
			if e.String() != want || small.Handle() == a.cq.Handle() {
				t.Errorf("the event says %q, want %q", e, want)
			}
			break
		}
	}
	if q.State() != verbs.StateErr {
		t.Errorf("the queue pair is in %v", q.State())
	}
}

// Whatever order things are closed in, nothing panics and nothing stays: the
// bubble of synctest fails when a goroutine is left.
func TestCloseInAnyOrder(t *testing.T) {
	t.Parallel()
	for order := range 24 {
		synctest.Test(t, func(t *testing.T) {
			la, lb := fabric.Pair(addrA, addrB)
			da, err := verbs.OpenLink(la, verbs.Config{})
			check(t, err)
			db, err := verbs.OpenLink(lb, verbs.Config{})
			check(t, err)
			a, b := newSide(t, da, 1<<20), newSide(t, db, 1<<20)
			connect(t, a.qp, b.qp)
			a.post(verbs.SendWR{ID: 1, Opcode: verbs.OpWrite, SGList: []verbs.SGE{a.mr.Slice(0, 1<<20)}, Remote: b.mr.RemoteAt(0)})
			b.post(verbs.SendWR{ID: 1, Opcode: verbs.OpRead, SGList: []verbs.SGE{b.mr.Slice(0, 1<<20)}, Remote: a.mr.RemoteAt(0)})
			closers := []func() error{a.qp.Close, a.cq.Close, a.mr.Close, a.pd.Close}
			for n, k := order, len(closers); k > 0; k-- {
				i := n % k
				n /= k
				check(t, closers[i]())
				closers[i] = closers[k-1]
			}
			check(t, a.dev.Close())
			check(t, b.dev.Close())
			check(t, a.qp.Close())
			if _, err := a.dev.AllocPD(); !errors.Is(err, net.ErrClosed) {
				t.Errorf("a closed device allocates: %v", err)
			}
		})
	}
}

// The key of a region that was deregistered is wrong (IBTA 9.7.4.1.5).
func TestDeregisteredMemoryIsOutOfReach(t *testing.T) {
	t.Parallel()
	a, b := newPair(t, 64)
	remote := b.mr.RemoteAt(0)
	check(t, b.mr.Close())
	a.post(verbs.SendWR{ID: 1, Opcode: verbs.OpWrite, Inline: []byte("x"), Remote: remote})
	if wc := a.wait(); wc.Status != verbs.StatusRemAccessErr {
		t.Errorf("status %v", wc.Status)
	}
}
