package memreg

import (
	"errors"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
)

// fileMemory is memory that may be backed by a file, and records what is
// brought there.
type fileMemory struct {
	Memory
	without bool
	fails   error
	off, n  uint64
}

func (m *fileMemory) Persistent() bool { return !m.without }

func (m *fileMemory) Persist(off, n uint64) error {
	m.off, m.n = off, n
	return m.fails
}

// The right to flush to stable storage is only for memory that has some.
func TestFlushPersistentNeedsStorage(t *testing.T) {
	t.Parallel()
	table := newTable(1)
	pd := table.AllocPD()
	buf := make([]byte, 4096)
	for _, c := range []struct {
		name string
		m    Memory
		ok   bool
	}{
		{"ordinary memory", Local(buf), false},
		{"a file in memory", &fileMemory{Memory: Local(buf), without: true}, false},
		{"a file", &fileMemory{Memory: Local(buf)}, true},
	} {
		_, err := table.Register(pd, c.m, Options{Access: ib.FlushPersistent | ib.FlushGlobal})
		if (err == nil) != c.ok || !c.ok && (!errors.Is(err, ErrAccess) || !strings.Contains(err.Error(), "FlushPersistent needs memory that a file")) {
			t.Errorf("%s: %v", c.name, err)
		}
		if _, err := table.Register(pd, c.m, Options{Access: ib.FlushGlobal}); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// What a view brings to stable storage is its own bytes, with the fault of the
// memory; and ResolveAll is all that a key stands for.
func TestPersist(t *testing.T) {
	t.Parallel()
	table := newTable(1)
	pd := table.AllocPD()
	m := &fileMemory{Memory: Local(make([]byte, 4096))}
	r, err := table.Register(pd, m, Options{Access: ib.FlushPersistent | ib.MWBind, Base: BaseIOVA, IOVA: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	v, f := table.Resolve(pd, 1, r.RKey(), 1<<20+100, 50, ib.FlushPersistent)
	if f != ib.FaultNone {
		t.Fatal(f)
	}
	v.Release()
	if f := v.Persist().Fetch(); f != ib.FaultNone || m.off != 100 || m.n != 50 {
		t.Errorf("%v, %d bytes at %d", f, m.n, m.off)
	}
	m.fails = errors.New("I/O error")
	if f := v.Persist().Fetch(); f != ib.FaultMemory {
		t.Errorf("a failure is %v", f)
	}
	g, err := table.Grant(r, GrantOptions{Offset: 1000, Length: 24, Access: ib.FlushPersistent})
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[ib.Key][2]uint64{r.RKey(): {0, 4096}, g.Key(): {1000, 24}} {
		v, f := table.ResolveAll(pd, 1, key, ib.FlushPersistent)
		if f != ib.FaultNone {
			t.Fatal(f)
		}
		v.Release()
		if v.Persist().Fetch(); m.off != want[0] || m.n != want[1] {
			t.Errorf("all of %v: %d bytes at %d, want %v", key, m.n, m.off, want)
		}
	}
	for need, want := range map[ib.Access]ib.Fault{ib.FlushGlobal: ib.FaultNoAccess} {
		if _, f := table.ResolveAll(pd, 1, r.RKey(), need); f != want {
			t.Errorf("%v: %v, want %v", need, f, want)
		}
	}
	if _, f := table.ResolveAll(pd, 1, r.LKey(), 0); f != ib.FaultUnknownKey {
		t.Errorf("an lkey: %v", f)
	}
}
