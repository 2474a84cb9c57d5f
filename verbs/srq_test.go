package verbs_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/verbs"
)

// TestSRQ: two queue pairs take from one shared receive queue. A completion
// says which of them it was, and errors say what was wrong and what to do.
func TestSRQ(t *testing.T) {
	t.Parallel()
	a, b := newPair(t, 4096)
	srq, err := b.pd.CreateSRQ(verbs.SRQConfig{MaxWR: 3, MaxSGE: 1, UserData: "mine"})
	check(t, err)
	if srq.UserData() != "mine" || srq.Device() != b.dev {
		t.Error("it is another queue")
	}
	var shared, peers [2]*verbs.QP
	for i := range shared {
		shared[i], peers[i] = b.newQP(verbs.QPConfig{SRQ: srq}), a.newQP(verbs.QPConfig{})
		connect(t, peers[i], shared[i])
	}
	if c := shared[0].Config(); c.SRQ != srq || c.MaxRecvWR != 0 || c.MaxRecvSGE != 1 {
		t.Errorf("made for %+v", c)
	}
	var wrs []verbs.RecvWR
	for i := range 4 {
		wrs = append(wrs, verbs.RecvWR{ID: uint64(10 + i), SGList: []verbs.SGE{b.mr.Slice(100*i, 100)}})
	}
	var post *verbs.PostError
	if err := shared[0].PostRecv(wrs[0]); !errors.Is(err, verbs.ErrShared) {
		t.Error(err)
	}
	if err := srq.PostRecv(wrs...); !errors.As(err, &post) || post.Index != 3 || post.ID != 13 || !errors.Is(err, verbs.ErrQueueFull) {
		t.Error(err)
	}
	check(t, srq.SetLimit(2))
	if got, want := srq.Query(), (verbs.SRQAttr{MaxWR: 3, MaxSGE: 1, Limit: 2, Posted: 3}); got != want {
		t.Errorf("%+v", got)
	}
	for i, from := range []int{1, 0} {
		check(t, peers[from].PostSend(verbs.SendWR{Opcode: verbs.OpSend, Inline: []byte{byte(from)}, Signaled: true}))
		a.wait()
		if wc := b.waitOK(uint64(10 + i)); wc.QPN != shared[from].QPN() || b.mr.Bytes()[100*i] != byte(from) {
			t.Errorf("%+v", wc)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	e, err := b.dev.AsyncEvent(ctx)
	if check(t, err); e.Event != verbs.EventSRQLimit || e.SRQ != srq || e.QP != nil || e.String() != "SRQ_LIMIT_REACHED on SRQ 1" {
		t.Errorf("%v", e)
	}
	var r *verbs.RangeError
	if err := srq.Resize(0); !errors.As(err, &r) || r.What != "MaxWR" {
		t.Error(err)
	}
	if err := srq.Modify(verbs.SRQAttr{}, 4); err == nil {
		t.Error("an unknown attribute was taken")
	}
	check(t, srq.Resize(100))
	if err := srq.Close(); !errors.Is(err, verbs.ErrInUse) {
		t.Error(err)
	}
	for _, q := range shared {
		check(t, q.Close())
	}
	check(t, srq.Close())
	if err := srq.PostRecv(wrs...); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	if err := srq.SetLimit(1); !errors.Is(err, verbs.ErrClosed) {
		t.Error(err)
	}
	if _, err := b.pd.CreateSRQ(verbs.SRQConfig{MaxSGE: 1000}); !errors.As(err, &r) || r.What != "MaxSGE" {
		t.Error(err)
	}
	if _, err := b.pd.CreateQP(verbs.QPConfig{SendCQ: b.cq, RecvCQ: b.cq, SRQ: srq}); !errors.Is(err, verbs.ErrClosed) {
		t.Error(err)
	}
}

// A queue that is made beside the Close of its domain is refused, or says that
// the domain has gone.
func TestSRQBesideCloseOfPD(t *testing.T) {
	t.Parallel()
	a, _ := newPair(t, 64)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		for e, err := range a.dev.Events(ctx) {
			if err == nil && (e.Event != verbs.EventSRQError || e.QP != nil || e.CQ != nil) {
				t.Errorf("%v", e)
			}
		}
	})
	for range 200 {
		pd, err := a.dev.AllocPD()
		check(t, err)
		var made sync.WaitGroup
		for range 4 {
			made.Go(func() {
				s, err := pd.CreateSRQ(verbs.SRQConfig{MaxWR: 1})
				switch {
				case err == nil:
					check(t, s.Close())
				case !errors.Is(err, verbs.ErrClosed):
					t.Error(err)
				}
			})
		}
		check(t, pd.Close())
		made.Wait()
	}
}
