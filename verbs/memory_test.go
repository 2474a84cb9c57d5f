package verbs_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gosoftroce/rocev2/verbs"
)

// Every kind of memory, at every kind of address, takes a WRITE and gives a
// READ.
func TestKindsOfMemory(t *testing.T) {
	t.Parallel()
	a, b := newPair(t, 64)
	path := filepath.Join(mappedDir(t), "memory")
	check(t, os.WriteFile(path, make([]byte, 8192), 0o600))
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	check(t, err)
	mapped, err := b.pd.MapFile(file, 4096, 4096, allAccess)
	check(t, err)
	check(t, file.Close()) // the mapping stays
	anonymous, err := b.pd.AllocMemory(4096, allAccess)
	check(t, err)
	zero, err := b.pd.RegisterMemory(make([]byte, 4096), allAccess, verbs.ZeroBased())
	check(t, err)
	chosen, err := b.pd.RegisterMemory(make([]byte, 4096), allAccess, verbs.WithIOVA(0xffff_0000_0000_0000))
	check(t, err)
	if zero.Addr() != 0 || chosen.Addr() != 0xffff_0000_0000_0000 || anonymous.Addr()%4096 != 0 {
		t.Errorf("addresses %#x, %#x, %#x", zero.Addr(), chosen.Addr(), anonymous.Addr())
	}
	for name, mr := range map[string]*verbs.MR{"file": mapped, "anonymous": anonymous, "zero-based": zero, "IOVA": chosen} {
		a.post(verbs.SendWR{ID: 1, Opcode: verbs.OpWrite, Inline: []byte("here"), Remote: mr.RemoteAt(100)})
		a.waitOK(1)
		a.post(verbs.SendWR{ID: 2, Opcode: verbs.OpRead, SGList: []verbs.SGE{a.mr.Slice(0, 4)}, Remote: mr.RemoteAt(100)})
		a.waitOK(2)
		if got, read := string(mr.Bytes()[100:104]), string(a.mr.Bytes()[:4]); got != "here" || read != "here" {
			t.Errorf("%s: wrote %q, read %q", name, got, read)
		}
		check(t, mr.Store64(8, 5))
		if old, err := mr.FetchAdd64(8, 2); old != 5 || err != nil {
			t.Errorf("%s: fetch and add gave %d (%v)", name, old, err)
		}
		if old, err := mr.CompareSwap64(8, 7, 1); old != 7 || err != nil {
			t.Errorf("%s: compare and swap gave %d (%v)", name, old, err)
		}
		if _, err := mr.Load64(4); err == nil {
			t.Errorf("%s: a misaligned load", name)
		}
	}
	check(t, mapped.Close())
	content, err := os.ReadFile(path)
	check(t, err)
	if got := string(content[4096+100 : 4096+104]); got != "here" {
		t.Errorf("the file holds %q", got)
	}
}

// A transfer into a part that was cut off the file is an error, no crash.
func TestTruncatedFileIsAFault(t *testing.T) {
	t.Parallel()
	a, b := newPair(t, 64)
	path := filepath.Join(mappedDir(t), "memory")
	check(t, os.WriteFile(path, make([]byte, 8192), 0o600))
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	check(t, err)
	defer file.Close()
	mr, err := b.pd.MapFile(file, 0, 8192, allAccess)
	check(t, err)
	cut(t, file, 4096)
	a.post(verbs.SendWR{ID: 1, Opcode: verbs.OpWrite, Inline: []byte("gone"), Remote: mr.RemoteAt(5000)})
	if wc := a.wait(); wc.Status != verbs.StatusRemOpErr {
		t.Errorf("status %v, want %v", wc.Status, verbs.StatusRemOpErr)
	}
}

func TestRegistrationsThatCannotWork(t *testing.T) {
	t.Parallel()
	a, _ := newPair(t, 64)
	for name, register := range map[string]func() (*verbs.MR, error){
		"empty":                     func() (*verbs.MR, error) { return a.pd.RegisterMemory(nil, 0) },
		"remote without local":      func() (*verbs.MR, error) { return a.pd.RegisterMemory(make([]byte, 8), verbs.RemoteWrite) },
		"wraps around":              func() (*verbs.MR, error) { return a.pd.RegisterMemory(make([]byte, 8), 0, verbs.WithIOVA(^uint64(0))) },
		"negative size":             func() (*verbs.MR, error) { return a.pd.AllocMemory(-1, 0) },
		"another right than exists": func() (*verbs.MR, error) { return a.pd.RegisterMemory(make([]byte, 8), 1<<15) },
	} {
		if _, err := register(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// Memory that is allocated beside the Close of its domain is refused, or given
// back with it.
func TestAllocMemoryBesideClose(t *testing.T) {
	t.Parallel()
	a, _ := newPair(t, 64)
	for range 300 {
		pd, err := a.dev.AllocPD()
		check(t, err)
		var wg sync.WaitGroup
		var began atomic.Int32
		for range 2 {
			wg.Go(func() {
				began.Add(1)
				if _, err := pd.AllocMemory(4096, verbs.LocalWrite); err != nil && !errors.Is(err, verbs.ErrClosed) {
					t.Error(err)
				}
			})
		}
		for began.Load() < 2 {
			runtime.Gosched()
		}
		check(t, pd.Close())
		wg.Wait()
	}
}
