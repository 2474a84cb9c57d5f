package engine

import (
	"fmt"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
)

// vectorMemory is memory that is not local, of which some may have gone.
type vectorMemory struct {
	memreg.Memory
	good       uint64 // bytes that are still there
	in         int    // calls of CopyIn
	out, bytes int    // calls of CopyOut, and what they have read
}

func vectored(b []byte) *vectorMemory {
	return &vectorMemory{Memory: memreg.Local(b), good: uint64(len(b))}
}

func (m *vectorMemory) Bytes() []byte { return nil }

func (m *vectorMemory) CopyIn(off uint64, src []byte) error {
	m.in++
	if off+uint64(len(src)) > m.good {
		return ib.FaultMemory
	}
	return m.Memory.CopyIn(off, src)
}

func (m *vectorMemory) CopyOut(dst []byte, off uint64) error {
	m.out++
	if off+uint64(len(dst)) > m.good {
		return ib.FaultMemory
	}
	m.bytes += len(dst)
	return m.Memory.CopyOut(dst, off)
}

// newVectorPair adds two hosts with vectored memory, and connects queue pairs.
func newVectorPair(t testing.TB) (a, b *host, qa *QP, ma, mb *vectorMemory) {
	t.Helper()
	w := newWorld(t, 5)
	a, b = w.newPair(Config{Window: boundless})
	ma, mb = a.vectored(), b.vectored()
	qa, qb := connectPair(a, b, true)
	_, err := b.e.PostRecv(qb, []ib.RecvWR{{SGList: []ib.SGE{b.mr.SGE(0, 1<<18)}}})
	w.must(err)
	for i := range a.mem {
		a.mem[i], b.mem[i] = byte(i*7), byte(i*11)
	}
	a.write(qa, b, 1) // a has heard of b
	a.waitOK(1)
	*ma, *mb = vectorMemory{Memory: ma.Memory, good: ma.good}, vectorMemory{Memory: mb.Memory, good: mb.good}
	return a, b, qa, ma, mb
}

// vectored registers the memory of the host as vectored instead.
func (h *host) vectored() *vectorMemory {
	m := vectored(h.mem)
	var err error
	h.mr, err = h.table.Register(h.pd, m, memreg.Options{Access: ib.LocalWrite | ib.RemoteWrite | ib.RemoteRead | ib.RemoteAtomic,
		Base: memreg.BaseIOVA, IOVA: 1 << 40})
	h.w.must(err)
	return m
}

// Memory that goes ends the message where it ends without runs.
func TestRunsMeetVanishedMemory(t *testing.T) {
	t.Parallel()
	const n = 256 << 10
	for _, op := range []ib.Opcode{ib.OpWrite, ib.OpSend, ib.OpRead} {
		for _, theirs := range []bool{false, true} {
			t.Run(fmt.Sprint(op, theirs), func(t *testing.T) {
				t.Parallel()
				a, b, q, ma, mb := newVectorPair(t)
				want := ib.StatusLocProtErr
				if theirs {
					mb.good = 100 << 10
					want = ib.StatusRemOpErr
				} else {
					ma.good = 100 << 10
				}
				a.post(q, op, b, n)
				if a.wait(1); a.done[0].Status != want {
					t.Errorf("status %v, want %v", a.done[0].Status, want)
				}
			})
		}
	}
}
