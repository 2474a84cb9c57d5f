//go:build unix

package mapping

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
)

var page = os.Getpagesize()

// file makes a file of size bytes, opened with flag.
func file(t *testing.T, size, flag int) *os.File {
	t.Helper()
	name := filepath.Join(t.TempDir(), "region")
	if err := os.WriteFile(name, make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(name, flag, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func mustFile(t *testing.T, f *os.File, off int64, size int, o Options) *Mapping {
	t.Helper()
	m, err := File(f, off, size, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// register makes m a region that may be used for what it can.
func register(t *testing.T, m memreg.Memory, o memreg.Options) (*memreg.Table, *memreg.PD, *memreg.Region) {
	t.Helper()
	key := uint32(0)
	tab := memreg.NewTable(func() uint32 { key++; return key })
	pd := tab.AllocPD()
	r, err := tab.Register(pd, m, o)
	if err != nil {
		t.Fatal(err)
	}
	return tab, pd, r
}

func TestAnonymous(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, page - 1, page, 3*page + 8} {
		m, err := Anonymous(size, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if m.Len() != uint64(size) || len(m.Bytes()) != size || m.Addr()%uint64(page) != 0 || m.ReadOnly() {
			t.Errorf("size %d: %d bytes at %#x", size, m.Len(), m.Addr())
		}
		if !bytes.Equal(m.Bytes(), make([]byte, size)) {
			t.Errorf("size %d: not zero", size)
		}
		tab, pd, r := register(t, m, memreg.Options{Access: ib.LocalWrite})
		if r.Addr() != m.Addr() {
			t.Errorf("region at %#x, mapping at %#x", r.Addr(), m.Addr())
		}
		if f := tab.Scatter(pd, []ib.SGE{r.SGE(0, uint32(size))}, uint64(size-1), []byte{7}); f != ib.FaultNone {
			t.Error(f)
		}
		if m.Data()[size-1] != 7 {
			t.Error("the write is not there")
		}
		tab.Deregister(r)
		if err := m.Sync(); err != nil {
			t.Errorf("Sync: %v", err)
		}
		for range 2 {
			if err := m.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		}
		if m.Len() != 0 || m.Bytes() != nil || m.Data() != nil || m.Addr() != 0 {
			t.Error("a closed mapping has memory")
		}
		if err := m.CopyIn(0, []byte{1}); err != ib.FaultOutOfBounds {
			t.Errorf("CopyIn after Close: %v", err)
		}
		if err := m.Sync(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("Sync after Close: %v", err)
		}
	}
}

func TestAnonymousRefuses(t *testing.T) {
	t.Parallel()
	refused := map[int]string{0: "size 0", -1: "size -1"}
	if math.MaxInt > math.MaxInt32 { // a 32-bit process may well get 2 GiB
		refused[math.MaxInt-page] = "cannot allocate"
	}
	for size, text := range refused {
		if m, err := Anonymous(size, Options{}); m != nil || err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("size %d: %v, want %q", size, err, text)
		}
	}
}

func TestFileRefuses(t *testing.T) {
	t.Parallel()
	rw := file(t, 2*page, os.O_RDWR)
	ro := file(t, 2*page, os.O_RDONLY)
	wo := file(t, 2*page, os.O_WRONLY)
	empty := file(t, 0, os.O_RDWR)
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	closed := file(t, page, os.O_RDWR)
	closed.Close()
	for _, c := range []struct {
		name string
		f    *os.File
		off  int64
		size int
		o    Options
		text string
	}{
		{"nil", nil, 0, 1, Options{}, "nil"},
		{"size 0", rw, 0, 0, Options{}, "size 0 is not positive"},
		{"negative size", rw, 0, -5, Options{}, "size -5"},
		{"unaligned offset", rw, 512, page, Options{}, "offset 512 is not a multiple of the page size"},
		{"negative offset", rw, -int64(page), page, Options{}, "not a multiple"},
		{"a byte too long", rw, 0, 2*page + 1, Options{}, "too short"},
		{"a byte too long behind an offset", rw, int64(page), page + 1, Options{}, "too short"},
		{"behind the end", rw, int64(4 * page), 1, Options{}, "too short"},
		{"offset + size wraps", rw, math.MaxInt64 - int64(page) + 1, math.MaxInt, Options{}, "too short"},
		{"empty file", empty, 0, 1, Options{}, "the file has 0 bytes"},
		{"directory", dir, 0, page, Options{}, "not a regular file"},
		{"closed file", closed, 0, page, Options{}, "closed"},
		{"not open for writing", ro, 0, page, Options{}, "O_RDWR"},
		{"not open for reading", wo, 0, page, Options{ReadOnly: true}, "open for what is asked"},
	} {
		m, err := File(c.f, c.off, c.size, c.o)
		if m != nil || err == nil || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v, want %q", c.name, err, c.text)
		} else if c.f != nil && !strings.Contains(err.Error(), c.f.Name()) {
			t.Errorf("%s: %q does not name the file", c.name, err)
		}
	}
}

func TestFileIsShared(t *testing.T) {
	t.Parallel()
	f := file(t, 3*page, os.O_RDWR)
	m := mustFile(t, f, int64(page), page, Options{})
	f.Close() // the mapping stays
	tab, pd, r := register(t, m, memreg.Options{Access: ib.LocalWrite | ib.RemoteWrite})
	v, fault := tab.Resolve(pd, 1, r.RKey(), r.Addr(), 5, ib.RemoteWrite)
	if fault != ib.FaultNone {
		t.Fatal(fault)
	}
	copy(v.Bytes(), "hello")
	v.Release()
	if err := m.Sync(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	want := make([]byte, 3*page)
	copy(want[page:], "hello")
	if !bytes.Equal(b, want) {
		t.Error("the file does not have what was written")
	}
	tab.Deregister(r)
}

func TestFilePrivate(t *testing.T) {
	t.Parallel()
	f := file(t, page, os.O_RDONLY)
	m := mustFile(t, f, 0, page, Options{Private: true})
	m.Bytes()[0] = 1
	var b [1]byte
	if _, err := f.ReadAt(b[:], 0); err != nil || b[0] != 0 {
		t.Errorf("a private write reached the file: %v, %v", b, err)
	}
}

func TestReadOnly(t *testing.T) {
	t.Parallel()
	for _, guard := range []bool{false, true} {
		m := mustFile(t, file(t, page, os.O_RDONLY), 0, page, Options{ReadOnly: true, Guard: guard})
		o := memreg.Options{Access: ib.RemoteRead, Base: memreg.BaseIOVA, IOVA: m.Addr()}
		tab, pd, r := register(t, m, o)
		o.Access |= ib.LocalWrite
		if _, err := tab.Register(pd, m, o); !errors.Is(err, memreg.ErrAccess) {
			t.Errorf("LocalWrite on a read-only mapping: %v", err)
		}
		if f := r.Store64(0, 1); f != ib.FaultNoAccess {
			t.Errorf("Store64 of the region: %v", f)
		}
		_, swapErr := m.CompareSwap64(0, 0, 1)
		_, addErr := m.FetchAdd64(0, 1)
		for _, err := range []error{m.CopyIn(0, []byte{1}), m.Store64(0, 1), swapErr, addErr} {
			if err != ib.FaultNoAccess {
				t.Errorf("a write to a read-only mapping: %v", err)
			}
		}
		if v, f := r.Load64(0); v != 0 || f != ib.FaultNone {
			t.Errorf("Load64: %v, %v", v, f)
		}
		tab.Deregister(r)
	}
}

func TestGuardSurvivesTruncation(t *testing.T) {
	t.Parallel()
	f := file(t, 2*page, os.O_RDWR)
	m := mustFile(t, f, 0, 2*page, Options{Guard: true})
	if m.Bytes() != nil || len(m.Data()) != 2*page || m.Len() != uint64(2*page) {
		t.Fatalf("guarded mapping of %d bytes has %d local ones", m.Len(), len(m.Bytes()))
	}
	const rights = ib.LocalWrite | ib.RemoteWrite | ib.RemoteAtomic
	tab, pd, r := register(t, m, memreg.Options{Access: rights, Base: memreg.BaseIOVA, IOVA: m.Addr()})
	v, fault := tab.Resolve(pd, 1, r.RKey(), r.Addr(), r.Len(), ib.RemoteWrite)
	if fault != ib.FaultNone {
		t.Fatal(fault)
	}
	buf := make([]byte, 100)
	check := func(when string, off uint64, want ib.Fault) {
		t.Helper()
		m.Fetch(off, uint64(len(buf)), true)
		_, load := v.Load64(off)
		_, swap := v.CompareSwap64(off, 0, 0)
		_, add := v.FetchAdd64(off, 0)
		for i, f := range []ib.Fault{v.CopyIn(off, buf), v.CopyOut(buf, off), load, v.Store64(off, 0), swap, add} {
			if f != want {
				t.Errorf("%s, access %d at %d: %v, want %v", when, i, off, f, want)
			}
		}
	}
	check("whole file", 0, ib.FaultNone)
	check("whole file", uint64(page), ib.FaultNone)
	if err := f.Truncate(int64(page)); err != nil {
		t.Fatal(err)
	}
	check("truncated file, what is left", 0, ib.FaultNone)
	check("truncated file, what is lost", uint64(page), ib.FaultMemory)
	m.Fetch(uint64(page-50), uint64(len(buf)), true)
	if f := v.CopyIn(uint64(page-50), buf); f != ib.FaultMemory {
		t.Errorf("a copy across the end: %v", f)
	}
	v.Release()
	tab.Deregister(r)
}

// The guard is for the mapping alone: a fault of other memory is not swallowed.
func TestGuardPassesOtherFaults(t *testing.T) {
	t.Parallel()
	f := file(t, page, os.O_RDWR)
	lost := mustFile(t, f, 0, page, Options{})
	m, err := Anonymous(page, Options{Guard: true})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := f.Truncate(0); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if recover() == nil {
			t.Error("a fault of the source became an error of the mapping")
		}
	}()
	t.Log(m.CopyIn(0, lost.Data()))
}

func TestLock(t *testing.T) {
	t.Parallel()
	m, err := Anonymous(page, Options{Lock: true})
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOMEM) {
		t.Skipf("this user may not lock memory (raise it with ulimit -l, or run as root): %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}

func TestLockErrorNamesTheLimit(t *testing.T) {
	t.Parallel()
	err := lockError(4096, unix.ENOMEM)
	if !errors.Is(err, unix.ENOMEM) || !strings.Contains(err.Error(), "4096 bytes") {
		t.Errorf("%v", err)
	}
}

func BenchmarkCopyIn(b *testing.B) {
	src := make([]byte, 4096)
	for _, guard := range []bool{false, true} {
		name := "local"
		if guard {
			name = "guarded"
		}
		b.Run(name, func(b *testing.B) {
			m, err := Anonymous(1<<20, Options{Guard: guard})
			if err != nil {
				b.Fatal(err)
			}
			defer m.Close()
			b.ReportAllocs()
			b.SetBytes(int64(len(src)))
			for b.Loop() {
				if err := m.CopyIn(4096, src); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
