//go:build !race

// The race detector makes atomics calls of C, where no fault is caught.

package memreg

import (
	"bytes"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/ib"
)

// What a program unmaps, protects or truncates under a region is a fault of
// memory, and nothing else.
func TestGuarded(t *testing.T) {
	t.Parallel()
	page := os.Getpagesize()
	for _, c := range []struct {
		why      string
		take     func(t *testing.T, b []byte, f *os.File) error
		readable bool
	}{
		{"unmapped", func(_ *testing.T, b []byte, _ *os.File) error {
			return unix.Mprotect(b, unix.PROT_NONE) // another mapping may take the place of one that is gone
		}, false},
		{"read-only", func(_ *testing.T, b []byte, _ *os.File) error { return unix.Mprotect(b, unix.PROT_READ) }, true},
		{"truncated", func(_ *testing.T, _ []byte, f *os.File) error { return f.Truncate(0) }, false},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()
			f, err := os.CreateTemp(t.TempDir(), "memory")
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if err := f.Truncate(int64(page)); err != nil {
				t.Fatal(err)
			}
			b, err := unix.Mmap(int(f.Fd()), 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Munmap(b)
			m := Guarded(b)
			checkGuarded(t, m, true, true)
			if err := c.take(t, b, f); err != nil {
				t.Fatal(err)
			}
			checkGuarded(t, m, c.readable, false)
		})
	}
}

// checkGuarded checks which accesses succeed.
func checkGuarded(t *testing.T, m Memory, reads, writes bool) {
	t.Helper()
	want := func(what string, err error, ok bool) {
		t.Helper()
		if ok && err != nil || !ok && err != ib.FaultMemory {
			t.Errorf("%s: %v", what, err)
		}
	}
	want("CopyOut", m.CopyOut(make([]byte, 64), 8), reads)
	want("CopyIn", m.CopyIn(8, make([]byte, 64)), writes)
	_, err := m.Load64(8)
	want("Load64", err, reads)
	want("Store64", m.Store64(8, 1), writes)
	now, _ := m.Load64(8)
	_, err = m.CompareSwap64(8, now, 2) // else nothing is written
	want("CompareSwap64", err, writes)
	_, err = m.FetchAdd64(8, 1)
	want("FetchAdd64", err, writes)
	for _, err := range []error{m.CopyIn(m.Len(), []byte{1}), m.CopyOut(make([]byte, 2), m.Len()-1)} {
		if err != ib.FaultOutOfBounds {
			t.Errorf("outside: %v", err)
		}
	}
}

// A link may receive into guarded memory; what lies there is not copied again.
func TestGuardedTarget(t *testing.T) {
	t.Parallel()
	tab := newTable(1)
	pd := tab.AllocPD()
	b := bytes.Repeat([]byte{1}, 4096)
	r, err := tab.Register(pd, Guarded(b), Options{Access: ib.LocalWrite | ib.RemoteWrite, Base: BaseIOVA, IOVA: 0x1000})
	if err != nil {
		t.Fatal(err)
	}
	v, f := tab.Resolve(pd, 1, r.RKey(), 0x1000, 4096, ib.RemoteWrite)
	if f != ib.FaultNone {
		t.Fatal(f)
	}
	defer v.Release()
	to := v.Target(100, 50)
	if !v.Placeable() || v.Bytes() != nil || v.Place(100, 50) != nil || len(to) != 50 || &to[0] != &b[100] {
		t.Fatalf("%d bytes", len(to))
	}
	if f := v.CopyIn(100, to); f != ib.FaultNone {
		t.Error(f)
	}
	if v.Target(4090, 7) != nil {
		t.Error("a target behind the end")
	}
}
