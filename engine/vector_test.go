package engine

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/rocev2"
)

// vectorMemory is memory that is not local, of which some may have gone.
type vectorMemory struct {
	memreg.Memory
	good       uint64 // bytes that are still there
	in, inV    int    // calls of CopyIn and CopyInV
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

func (m *vectorMemory) CopyInV(off uint64, src [][]byte) error {
	m.inV++
	in := m.in
	defer func() { m.in = in }()
	for _, b := range src {
		if err := m.CopyIn(off, b); err != nil {
			return err
		}
		off += uint64(len(b))
	}
	return nil
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

// The packets in the middle of a message are read with one call for each run,
// and written with one.
func TestRunsAreVectored(t *testing.T) {
	t.Parallel()
	const n = 256 << 10 // more than goes as messages of one packet each
	for _, op := range []ib.Opcode{ib.OpWrite, ib.OpSend, ib.OpRead} {
		a, b, q, ma, mb := newVectorPair(t)
		a.post(q, op, b, n)
		a.waitOK(1)
		from, to := ma, mb
		if op == ib.OpRead {
			from, to = mb, ma
		}
		if !bytes.Equal(a.mem[:n], b.mem[:n]) {
			t.Errorf("%v: something else has arrived", op)
		}
		if from.out > n/1024/3 || from.bytes > n+n/4 {
			t.Errorf("%v: %d calls have read %d bytes", op, from.out, from.bytes)
		}
		if to.inV == 0 || to.in+to.inV > n/1024/4 {
			t.Errorf("%v: written with %d calls, and %d of a vector", op, to.in, to.inV)
		}
	}
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

// Nothing allocates: not with memory that is copied by vectors, either.
func TestVectorsDoNotAllocate(t *testing.T) {
	a, b, q, _, _ := newVectorPair(t)
	round := func() {
		a.write(q, b, 256<<10)
		a.waitOK(1)
	}
	w := newWorld(t, 5)
	x, y := w.newPair(Config{Window: boundless})
	local, _ := connectPair(x, y, true)
	other := func() {
		x.write(local, y, 256<<10)
		x.waitOK(1)
	}
	round()
	other()
	if v, l := testing.AllocsPerRun(20, round), testing.AllocsPerRun(20, other); v > l {
		t.Errorf("%v allocations, with local memory %v", v, l)
	}
}

// benchmarkVector has WRITEs go between memories of a kind.
func benchmarkVector(b *testing.B, size uint32, mtu rocev2.MTU, vector bool) {
	w := newWorld(b, 1)
	w.delay = 0
	x, y := w.newPair(Config{Window: boundless})
	if vector {
		x.vectored()
		y.vectored()
	}
	x.mtu, y.mtu = mtu, mtu
	q, _ := connectPair(x, y, true)
	b.SetBytes(int64(size))
	for b.Loop() {
		x.write(q, y, size)
		x.waitOK(1)
	}
}

// BenchmarkVector compares memory that is copied by vectors with local memory.
func BenchmarkVector(b *testing.B) {
	for _, vector := range []bool{false, true} {
		b.Run(fmt.Sprint(vector), func(b *testing.B) { benchmarkVector(b, 1<<20, rocev2.MTU4096, vector) })
	}
}
