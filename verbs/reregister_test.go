package verbs_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/gosoftroce/rocev2/verbs"
)

// write has a write to memory of the peer, and returns the status.
func (s *side) write(m verbs.RemoteMemory, text string) verbs.Status {
	s.t.Helper()
	s.post(verbs.SendWR{Opcode: verbs.OpWrite, Inline: []byte(text), Remote: m.At(0)})
	return s.wait().Status
}

// Each change, and each refusal (IBTA 11.2.8.5): keys are new after a change,
// and nothing has changed after a refusal.
func TestReregister(t *testing.T) {
	t.Parallel()
	a, b := newPair(t, 64)
	mr, err := b.pd.RegisterMemory(make([]byte, 64), verbs.LocalWrite|verbs.RemoteRead|verbs.MWBind, verbs.WithIOVA(0x5000))
	check(t, err)
	other, err := b.dev.AllocPD()
	check(t, err)
	foreign, err := a.dev.AllocPD()
	check(t, err)
	before := mr.Query()
	mw := b.window(verbs.MWType2)
	b.carry(mw.BindTo(mr, 0, 8, verbs.RemoteRead), verbs.WCBindMW)
	refused := func(why string, changes ...verbs.Reregistration) {
		t.Helper()
		if err := mr.Reregister(changes...); err == nil {
			t.Errorf("%s: done", why)
		}
		q := mr.Query()
		if q.Windows = before.Windows; q != before {
			t.Errorf("%s: %+v, was %+v", why, q, before)
		}
	}
	refused("with a window", verbs.ToAccess(verbs.LocalWrite))
	b.carry(mw.Unbind(), verbs.WCLocalInv)
	refused("nothing to change")
	refused("write without local write", verbs.ToAccess(verbs.RemoteWrite))
	refused("no memory", verbs.ToMemory(nil))
	refused("addresses that wrap", verbs.ToMemory(make([]byte, 64), verbs.WithIOVA(1<<64-8)))
	if foreign.Device() != b.dev {
		refused("a domain of another device", verbs.ToPD(foreign))
	}

	check(t, mr.Reregister(verbs.ToAccess(verbs.LocalWrite|verbs.RemoteWrite)))
	q := mr.Query()
	if q.LKey == before.LKey || q.RKey == before.RKey || q.Addr != 0x5000 || q.Access != verbs.LocalWrite|verbs.RemoteWrite || q.Length != 64 {
		t.Errorf("%+v, was %+v", q, before)
	}
	if s := a.write(mr.Remote(), "one"); s != verbs.StatusSuccess || string(mr.Bytes()[:3]) != "one" {
		t.Errorf("%v, %q", s, mr.Bytes()[:3])
	}
	old, buf := mr.Bytes(), make([]byte, 32)
	check(t, mr.Reregister(verbs.ToMemory(buf)))
	if s := a.write(mr.Remote(), "two"); s != verbs.StatusSuccess || string(buf[:3]) != "two" || string(old[:3]) != "one" || mr.Len() != 32 || &mr.Bytes()[0] != &buf[0] {
		t.Errorf("%v, %q, %q", s, buf[:3], old[:3])
	}
	check(t, mr.Reregister(verbs.ToPD(other), verbs.ToAccess(verbs.LocalWrite|verbs.RemoteWrite|verbs.RemoteRead)))
	if s := a.write(mr.Remote(), "three"); s != verbs.StatusRemAccessErr || string(buf[:3]) != "two" {
		t.Errorf("through a queue pair of another domain: %v, %q", s, buf[:3])
	}
	check(t, b.pd.Close())
	if !mr.Query().Valid {
		t.Error("the domain that it has left has closed it")
	}
	check(t, other.Close())
	if err := mr.Reregister(verbs.ToAccess(0)); !errors.Is(err, verbs.ErrClosed) || mr.Query().Valid {
		t.Errorf("reregister what is closed: %v", err)
	}
}

// A move into a closed domain is refused, and what a mapping was registered for
// is given back when the region stands for other memory.
func TestReregisterMapping(t *testing.T) {
	t.Parallel()
	_, b := newPair(t, 64)
	mr, err := b.pd.AllocMemory(4096, verbs.LocalWrite)
	check(t, err)
	closed, err := b.dev.AllocPD()
	check(t, err)
	check(t, closed.Close())
	if err := mr.Reregister(verbs.ToPD(closed)); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("into a closed domain: %v", err)
	}
	mr.Bytes()[4095] = 1
	shared, err := mr.Share(b.pd, 0)
	check(t, err)
	check(t, mr.Reregister(verbs.ToMemory(make([]byte, 8), verbs.ZeroBased())))
	if mr.Addr() != 0 || mr.Len() != 8 {
		t.Errorf("%d bytes at %#x", mr.Len(), mr.Addr())
	}
	if shared.Bytes()[4095] != 1 { // still mapped, or this crashes
		t.Error("the mapping has lost a byte")
	}
	check(t, shared.Close())
	check(t, mr.Close())
}

// Regions that share memory have keys, rights and domains of their own. The
// memory is there until the last is closed.
func TestShare(t *testing.T) {
	t.Parallel()
	name := filepath.Join(mappedDir(t), "file")
	check(t, os.WriteFile(name, make([]byte, 8192), 0o600))
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	check(t, err)
	defer f.Close()
	a, b := newPair(t, 64)
	mr, err := b.pd.MapFile(f, 0, 8192, verbs.LocalWrite|verbs.RemoteWrite)
	check(t, err)
	other, err := b.dev.AllocPD()
	check(t, err)
	readonly, err := mr.Share(b.pd, verbs.RemoteRead)
	check(t, err)
	zero, err := mr.Share(other, verbs.LocalWrite|verbs.RemoteWrite, verbs.ZeroBased())
	check(t, err)
	if readonly.Addr() != mr.Addr() || readonly.RKey() == mr.RKey() || readonly.LKey() == mr.LKey() || zero.Addr() != 0 {
		t.Errorf("%+v and %+v share %+v", readonly.Query(), zero.Query(), mr.Query())
	}
	if _, err := mr.Share(b.pd, verbs.RemoteWrite); err == nil {
		t.Error("shared with rights that do not go together")
	}
	if s := a.write(mr.Remote(), "text"); s != verbs.StatusSuccess || string(readonly.Bytes()[:4]) != "text" {
		t.Errorf("%v, %q", s, readonly.Bytes()[:4])
	}
	check(t, mr.Close())
	if _, err := mr.Share(b.pd, 0); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("share what is closed: %v", err)
	}
	a.post(verbs.SendWR{ID: 1, Opcode: verbs.OpRead, SGList: []verbs.SGE{a.mr.Slice(0, 4)}, Remote: readonly.RemoteAt(0)})
	a.waitOK(1)
	if got := string(a.mr.Bytes()[:4]); got != "text" {
		t.Errorf("read %q", got)
	}
	check(t, b.pd.Close())
	if string(zero.Bytes()[:4]) != "text" {
		t.Error("the memory is gone")
	}
	check(t, zero.Close())
}

// A mapping may be zero-based: AllocMemory and MapFile choose the real address
// only where no option does.
func TestZeroBasedMapping(t *testing.T) {
	t.Parallel()
	_, b := newPair(t, 64)
	mr, err := b.pd.AllocMemory(4096, allAccess, verbs.ZeroBased())
	check(t, err)
	if mr.Addr() != 0 {
		t.Errorf("at %#x", mr.Addr())
	}
}

// The memory of a region can be shared with another device, and outlives the
// first. The region itself does not move there.
func TestShareWithAnotherDevice(t *testing.T) {
	t.Parallel()
	a, b := newPair(t, 4096)
	mr, err := a.pd.AllocMemory(4096, verbs.LocalWrite|verbs.RemoteWrite)
	check(t, err)
	if err := mr.Reregister(verbs.ToPD(b.pd)); !errors.Is(err, verbs.ErrOtherDevice) {
		t.Errorf("%v", err)
	}
	shared, err := mr.Share(b.pd, verbs.LocalWrite|verbs.RemoteWrite)
	check(t, err)
	check(t, mr.Close())
	a.post(verbs.SendWR{Opcode: verbs.OpWrite, Inline: []byte("to b"), Remote: shared.RemoteAt(100)})
	a.waitOK(0)
	check(t, a.dev.Close())
	if got := string(shared.Bytes()[100:104]); got != "to b" {
		t.Errorf("the memory has %q", got)
	}
	check(t, shared.Close())
}
