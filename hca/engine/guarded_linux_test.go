//go:build !race

// The race detector makes copies calls of C, where no fault is caught.

package engine

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
)

// newGuardedPair is newVectorPair with guarded memory of n bytes at one of the
// hosts, which it returns: the program may unmap it.
func newGuardedPair(t *testing.T, n int, theirs bool) (a, b *host, q *QP, mem []byte) {
	t.Helper()
	mem, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(mem) })
	w := newWorld(t, 5)
	a, b = w.newPair(Config{Window: boundless})
	a.vectored()
	b.vectored()
	of := a
	if theirs {
		of = b
	}
	of.mr, err = of.table.Register(of.pd, memreg.Guarded(mem), memreg.Options{Access: ib.LocalWrite | ib.RemoteWrite | ib.RemoteRead | ib.RemoteAtomic,
		Base: memreg.BaseIOVA, IOVA: 1 << 40})
	w.must(err)
	q, qb := connectPair(a, b, true)
	_, err = b.e.PostRecv(qb, []ib.RecvWR{{SGList: []ib.SGE{b.mr.SGE(0, uint32(n))}}})
	w.must(err)
	a.write(q, b, 1) // a has heard of b
	a.waitOK(1)
	return a, b, q, mem
}

// A copy that faults in the middle of a run of packets ends the message with an
// error of the side whose memory it is, and nothing else. Pages lose their
// rights: another mapping may take the place of one that is gone.
func TestCopyFaultsInVanishedMemory(t *testing.T) {
	t.Parallel()
	const n = 256 << 10
	for _, op := range []ib.Opcode{ib.OpWrite, ib.OpSend, ib.OpRead} {
		for _, theirs := range []bool{false, true} {
			t.Run(fmt.Sprint(op, theirs), func(t *testing.T) {
				t.Parallel()
				a, b, q, mem := newGuardedPair(t, n, theirs)
				want := ib.StatusLocProtErr
				if theirs {
					want = ib.StatusRemOpErr
				}
				if err := unix.Mprotect(mem[100<<10:], unix.PROT_NONE); err != nil {
					t.Fatal(err)
				}
				a.post(q, op, b, n)
				if a.wait(1); a.done[0].Status != want {
					t.Errorf("status %v, want %v", a.done[0].Status, want)
				}
			})
		}
	}
}
