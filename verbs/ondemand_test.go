package verbs_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/verbs"
)

// tebibyte is 2^40, which does not fit into an int of 32 bits.
func tebibyte() int {
	n := 1 << 20
	return n * n
}

// A peer writes near the end of a file of a tebibyte, which has no bytes of
// its own before and few afterwards.
func TestSparseFileOnDemand(t *testing.T) {
	t.Parallel()
	if strconv.IntSize < 64 {
		t.Skip("there are no such addresses in a process of 32 bits: run it in one of 64")
	}
	size := tebibyte()
	f, err := os.Create(filepath.Join(mappedDir(t), "sparse"))
	check(t, err)
	defer f.Close()
	if err := f.Truncate(int64(size)); err != nil {
		t.Skipf("the file system of %s has no files of 1 TiB (set TMPDIR to another, such as ext4 or xfs): %v", f.Name(), err)
	}
	a, b := newPair(t, 64)
	mr, err := b.pd.MapFile(f, 0, size, verbs.LocalWrite|verbs.RemoteWrite|verbs.OnDemand)
	if err != nil {
		t.Skipf("this process may not map 1 TiB (ulimit -v unlimited): %v", err)
	}
	a.post(verbs.SendWR{ID: 1, Opcode: verbs.OpWrite, Inline: []byte("far away"), Remote: mr.RemoteAt(size - 100)})
	a.waitOK(1)
	got := make([]byte, 8)
	if _, err := f.ReadAt(got, int64(size)-100); err != nil || string(got) != "far away" {
		t.Errorf("the file has %q: %v", got, err)
	}
	check(t, mr.Prefetch(size-4096, 4096, true))
	for _, r := range [][2]int{{-1, 1}, {0, -1}, {size, 1}, {size - 1, 2}, {1, size}} {
		if err := mr.Prefetch(r[0], r[1], false); !errors.Is(err, verbs.ErrRange) {
			t.Errorf("prefetch %d bytes at %d: %v", r[1], r[0], err)
		}
	}
	check(t, mr.Close())
	if err := mr.Prefetch(0, 1, false); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("prefetch what is closed: %v", err)
	}
}

// AllocMemory takes addresses only, if it is asked to.
func TestAllocOnDemand(t *testing.T) {
	t.Parallel()
	if strconv.IntSize < 64 {
		t.Skip("there are no such addresses in a process of 32 bits: run it in one of 64")
	}
	a, b := newPair(t, 64)
	mr, err := b.pd.AllocMemory(tebibyte(), verbs.LocalWrite|verbs.RemoteWrite|verbs.OnDemand)
	if err != nil {
		t.Skipf("this process may not reserve 1 TiB (ulimit -v unlimited, and not sysctl vm.overcommit_memory=2): %v", err)
	}
	a.post(verbs.SendWR{ID: 1, Opcode: verbs.OpWrite, Inline: []byte("far away"), Remote: mr.RemoteAt(tebibyte() / 2)})
	a.waitOK(1)
	if got := string(mr.Bytes()[tebibyte()/2:][:8]); got != "far away" {
		t.Errorf("the memory has %q", got)
	}
	check(t, mr.Close())
}

// An implicit region reaches what the program allows, and nothing else of the
// process.
func TestImplicitRegion(t *testing.T) {
	t.Parallel()
	a, b := newPair(t, 64)
	imr, err := b.pd.RegisterImplicit(verbs.LocalWrite | verbs.RemoteWrite | verbs.RemoteRead)
	check(t, err)
	secret, open := make([]byte, 64), make([]byte, 64)
	refused := func(why string, m verbs.RemoteMemory) {
		t.Helper()
		q, p := a.newQP(verbs.QPConfig{MaxSendWR: 1}), b.newQP(verbs.QPConfig{})
		connect(t, q, p)
		check(t, q.PostSend(verbs.SendWR{Opcode: verbs.OpWrite, Inline: []byte("overwrite"), Remote: m.At(0), Signaled: true}))
		if wc := a.wait(); wc.Status != verbs.StatusRemAccessErr {
			t.Errorf("%s: %v", why, wc)
		}
		check(t, q.Close())
	}
	refused("nothing is allowed", imr.Remote(open))
	check(t, imr.Allow(open))
	remote := imr.Remote(open)
	a.post(verbs.SendWR{ID: 1, Opcode: verbs.OpWrite, Inline: []byte("allowed"), Remote: remote.At(57)})
	a.waitOK(1)
	if string(open[57:]) != "allowed" {
		t.Errorf("the memory has %q", open)
	}
	refused("not on the list", imr.Remote(secret))
	refused("its end is not", verbs.RemoteMemory{Addr: remote.Addr + 56, RKey: remote.RKey})
	refused("its begin is not", verbs.RemoteMemory{Addr: remote.Addr - 1, RKey: remote.RKey})
	refused("it wraps", verbs.RemoteMemory{Addr: 1<<64 - 4, RKey: remote.RKey})
	if strings.Trim(string(secret), "\x00") != "" {
		t.Errorf("memory that is not on the list has %q", secret)
	}

	// The lkey is for the own requests.
	b.post(verbs.SendWR{ID: 2, Opcode: verbs.OpWrite, SGList: []verbs.SGE{imr.SGE(open[57:])}, Remote: a.mr.RemoteAt(0)})
	b.waitOK(2)
	if got := string(a.mr.Bytes()[:7]); got != "allowed" {
		t.Errorf("the peer got %q", got)
	}

	for why, err := range map[string]error{
		"twice":            imr.Allow(open[8:16]),
		"nothing":          imr.Allow(nil),
		"not on the list":  imr.Forbid(secret),
		"its middle":       imr.Forbid(open[8:]),
		"a region, unseen": imr.ForbidMR(b.mr),
	} {
		if err == nil {
			t.Errorf("%s: done", why)
		}
	}
	check(t, imr.Forbid(open))
	refused("forbidden", remote)
	if _, err := b.pd.RegisterImplicit(verbs.RemoteWrite); err == nil {
		t.Error("write without local write")
	}
	check(t, imr.Close())
	if err := imr.Allow(open); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("allow after Close: %v", err)
	}
	if err := imr.AllowMR(b.mr); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("allow a region after Close: %v", err)
	}
	refused("closed", remote)
}

// A mapping that an implicit region allows stays when its own region is closed,
// until it is forbidden.
func TestImplicitMapping(t *testing.T) {
	t.Parallel()
	name := filepath.Join(mappedDir(t), "file")
	check(t, os.WriteFile(name, make([]byte, 8192), 0o600))
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	check(t, err)
	defer f.Close()
	a, b := newPair(t, 64)
	imr, err := b.pd.RegisterImplicit(verbs.LocalWrite | verbs.RemoteWrite)
	check(t, err)
	mr, err := b.pd.MapFile(f, 0, 8192, verbs.LocalWrite)
	check(t, err)
	check(t, imr.AllowMR(mr))
	if err := imr.AllowMR(mr); err == nil {
		t.Error("allowed twice")
	}
	check(t, mr.Close())
	if err := imr.AllowMR(mr); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("allow a closed region: %v", err)
	}
	a.post(verbs.SendWR{ID: 1, Opcode: verbs.OpWrite, Inline: []byte("still there"), Remote: verbs.RemoteAddr{Addr: mr.Addr() + 5000, RKey: imr.RKey()}})
	a.waitOK(1)
	got := make([]byte, 11)
	if _, err := f.ReadAt(got, 5000); err != nil || string(got) != "still there" {
		t.Errorf("the file has %q: %v", got, err)
	}
	check(t, imr.ForbidMR(mr))
	a.post(verbs.SendWR{ID: 2, Opcode: verbs.OpWrite, Inline: []byte("gone"), Remote: verbs.RemoteAddr{Addr: mr.Addr(), RKey: imr.RKey()}})
	if wc := a.wait(); wc.Status != verbs.StatusRemAccessErr {
		t.Errorf("after Forbid: %v", wc)
	}
	check(t, imr.Close())
}
