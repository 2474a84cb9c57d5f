package verbs_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/verbs"
)

// newXRCPair connects an initiator of a with a target of b.
func newXRCPair(t *testing.T) (a, b *side, x *verbs.XRCD, initiator, target *verbs.QP) {
	t.Helper()
	a, b = newPair(t, 4096)
	x, err := b.dev.OpenXRCD()
	check(t, err)
	target, err = b.pd.CreateQP(verbs.QPConfig{Type: verbs.XRCTarget, XRCD: x})
	check(t, err)
	initiator, err = a.pd.CreateQP(verbs.QPConfig{Type: verbs.XRCInitiator, SendCQ: a.cq})
	check(t, err)
	connect(t, initiator, target)
	return a, b, x, initiator, target
}

// A batch for an initiator names the queue of each request. On a target every
// batch is refused, also an empty one posts nothing and does no harm.
func TestXRCBatch(t *testing.T) {
	t.Parallel()
	a, b, x, initiator, target := newXRCPair(t)
	var srqs [2]*verbs.SRQ
	for i := range srqs {
		var err error
		srqs[i], err = b.pd.CreateSRQ(verbs.SRQConfig{XRCD: x, CQ: b.cq})
		check(t, err)
		check(t, srqs[i].PostRecv(verbs.RecvWR{ID: uint64(10 + i), SGList: []verbs.SGE{b.mr.Slice(64*i, 64)}}))
	}
	batch := initiator.NewBatch()
	batch.Send().Inline([]byte{1}).ToSRQ(srqs[1].Number())
	batch.Write(b.mr.RemoteAt(512)).Inline([]byte{3}).ToSRQ(srqs[0].Number())
	batch.Send().Inline([]byte{2}).ToSRQ(srqs[0].Number()).ID(7).Signaled()
	check(t, batch.Post())
	a.waitOK(7)
	for _, id := range []uint64{11, 10} {
		if wc := b.waitOK(id); wc.QPN != target.QPN() || wc.SrcQPN != initiator.QPN() {
			t.Errorf("%+v", wc)
		}
	}
	if m := b.mr.Bytes(); m[0] != 2 || m[64] != 1 || m[512] != 3 {
		t.Errorf("memory has %d, %d, %d", m[0], m[64], m[512])
	}
	var post *verbs.PostError
	batch.Send().Inline([]byte{1})
	if err := batch.Post(); !errors.As(err, &post) || post.Index != 0 || !errors.Is(err, verbs.ErrRemoteSRQN) {
		t.Error(err)
	}
	wrong := target.NewBatch()
	check(t, wrong.Post())
	wrong.Send().Inline([]byte{1}).ToSRQ(srqs[0].Number()).ID(5)
	if err := wrong.Post(); !errors.As(err, &post) || post.Index != 0 || post.ID != 5 || !errors.Is(err, verbs.ErrNoSend) {
		t.Error(err)
	}
	if err := target.PostSend(verbs.SendWR{ID: 6, RemoteSRQN: srqs[0].Number()}); !errors.As(err, &post) || post.ID != 6 || !errors.Is(err, verbs.ErrNoSend) {
		t.Error(err)
	}
	if err := target.PostRecv(verbs.RecvWR{}); !errors.Is(err, verbs.ErrShared) {
		t.Error(err)
	}
	if err := initiator.PostRecv(verbs.RecvWR{}); !errors.Is(err, verbs.ErrNoReceive) {
		t.Error(err)
	}
}

// The counters of an initiator are those of requests, and those of a target the
// ones of answers and receives. Both have a QPN, a peer and a PSN to tell.
func TestXRCStats(t *testing.T) {
	t.Parallel()
	a, b, x, initiator, target := newXRCPair(t)
	srq, err := b.pd.CreateSRQ(verbs.SRQConfig{XRCD: x, CQ: b.cq})
	check(t, err)
	const n = 5
	for i := range n {
		check(t, srq.PostRecv(verbs.RecvWR{ID: uint64(i), SGList: []verbs.SGE{b.mr.Slice(0, 64)}}))
		check(t, initiator.PostSend(verbs.SendWR{ID: uint64(i), Opcode: verbs.OpSend, SGList: []verbs.SGE{a.mr.Slice(0, 64)}, Signaled: true, RemoteSRQN: srq.Number()}))
		a.waitOK(uint64(i))
		b.waitOK(uint64(i))
	}
	s, r := initiator.Stats(), target.Stats()
	again := 64 * s.Retransmits // where the machine was too busy to answer in time
	if s.SendPosted != n || s.SendDone != n || s.TxBytes != 64*n+again || s.RecvPosted != 0 || s.RecvDone != 0 || s.AcksSent != 0 {
		t.Errorf("initiator: %+v", s)
	}
	if r.RecvDone != n || r.RxBytes < 64*n || r.RxBytes > 64*n+again || r.SendPosted != 0 || r.SendDone != 0 || r.AcksSent == 0 || r.RecvPosted != 0 {
		t.Errorf("target: %+v", r)
	}
	for _, q := range []*verbs.QP{initiator, target} {
		e := q.Endpoint()
		if e.QPN != q.QPN() || !e.Addr.IsValid() || !e.PathMTU.Valid() {
			t.Errorf("%v: %+v", q.Type(), e)
		}
	}
	if i, u := initiator.Query(), target.Query(); i.DestQPN != target.QPN() || u.DestQPN != initiator.QPN() || i.SQPSN != u.RQPSN {
		t.Errorf("initiator %+v, target %+v", i, u)
	}
	if c := target.Config(); c.XRCD != x || c.MaxSendWR != 0 || c.MaxRecvWR != 0 {
		t.Errorf("target made for %+v", c)
	}
}

// The completion queue of a shared receive queue of XRC tells its channel of
// messages that come through any target; the queue tells of its limit, and a
// target that fails of its last receive.
func TestXRCEvents(t *testing.T) {
	t.Parallel()
	_, b, x, initiator, target := newXRCPair(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ch, err := b.dev.CreateCompChannel()
	check(t, err)
	cq, err := b.dev.CreateCQ(16, verbs.WithChannel(ch))
	check(t, err)
	srq, err := b.pd.CreateSRQ(verbs.SRQConfig{XRCD: x, CQ: cq, MaxWR: 4, Limit: 2})
	check(t, err)
	for i := range 2 {
		check(t, srq.PostRecv(verbs.RecvWR{ID: uint64(i), SGList: []verbs.SGE{b.mr.Slice(0, 64)}}))
	}
	cq.Arm(true)
	send := verbs.SendWR{Opcode: verbs.OpSend, Inline: []byte{1}, RemoteSRQN: srq.Number(), Signaled: true}
	check(t, initiator.PostSend(send))
	if e, err := b.dev.AsyncEvent(ctx); err != nil || e.Event != verbs.EventSRQLimit || e.SRQ != srq {
		t.Errorf("%v %v", e, err)
	}
	if wc := waitCQ(t, cq); wc.ID != 0 {
		t.Errorf("%+v", wc)
	}
	send.Solicited = true
	check(t, initiator.PostSend(send))
	if got, err := ch.Get(ctx); err != nil || got != cq {
		t.Errorf("%v %v", got, err)
	}
	if wc := waitCQ(t, cq); wc.ID != 1 || wc.QPN != target.QPN() {
		t.Errorf("%+v", wc)
	}
	check(t, target.Modify(&verbs.Attr{State: verbs.StateErr}, verbs.AttrState))
	if e, err := b.dev.AsyncEvent(ctx); err != nil || e.Event != verbs.EventLastWQEReached || e.QP != target {
		t.Errorf("%v %v", e, err)
	}
}
