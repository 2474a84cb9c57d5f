//go:build unix

package mapping

import (
	"bytes"
	"errors"
	"os"
	"runtime"
	"sync"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
)

// What is not in memory is not present before it was fetched, for reading or
// for writing, and what was written to the file is not to be written again at
// once.
func TestPresent(t *testing.T) {
	t.Parallel()
	const pages = 100
	f := file(t, 0, os.O_RDWR)
	if err := f.Truncate(pages * int64(page)); err != nil { // all of it is a hole
		t.Fatal(err)
	}
	m := mustFile(t, f, 0, pages*page, Options{Guard: true})
	if !m.Memory.(*guarded).pages.asks {
		t.Skip("the system does not say what is in memory: run it on Linux, as the owner of the files in TMPDIR")
	}
	m.Memory.(*guarded).pages.local = false
	want := func(when string, off, n int, write, want bool) {
		t.Helper()
		if got := m.Present(uint64(off), uint64(n), write); got != want {
			t.Errorf("%s: %d bytes at %d, to be written %v: present is %v", when, n, off, write, got)
		}
	}
	want("before", 0, 1, false, false)
	want("before", 0, 1, true, false)
	m.Fetch(uint64(page+5), uint64(80*page), false)
	want("fetched", page, 81*page, false, true)
	want("fetched for reading", page, 1, true, false)
	m.Fetch(uint64(page+5), 1, true)
	want("fetched", page, page, true, true)
	want("fetched", page, page+1, true, false)
	if err := m.Sync(); err != nil {
		t.Fatal(err)
	}
	want("written to the file", page, page, true, false)
	want("written to the file", page, page, false, true)
	m.Fetch(uint64(pages*page), 0, true) // nothing
	m.Fetch(uint64(pages*page-1), 1, true)
	want("the last byte", pages*page-1, 1, true, true)
	m.Memory.(*guarded).pages.local = true
	want("read, on a local file system", 2*page, page, true, true)
	if bytes.Count(m.Data(), []byte{0}) != pages*page {
		t.Error("fetching has changed the memory")
	}
	if plain := mustFile(t, file(t, page, os.O_RDWR), 0, page, Options{}); !plain.Present(0, uint64(page), true) {
		t.Error("memory that is not guarded is not present")
	}
}

// What cannot be had is present: its access fails at once. The pages beside it
// are there.
func TestFetchOfTruncatedFile(t *testing.T) {
	t.Parallel()
	for _, write := range []bool{false, true} {
		f := file(t, 4*page, os.O_RDWR)
		m := mustFile(t, f, 0, 4*page, Options{Guard: true})
		if err := f.Truncate(int64(2 * page)); err != nil {
			t.Fatal(err)
		}
		m.Fetch(0, uint64(4*page), write)
		if !m.Present(0, uint64(4*page), write) {
			t.Error("not present after it was fetched")
		}
		var b [1]byte
		for i := range 4 {
			err := m.CopyOut(b[:], uint64(i*page))
			if lost := i >= 2; lost != errors.Is(err, ib.FaultMemory) || !lost && err != nil {
				t.Errorf("page %d: %v", i, err)
			}
		}
	}
}

// Where the kernel does not populate pages they are touched, while others use
// them.
func TestTouch(t *testing.T) {
	t.Parallel()
	f := file(t, 2*page, os.O_RDWR)
	m := mustFile(t, f, 0, 2*page, Options{Guard: true})
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 1000 {
			if _, err := m.FetchAdd64(0, 1); err != nil {
				t.Error(err)
			}
			runtime.Gosched()
		}
	})
	for range 1000 {
		if err := touch(m.Data(), true); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
	if v, _ := m.Load64(0); v != 1000 {
		t.Errorf("%d is not 1000: touching has changed the memory", v)
	}
	if err := f.Truncate(int64(page)); err != nil {
		t.Fatal(err)
	}
	for _, write := range []bool{false, true} {
		if err := touch(m.Data()[:page], write); err != nil {
			t.Error(err)
		}
		if err := touch(m.Data(), write); !errors.Is(err, ib.FaultMemory) {
			t.Errorf("a page that is lost: %v", err)
		}
	}
}

func BenchmarkPresent(b *testing.B) {
	m, err := Anonymous(1<<20, Options{Guard: true})
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	m.Fetch(0, 1<<20, true)
	b.ReportAllocs()
	for b.Loop() {
		if !m.Present(4096, 4096, false) {
			b.Fatal("not present")
		}
	}
}
