package verbs_test

import (
	"bytes"
	"errors"
	"net/netip"
	"testing"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/verbs"
)

const testQKey = 0x11111111

// newDatagramPair makes two sides on an in-process network with an active UD
// queue pair each.
func newDatagramPair(t testing.TB, c verbs.Config) (a, b *side) {
	t.Helper()
	la, lb := fabric.Pair(addrA, addrB)
	da, err := verbs.OpenLink(la, c)
	check(t, err)
	db, err := verbs.OpenLink(lb, c)
	check(t, err)
	t.Cleanup(func() { check(t, da.Close()); check(t, db.Close()) })
	a, b = newSide(t, da, 1<<16), newSide(t, db, 1<<16)
	for _, s := range []*side{a, b} {
		check(t, s.qp.Close())
		s.qp = s.newQP(verbs.QPConfig{Type: verbs.UD})
		check(t, s.qp.Activate(testQKey))
	}
	return a, b
}

// to makes an address handle for the other side.
func (s *side) to(o *side) *verbs.AddressHandle {
	s.t.Helper()
	ah, err := s.pd.CreateAH(verbs.AddressVector{DGID: o.dev.Addr()})
	check(s.t, err)
	return ah
}

func (s *side) datagram(o *side, id uint64, n int) verbs.SendWR {
	return verbs.SendWR{ID: id, Opcode: verbs.OpSend, SGList: []verbs.SGE{s.mr.Slice(0, n)},
		AH: s.to(o), RemoteQPN: o.qp.QPN(), RemoteQKey: testQKey}
}

// TestDatagram: a datagram arrives after 40 bytes of header, and can be
// answered from what its completion and its buffer tell.
func TestDatagram(t *testing.T) {
	t.Parallel()
	a, b := newDatagramPair(t, verbs.Config{})
	want := a.fill(1)
	b.recv(7, 1000, verbs.GRHLen+4096)
	wr := a.datagram(b, 1, 4096)
	wr.Opcode, wr.Imm = verbs.OpSendImm, 0xdeadbeef
	check(t, wr.AH.Modify(verbs.AddressVector{DGID: addrB, TrafficClass: 0x68, HopLimit: 1}))
	a.post(wr)
	a.waitOK(1)
	wc := b.waitOK(7)
	if !wc.WithGRH || wc.ByteLen != verbs.GRHLen+4096 || wc.SrcQPN != a.qp.QPN() || !wc.WithImm || wc.Imm != 0xdeadbeef || wc.Opcode != verbs.WCRecv {
		t.Errorf("completion %+v", wc)
	}
	buf := b.mr.Bytes()[1000:]
	if !bytes.Equal(buf[verbs.GRHLen:][:4096], want[:4096]) {
		t.Error("other data has arrived")
	}
	grh, err := verbs.ParseGRH(buf)
	check(t, err)
	if grh.Src != addrA || grh.Dst != addrB || grh.HopLimit != 1 {
		t.Errorf("header %+v", grh)
	}
	back, err := b.pd.AHFromWC(wc, buf)
	check(t, err)
	if av := back.Query(); av.DGID != addrA || av.HopLimit != 0 || av.TrafficClass != 0x68 {
		t.Errorf("address handle of the completion %+v", av)
	}
	a.recv(8, 0, 100)
	b.post(verbs.SendWR{ID: 2, Opcode: verbs.OpSend, Inline: []byte("answer"), AH: back, RemoteQPN: wc.SrcQPN, RemoteQKey: testQKey})
	b.waitOK(2)
	if wc := a.waitOK(8); wc.ByteLen != verbs.GRHLen+6 || string(a.mr.Bytes()[40:46]) != "answer" {
		t.Errorf("answer %+v", wc)
	}
	// What was left of the hop limit does not bound the way back.
	if grh, err := verbs.ParseGRH(a.mr.Bytes()); err != nil || grh.HopLimit < 64 {
		t.Errorf("header of the answer %+v, %v", grh, err)
	}
}

// TestDatagramMisuse: what is wrong with a datagram is said when it is posted
// (IBTA 11.4.1.1), and nothing is queued.
func TestDatagramMisuse(t *testing.T) {
	t.Parallel()
	a, b := newDatagramPair(t, verbs.Config{})
	other, err := a.dev.AllocPD()
	check(t, err)
	foreign, err := other.CreateAH(verbs.AddressVector{DGID: addrB})
	check(t, err)
	closed := a.to(b)
	check(t, closed.Close())
	check(t, closed.Close())
	good := a.datagram(b, 1, 8)
	for _, c := range []struct {
		name   string
		change func(*verbs.SendWR)
		want   error
		text   string
	}{
		{"READ", func(w *verbs.SendWR) { w.Opcode = verbs.OpRead }, verbs.ErrOpcode, "UD queue pair: RDMA_READ"},
		{"WRITE", func(w *verbs.SendWR) { w.Opcode = verbs.OpWrite }, verbs.ErrOpcode, "UD queue pair: RDMA_WRITE"},
		{"no operation", func(w *verbs.SendWR) { w.Opcode = 0 }, verbs.ErrOpcode, "not set"},
		{"unknown operation", func(w *verbs.SendWR) { w.Opcode = 200 }, verbs.ErrOpcode, "200"},
		{"no handle", func(w *verbs.SendWR) { w.AH = nil }, verbs.ErrNoAH, "AH is not set"},
		{"zero handle", func(w *verbs.SendWR) { w.AH = &verbs.AddressHandle{} }, verbs.ErrAHClosed, "destroyed"},
		{"closed handle", func(w *verbs.SendWR) { w.AH = closed }, verbs.ErrAHClosed, "destroyed"},
		{"handle of another domain", func(w *verbs.SendWR) { w.AH = foreign }, verbs.ErrAHDomain, "another protection domain"},
		{"handle of another device", func(w *verbs.SendWR) { w.AH = b.to(a) }, verbs.ErrAHDomain, "another protection domain"},
		{"no queue pair", func(w *verbs.SendWR) { w.RemoteQPN = 0 }, verbs.ErrRemoteQPN, "not set"},
		{"large queue pair", func(w *verbs.SendWR) { w.RemoteQPN = 1 << 24 }, verbs.ErrRemoteQPN, "24 bits"},
		{"too long", func(w *verbs.SendWR) { w.SGList = []verbs.SGE{a.mr.Slice(0, 4097)} }, verbs.ErrDatagramTooLong, "4097 bytes; the port carries 4096"},
		{"too many entries", func(w *verbs.SendWR) { w.SGList = make([]verbs.SGE, 5) }, verbs.ErrTooManySGE, "MaxSendSGE"},
		{"entry outside", func(w *verbs.SendWR) { w.SGList = []verbs.SGE{a.mr.Slice(-1, 1)} }, verbs.ErrRange, "negative"},
		{"inline too long", func(w *verbs.SendWR) { w.Inline = make([]byte, 65) }, verbs.ErrInlineTooLong, "MaxInline"},
	} {
		wr := good
		c.change(&wr)
		err := a.qp.PostSend(wr)
		if !errors.Is(err, c.want) || !bytes.Contains([]byte(err.Error()), []byte(c.text)) {
			t.Errorf("%s: %v, want %v naming %q", c.name, err, c.want, c.text)
		}
	}
	if s := a.qp.Stats(); s.SendPosted != 0 || a.qp.State() != verbs.StateRTS {
		t.Errorf("%d sends were queued", s.SendPosted)
	}
	if err := a.qp.Connect(t.Context(), b.qp.Endpoint()); !errors.Is(err, verbs.ErrAttrNotAllowed) {
		t.Errorf("connecting: %v", err)
	}
	rc := a.newQP(verbs.QPConfig{})
	if err := rc.Activate(1); !errors.Is(err, verbs.ErrAttrNotAllowed) {
		t.Errorf("activating RC: %v", err)
	}
	if err := a.qp.Activate(1); !errors.Is(err, verbs.ErrTransition) {
		t.Errorf("activating again: %v", err)
	}
	ud := a.newQP(verbs.QPConfig{Type: verbs.UD})
	if err := ud.Modify(&verbs.Attr{State: verbs.StateInit, Port: 1}, verbs.AttrState|verbs.AttrPKeyIndex|verbs.AttrPort); !errors.Is(err, verbs.ErrAttrMissing) {
		t.Errorf("without a Q_Key: %v", err)
	}
}

// TestUnreliableConnection: SEND and WRITE with and without immediate data over
// UC, of many packets, and what UC does not have.
func TestUnreliableConnection(t *testing.T) {
	t.Parallel()
	a, b := newPair(t, 1<<18)
	a.qp, b.qp = a.newQP(verbs.QPConfig{Type: verbs.UC}), b.newQP(verbs.QPConfig{Type: verbs.UC})
	connect(t, a.qp, b.qp)
	want := a.fill(2)
	remote := b.mr.Remote()
	b.recv(1, 0, 1<<16)
	a.post(verbs.SendWR{ID: 10, Opcode: verbs.OpSend, SGList: []verbs.SGE{a.mr.Slice(0, 50001)}})
	a.waitOK(10)
	if wc := b.waitOK(1); wc.ByteLen != 50001 || wc.WithGRH || !bytes.Equal(b.mr.Bytes()[:50001], want[:50001]) {
		t.Errorf("SEND: %+v", wc)
	}
	b.recv(2, 0, 0)
	a.post(verbs.SendWR{ID: 11, Opcode: verbs.OpWrite, SGList: []verbs.SGE{a.mr.Slice(1, 70000)}, Remote: remote.At(100000)})
	a.post(verbs.SendWR{ID: 12, Opcode: verbs.OpWriteImm, Imm: 42, SGList: []verbs.SGE{a.mr.Slice(5, 9000)}, Remote: remote.At(200000)})
	a.waitOK(11)
	a.waitOK(12)
	if wc := b.waitOK(2); wc.Opcode != verbs.WCRecvWriteImm || wc.Imm != 42 || wc.ByteLen != 9000 {
		t.Errorf("WRITE with immediate: %+v", wc)
	}
	if !bytes.Equal(b.mr.Bytes()[100000:170000], want[1:70001]) || !bytes.Equal(b.mr.Bytes()[200000:209000], want[5:9005]) {
		t.Error("WRITE: other data")
	}
	for _, op := range []verbs.Opcode{verbs.OpRead, verbs.OpFetchAdd, verbs.OpCompareSwap, verbs.OpSendInv} {
		if err := a.qp.PostSend(verbs.SendWR{Opcode: op, SGList: []verbs.SGE{a.mr.Slice(0, 8)}, Remote: remote.At(0)}); !errors.Is(err, verbs.ErrOpcode) {
			t.Errorf("%v: %v", op, err)
		}
	}
}

// TestSendQueueError: a request that fails on this side takes a UD queue pair
// to SQE: what was posted is flushed, receives go on, and Modify takes it back
// to RTS (IBTA 10.3.1).
func TestSendQueueError(t *testing.T) {
	t.Parallel()
	a, b := newDatagramPair(t, verbs.Config{})
	bad := a.datagram(b, 1, 8)
	bad.SGList[0].LKey++
	a.post(bad)
	if wc := a.wait(); wc.ID != 1 || wc.Status != verbs.StatusLocProtErr || a.qp.State() != verbs.StateSQE {
		t.Fatalf("%v, state %v", wc, a.qp.State())
	}
	a.post(a.datagram(b, 2, 8))
	if wc := a.wait(); wc.ID != 2 || wc.Status != verbs.StatusWRFlushErr {
		t.Errorf("%v", wc)
	}
	a.recv(3, 0, 100)
	b.post(b.datagram(a, 4, 8))
	a.waitOK(3)
	check(t, a.qp.Modify(&verbs.Attr{State: verbs.StateRTS, CurState: verbs.StateSQE}, verbs.AttrState))
	b.waitOK(4)
	b.recv(5, 0, 100)
	a.post(a.datagram(b, 6, 8))
	a.waitOK(6)
	b.waitOK(5)
}

// TestGSI: a device has one queue pair with number 1, whatever its shards,
// whose Q_Key is the standard's.
func TestGSI(t *testing.T) {
	t.Parallel()
	a, b := newDatagramPair(t, verbs.Config{})
	gsi := func(s *side) *verbs.QP {
		q := s.newQP(verbs.QPConfig{Type: verbs.GSI})
		check(t, q.Init())
		check(t, q.PostRecv(verbs.RecvWR{ID: 100, SGList: []verbs.SGE{s.mr.Slice(0, verbs.GRHLen+256)}}))
		check(t, q.Activate(5))
		return q
	}
	qa, qb := gsi(a), gsi(b)
	if qa.QPN() != 1 || a.dev.QP(1) != qa || qb.Query().QKey != 0x80010000 {
		t.Errorf("number %v, Q_Key %#x", qa.QPN(), qb.Query().QKey)
	}
	if _, err := a.pd.CreateQP(verbs.QPConfig{Type: verbs.GSI, SendCQ: a.cq, RecvCQ: a.cq}); !errors.Is(err, verbs.ErrGSIInUse) {
		t.Errorf("a second one: %v", err)
	}
	// Longer than its receive: dropped, and the next one arrives.
	mad := func(id uint64, n int) {
		t.Helper()
		check(t, qa.PostSend(verbs.SendWR{ID: id, Opcode: verbs.OpSend, Signaled: true, AH: a.to(b), RemoteQPN: 1, SGList: []verbs.SGE{a.mr.Slice(0, n)}}))
		a.waitOK(id)
	}
	mad(1, 257)
	mad(2, 256)
	if wc := b.waitOK(100); wc.ByteLen != verbs.GRHLen+256 || wc.SrcQPN != 1 || wc.QPN != 1 {
		t.Errorf("%+v", wc)
	}
	if s := qb.Stats(); s.Drops.TooLong != 1 || qb.State() != verbs.StateRTS {
		t.Errorf("%+v", s.Drops)
	}
	// A UD queue pair reaches it with that Q_Key, and one may be made anew.
	check(t, qb.Close())
	qb = gsi(b)
	wr := a.datagram(b, 3, 8)
	wr.RemoteQPN, wr.RemoteQKey = 1, 0x00010000
	a.post(wr)
	a.waitOK(3)
	wr.ID, wr.RemoteQKey = 4, 0x80010000 // stands for the own one, which is another
	a.post(wr)
	a.waitOK(4)
	mad(5, 256)
	b.waitOK(100)
	if s := qb.Stats(); s.Drops.QKey != 2 || s.RecvDone != 1 || b.dev.Stats().Drops["qkey"] != 2 {
		t.Errorf("%+v, device %v", s.Drops, b.dev.Stats().Drops)
	}
}

// TestAHFromWCErrors: a completion or a buffer without an address is refused.
func TestAHFromWCErrors(t *testing.T) {
	t.Parallel()
	a, _ := newDatagramPair(t, verbs.Config{})
	for _, c := range []struct {
		wc  verbs.WC
		buf []byte
	}{
		{verbs.WC{}, make([]byte, 40)},
		{verbs.WC{WithGRH: true, Status: verbs.StatusWRFlushErr}, make([]byte, 40)},
		{verbs.WC{WithGRH: true}, make([]byte, 39)},
		{verbs.WC{WithGRH: true}, make([]byte, 40)},
	} {
		if ah, err := a.pd.AHFromWC(c.wc, c.buf); err == nil {
			t.Errorf("%+v of %d bytes: %+v", c.wc, len(c.buf), ah.Query())
		}
	}
}

// TestUDHasNoPeer: what belongs to a peer is refused as such, whatever its
// value.
func TestUDHasNoPeer(t *testing.T) {
	t.Parallel()
	a, _ := newPair(t, 64)
	q := a.newQP(verbs.QPConfig{Type: verbs.UD})
	check(t, q.Init())
	for _, c := range []struct {
		mask verbs.AttrMask
		attr verbs.Attr
	}{
		{verbs.AttrAV, verbs.Attr{}},
		{verbs.AttrAV, verbs.Attr{AV: verbs.AddressVector{DGID: netip.MustParseAddr("239.1.2.3"), SrcPort: 50000}}},
		{verbs.AttrPathMTU, verbs.Attr{PathMTU: verbs.MTU4096}},
		{verbs.AttrMaxRdAtomic, verbs.Attr{MaxRdAtomic: 200}},
		{verbs.AttrMaxDestRdAtomic, verbs.Attr{MaxDestRdAtomic: 200}},
	} {
		var m *verbs.ModifyError
		if err := q.Modify(&c.attr, c.mask); !errors.As(err, &m) || m.Err != verbs.ErrAttrNotAllowed || m.Attr != c.mask || m.Type != verbs.UD {
			t.Errorf("%v of a UD queue pair: %v", c.mask, err)
		}
	}
}
