//go:build unix

package mapping

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
)

// onDiskFile makes a file that is not in memory itself.
func onDiskFile(t *testing.T, size int) *os.File {
	t.Helper()
	f := file(t, size, os.O_RDWR)
	if !onDisk(f.Fd()) {
		t.Skipf("%s is in memory (set TMPDIR to a disk)", f.Name())
	}
	return f
}

// readDirect reads the file past the page cache: what is not on the disk is not
// seen. Where that cannot be it reads through another descriptor.
func readDirect(t *testing.T, name string, size int) []byte {
	t.Helper()
	fd, err := unix.Open(name, unix.O_RDONLY|directFlag, 0)
	if err != nil {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	defer unix.Close(fd)
	m, err := Anonymous(size, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if n, err := unix.Pread(fd, m.Data(), 0); err != nil || n != size {
		t.Fatalf("read %d bytes: %v", n, err)
	}
	return bytes.Clone(m.Data())
}

// What was persisted is on the disk, also through a region and when the file
// was closed.
func TestPersist(t *testing.T) {
	t.Parallel()
	for _, guard := range []bool{false, true} {
		f := onDiskFile(t, 4*page)
		name := f.Name()
		m := mustFile(t, f, 0, 4*page, Options{Guard: guard})
		f.Close()
		if !m.Persistent() {
			t.Fatal("a shared mapping of a file cannot be persisted")
		}
		tab, pd, r := register(t, m, memreg.Options{Access: ib.LocalWrite | ib.FlushPersistent, Base: memreg.BaseIOVA})
		want := bytes.Repeat([]byte{0xa5}, 4*page)
		copy(m.Data(), want)
		v, fault := tab.Resolve(pd, 1, r.RKey(), uint64(page)-3, uint64(page)+9, ib.FlushPersistent)
		if fault != ib.FaultNone {
			t.Fatal(fault)
		}
		v.Release()
		if fault := v.Persist().Fetch(); fault != ib.FaultNone {
			t.Fatal(fault)
		}
		if got := readDirect(t, name, 4*page); !bytes.Equal(got[:3*page], want[:3*page]) {
			t.Errorf("guard %v: the disk does not have the bytes", guard)
		}
	}
}

// Only a shared mapping of a file, for writing, can be persisted.
func TestPersistentKinds(t *testing.T) {
	t.Parallel()
	anon, err := Anonymous(page, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer anon.Close()
	f := onDiskFile(t, page)
	for name, m := range map[string]*Mapping{
		"anonymous": anon,
		"private":   mustFile(t, f, 0, page, Options{Private: true}),
		"read-only": mustFile(t, f, 0, page, Options{ReadOnly: true}),
	} {
		if m.Persistent() {
			t.Errorf("%s: it can be persisted", name)
		}
		if err := m.Persist(0, 1); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
		key := uint32(0)
		tab := memreg.NewTable(func() uint32 { key++; return key })
		if _, err := tab.Register(tab.AllocPD(), m, memreg.Options{Access: ib.FlushPersistent, Base: memreg.BaseIOVA}); !errors.Is(err, memreg.ErrAccess) {
			t.Errorf("%s: registration: %v", name, err)
		}
	}
}

// A file that was truncated cannot be persisted past its end, and nothing
// crashes; what is left of it can.
func TestPersistOfTruncatedFile(t *testing.T) {
	t.Parallel()
	for _, guard := range []bool{false, true} {
		f := onDiskFile(t, 4*page)
		m := mustFile(t, f, 0, 4*page, Options{Guard: guard})
		copy(m.Data(), bytes.Repeat([]byte{1}, 4*page))
		if err := f.Truncate(int64(2 * page)); err != nil {
			t.Fatal(err)
		}
		if err := m.Persist(0, uint64(2*page)); err != nil {
			t.Errorf("guard %v: what is left: %v", guard, err)
		}
		for _, r := range [][2]int{{0, 4 * page}, {2 * page, 1}, {4*page - 1, 1}} {
			if err := m.Persist(uint64(r[0]), uint64(r[1])); err == nil {
				t.Errorf("guard %v: %d bytes at %d were cut off and are on the disk", guard, r[1], r[0])
			}
		}
	}
}

// Bad ranges and a closed mapping are errors.
func TestPersistRange(t *testing.T) {
	t.Parallel()
	m, err := File(onDiskFile(t, page), 0, page, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range [][2]uint64{{0, uint64(page) + 1}, {uint64(page), 1}, {1 << 63, 1 << 63}, {1, ^uint64(0)}} {
		if err := m.Persist(r[0], r[1]); !errors.Is(err, ib.FaultOutOfBounds) {
			t.Errorf("%d bytes at %d: %v", r[1], r[0], err)
		}
	}
	if err := m.Persist(uint64(page), 0); err != nil {
		t.Errorf("nothing: %v", err)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if err := m.Persist(0, 1); !errors.Is(err, os.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}
