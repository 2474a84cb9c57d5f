package verbs_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/verbs"
)

var (
	addrA = netip.MustParseAddr("192.0.2.1")
	addrB = netip.MustParseAddr("192.0.2.2")
)

const allAccess = verbs.LocalWrite | verbs.RemoteWrite | verbs.RemoteRead | verbs.RemoteAtomic

// side is one end of a connection: a device with one of everything.
type side struct {
	t   testing.TB
	dev *verbs.Device
	pd  *verbs.PD
	cq  *verbs.CQ
	qp  *verbs.QP
	mr  *verbs.MR
}

func newSide(t testing.TB, dev *verbs.Device, size int) *side {
	t.Helper()
	s := &side{t: t, dev: dev}
	var err error
	s.pd, err = dev.AllocPD()
	check(t, err)
	s.cq, err = dev.CreateCQ(256)
	check(t, err)
	s.mr, err = s.pd.RegisterMemory(make([]byte, size), allAccess)
	check(t, err)
	s.qp = s.newQP(verbs.QPConfig{MaxSendWR: 64, MaxRecvWR: 64})
	return s
}

func (s *side) newQP(c verbs.QPConfig) *verbs.QP {
	s.t.Helper()
	c.SendCQ, c.RecvCQ = s.cq, s.cq
	q, err := s.pd.CreateQP(c)
	check(s.t, err)
	return q
}

// newPair makes two connected sides: two devices on an in-process network, or
// one device in a test that TestLoopback has started.
func newPair(t testing.TB, size int, opts ...verbs.ConnectOption) (a, b *side) {
	t.Helper()
	if overLoopback(t) {
		return newLoopbackPair(t, size, opts...)
	}
	la, lb := fabric.Pair(addrA, addrB)
	da, err := verbs.OpenLink(la, verbs.Config{})
	check(t, err)
	db, err := verbs.OpenLink(lb, verbs.Config{})
	check(t, err)
	t.Cleanup(func() { check(t, da.Close()); check(t, db.Close()) })
	a, b = newSide(t, da, size), newSide(t, db, size)
	connect(t, a.qp, b.qp, opts...)
	return a, b
}

func connect(t testing.TB, a, b *verbs.QP, opts ...verbs.ConnectOption) {
	t.Helper()
	check(t, a.Connect(t.Context(), b.Endpoint(), opts...))
	check(t, b.Connect(t.Context(), a.Endpoint(), opts...))
}

// wait takes one completion.
func (s *side) wait() verbs.WC {
	s.t.Helper()
	return waitCQ(s.t, s.cq)
}

func waitCQ(t testing.TB, cq *verbs.CQ) verbs.WC {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wc [1]verbs.WC
	if _, err := cq.Wait(ctx, wc[:]); err != nil {
		t.Fatal(err)
	}
	return wc[0]
}

// waitOK takes one completion, which must be a success with the given id.
func (s *side) waitOK(id uint64) verbs.WC {
	s.t.Helper()
	wc := s.wait()
	if wc.Status != verbs.StatusSuccess || wc.ID != id {
		s.t.Fatalf("completion %+v (%v), want success of %d", wc, wc.Status, id)
	}
	return wc
}

// post sends one request, signaled.
func (s *side) post(wr verbs.SendWR) {
	s.t.Helper()
	wr.Signaled = true
	check(s.t, s.qp.PostSend(wr))
}

func (s *side) recv(id uint64, off, n int) {
	s.t.Helper()
	check(s.t, s.qp.PostRecv(verbs.RecvWR{ID: id, SGList: []verbs.SGE{s.mr.Slice(off, n)}}))
}

// fill makes the side's memory random and returns a copy of it.
func (s *side) fill(seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	b := s.mr.Bytes()
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return bytes.Clone(b)
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
