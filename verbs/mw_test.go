package verbs_test

import (
	"errors"
	"testing"

	"github.com/gosoftroce/rocev2/verbs"
)

// bindable returns a region of the side that windows may be bound to.
func (s *side) bindable(size int) *verbs.MR {
	s.t.Helper()
	mr, err := s.pd.AllocMemory(size, verbs.LocalWrite|verbs.MWBind)
	check(s.t, err)
	return mr
}

func (s *side) window(typ verbs.MWType) *verbs.MW {
	s.t.Helper()
	mw, err := s.pd.AllocMW(typ)
	check(s.t, err)
	return mw
}

// carry posts a local operation and waits for it.
func (s *side) carry(wr verbs.SendWR, want verbs.WCOpcode) {
	s.t.Helper()
	wr.ID = 77
	s.post(wr)
	if wc := s.waitOK(77); wc.Opcode != want {
		s.t.Errorf("completed %v, want %v", wc.Opcode, want)
	}
}

// A window of either type: bound, used by the peer, taken away.
func TestWindow(t *testing.T) {
	t.Parallel()
	for _, typ := range []verbs.MWType{verbs.MWType1, verbs.MWType2} {
		a, b := newPair(t, 64)
		mr, mw := b.bindable(4096), b.window(typ)
		if mw.Bound() || mw.Remote() != (verbs.RemoteMemory{}) || mw.Type() != typ || mw.RKey() == 0 {
			t.Errorf("a new window: %v, %v", mw.Bound(), mw.Remote())
		}
		wr := mw.BindTo(mr, 1024, 512, verbs.RemoteWrite)
		b.carry(wr, verbs.WCBindMW)
		remote := mw.Remote()
		if !mw.Bound() || remote.Addr != mr.Addr()+1024 || remote.Length != 512 || typ == verbs.MWType2 && remote.RKey != wr.Bind.NewKey {
			t.Errorf("bound to %+v", remote)
		}
		if q := mr.Query(); q.Windows != 1 || q.Access != mr.Access() || q.LKey != mr.LKey() || q.Length != 4096 || !q.Valid {
			t.Errorf("query: %+v", q)
		}
		a.post(verbs.SendWR{ID: 1, Opcode: verbs.OpWrite, Inline: []byte("through"), Remote: remote.At(100)})
		a.waitOK(1)
		if got := string(mr.Bytes()[1124:1131]); got != "through" {
			t.Errorf("the region has %q", got)
		}
		if err := mr.Close(); err == nil {
			t.Error("a region with a window was closed")
		}
		b.carry(mw.Unbind(), map[verbs.MWType]verbs.WCOpcode{verbs.MWType1: verbs.WCBindMW, verbs.MWType2: verbs.WCLocalInv}[typ])
		a.post(verbs.SendWR{ID: 2, Opcode: verbs.OpWrite, Inline: []byte("late"), Remote: remote.At(0)})
		if wc := a.wait(); wc.Status != verbs.StatusRemAccessErr {
			t.Errorf("after the end of the window: %v", wc)
		}
		check(t, mr.Close())
		check(t, mw.Close())
		check(t, mw.Close())
		if mw.RKey() != 0 {
			t.Errorf("a closed window has key %v", mw.RKey())
		}
	}
}

// The peer gives the key back with its message; and one queue pair cannot use
// the window of type 2 of another.
func TestWindowOfAQueuePair(t *testing.T) {
	t.Parallel()
	a, b := newPair(t, 64)
	mr, mw := b.bindable(4096), b.window(verbs.MWType2)
	c, d := a.newQP(verbs.QPConfig{MaxSendWR: 4}), b.newQP(verbs.QPConfig{MaxSendWR: 4})
	connect(t, c, d)
	b.carry(mw.BindTo(mr, 0, 64, verbs.RemoteRead), verbs.WCBindMW)
	check(t, c.PostSend(verbs.SendWR{ID: 3, Opcode: verbs.OpRead, SGList: []verbs.SGE{a.mr.Slice(0, 8)}, Remote: mw.Remote().At(0), Signaled: true}))
	if wc := a.wait(); wc.Status != verbs.StatusRemAccessErr || wc.QPN != c.QPN() {
		t.Errorf("a window of another queue pair: %v", wc)
	}
	b.recv(4, 0, 64)
	a.post(verbs.SendWR{ID: 5, Opcode: verbs.OpSendInv, Inline: []byte("done"), InvalidateKey: mw.RKey()})
	a.waitOK(5)
	if wc := b.waitOK(4); !wc.WithInv || wc.InvalidatedKey != mw.RKey() || mw.Bound() {
		t.Errorf("%v, bound %v", wc, mw.Bound())
	}
	b.carry(mw.BindTo(mr, 64, 64, verbs.RemoteRead|verbs.ZeroBasedWindow), verbs.WCBindMW)
	if r := mw.Remote(); r.Addr != 0 || r.Length != 64 {
		t.Errorf("zero-based: %+v", r)
	}
}

// What cannot be bound says why, and the peers of the domain notice nothing.
func TestWindowErrors(t *testing.T) {
	t.Parallel()
	_, b := newPair(t, 64)
	mr, mw := b.bindable(4096), b.window(verbs.MWType2)
	other, err := b.dev.AllocPD()
	check(t, err)
	foreign, err := other.AllocMemory(4096, verbs.LocalWrite|verbs.MWBind)
	check(t, err)
	for why, c := range map[string]struct {
		wr   verbs.SendWR
		want verbs.Fault
	}{
		"behind the region":  {mw.BindTo(mr, 4096, 1, verbs.RemoteRead), verbs.FaultOutOfBounds},
		"before the region":  {mw.BindTo(mr, -8, 16, verbs.RemoteRead), verbs.FaultOutOfBounds},
		"negative length":    {mw.BindTo(mr, 8, -4, verbs.RemoteRead), verbs.FaultOutOfBounds},
		"without MWBind":     {mw.BindTo(b.mr, 0, 8, verbs.RemoteRead), verbs.FaultNoAccess},
		"of another domain":  {mw.BindTo(foreign, 0, 8, verbs.RemoteRead), verbs.FaultWrongPD},
		"local rights":       {mw.BindTo(mr, 0, 8, verbs.LocalWrite), verbs.FaultNoAccess},
		"invalidate unbound": {mw.Unbind(), verbs.FaultUnknownKey},
		"invalidate an MR":   {verbs.SendWR{Opcode: verbs.OpLocalInv, InvalidateKey: mr.RKey()}, verbs.FaultNotInvalidatable},
	} {
		q, p := b.newQP(verbs.QPConfig{MaxSendWR: 4}), b.newQP(verbs.QPConfig{})
		connect(t, q, p)
		check(t, q.PostSend(c.wr))
		status := verbs.StatusMWBindErr
		if c.wr.Opcode == verbs.OpLocalInv {
			status = verbs.StatusLocQPOpErr
		}
		if wc := b.wait(); wc.Status != status || wc.Fault() != c.want || q.State() != verbs.StateErr {
			t.Errorf("%s: %v, want %v", why, wc, c.want)
		}
	}
	for why, wr := range map[string]verbs.SendWR{
		"no Bind":   {Opcode: verbs.OpBindMW},
		"no Reg":    {Opcode: verbs.OpRegMR},
		"with data": {Opcode: verbs.OpLocalInv, Inline: []byte{1}},
	} {
		if err := b.qp.PostSend(wr); err == nil {
			t.Errorf("%s: posted", why)
		} else {
			t.Logf("%s: %v", why, err)
		}
	}
	if mw, err := b.pd.AllocMW(3); mw != nil || err == nil {
		t.Error("a window of type 3")
	}
	check(t, b.pd.Close()) // its windows first
	if _, err := b.pd.AllocMW(verbs.MWType1); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("a window of a closed domain: %v", err)
	}
	if _, err := b.pd.AllocFastMR(8); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("a fast registration region of a closed domain: %v", err)
	}
}

// A fast registration region over two buffers: registered, told to the peer and
// used in one go, ended by the peer, and registered over others.
func TestFastRegistration(t *testing.T) {
	t.Parallel()
	a, b := newPair(t, 64)
	f, err := b.pd.AllocFastMR(100)
	check(t, err)
	one, two := make([]byte, 40), make([]byte, 60)
	check(t, f.Map(one, nil, two))
	wr := f.Register(0x1000, verbs.LocalWrite|verbs.RemoteWrite|verbs.RemoteAtomic)
	wr.ID = 1
	a.recv(2, 0, 64)
	check(t, b.qp.PostSend(wr, verbs.SendWR{ID: 3, Opcode: verbs.OpSend, Inline: []byte("go"), Signaled: true}))
	b.waitOK(3)
	a.waitOK(2)
	if !f.Valid() || f.RKey() != wr.Reg.NewKey || f.LKey() != f.LKeyWith(wr.Reg.NewKey) {
		t.Errorf("valid %v, keys %v and %v", f.Valid(), f.LKey(), f.RKey())
	}
	remote := verbs.RemoteMemory{Addr: 0x1000, Length: 100, RKey: f.RKey()}
	a.post(verbs.SendWR{ID: 4, Opcode: verbs.OpWrite, Inline: []byte("both"), Remote: remote.At(38)})
	a.waitOK(4)
	if string(one[38:])+string(two[:2]) != "both" {
		t.Errorf("the buffers have %q and %q", one[38:], two[:2])
	}
	b.recv(5, 0, 64)
	a.post(verbs.SendWR{ID: 6, Opcode: verbs.OpSendInv, InvalidateKey: f.RKey()})
	a.waitOK(6)
	b.waitOK(5)
	if f.Valid() {
		t.Error("valid after the peer has ended it")
	}
	check(t, f.Map(make([]byte, 100)))
	b.carry(f.Register(0, verbs.LocalWrite), verbs.WCRegMR)
	if err := f.Map(one); err == nil {
		t.Error("memory was mapped to a valid region")
	}
	b.carry(f.Invalidate(), verbs.WCLocalInv)
	for _, bufs := range [][][]byte{{}, {nil}, {make([]byte, 60), make([]byte, 41)}} {
		if err := f.Map(bufs...); err == nil {
			t.Errorf("%d buffers were mapped", len(bufs))
		}
	}
	check(t, f.Close())
	for _, n := range []int{0, -1} {
		if _, err := b.pd.AllocFastMR(n); err == nil {
			t.Errorf("a region of %d bytes", n)
		}
	}
}

// A READ into a region that ends with it.
func TestReadWithInvalidate(t *testing.T) {
	t.Parallel()
	a, b := newPair(t, 64)
	copy(b.mr.Bytes(), "answer")
	f, err := a.pd.AllocFastMR(64)
	check(t, err)
	buf := make([]byte, 64)
	check(t, f.Map(buf))
	reg := f.Register(0x1000, verbs.LocalWrite)
	key := reg.Reg.NewKey
	check(t, a.qp.PostSend(reg, verbs.SendWR{ID: 1, Opcode: verbs.OpReadInv, Remote: b.mr.RemoteAt(0), InvalidateKey: key, Signaled: true,
		SGList: []verbs.SGE{{Addr: 0x1000, Length: 6, LKey: f.LKeyWith(key)}}}))
	if wc := a.waitOK(1); wc.Opcode != verbs.WCRead || string(buf[:6]) != "answer" || f.Valid() {
		t.Errorf("%v: %q, valid %v", wc, buf[:6], f.Valid())
	}
}
