package qp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/internal/testshort"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/rocev2"
)

// pagedMemory is memory whose pages must be fetched, and go again when they
// were used some times.
type pagedMemory struct {
	memreg.Memory
	t     testing.TB
	pages map[uint64]int // uses that are left of those present
	uses  int
}

const testPage = 4096

func (m *pagedMemory) Bytes() []byte { return nil }

func (m *pagedMemory) Present(off, n uint64, write bool) bool {
	for p := off / testPage; p <= (off+n-1)/testPage; p++ {
		if m.pages[p] == 0 {
			return false
		}
	}
	return true
}

func (m *pagedMemory) Fetch(off, n uint64, write bool) {
	for p := off / testPage; p <= (off+n-1)/testPage; p++ {
		m.pages[p] = m.uses
	}
}

func (m *pagedMemory) use(off, n uint64) {
	if !m.Present(off, n, true) {
		m.t.Errorf("%d bytes at %d are touched and not present", n, off)
	}
	for p := off / testPage; p <= (off+n-1)/testPage; p++ {
		m.pages[p]--
	}
}

func (m *pagedMemory) CopyIn(off uint64, src []byte) error {
	m.use(off, uint64(len(src)))
	return m.Memory.CopyIn(off, src)
}

func (m *pagedMemory) CopyOut(dst []byte, off uint64) error {
	m.use(off, uint64(len(dst)))
	return m.Memory.CopyOut(dst, off)
}

func (m *pagedMemory) Store64(off, v uint64) error {
	m.use(off, 8)
	return m.Memory.Store64(off, v)
}

func (m *pagedMemory) CompareSwap64(off, compare, swap uint64) (uint64, error) {
	m.use(off, 8)
	return m.Memory.CompareSwap64(off, compare, swap)
}

func (m *pagedMemory) FetchAdd64(off, add uint64) (uint64, error) {
	m.use(off, 8)
	return m.Memory.FetchAdd64(off, add)
}

// addPaged has an end's region stand on memory with pages.
func addPaged(t *testing.T, e *testEnd, uses int) *pagedMemory {
	t.Helper()
	m := &pagedMemory{Memory: memreg.Local(e.mem), t: t, pages: map[uint64]int{}, uses: uses}
	var err error
	e.mr, err = e.table.Register(e.pd, m, memreg.Options{Access: testAccess, Base: memreg.BaseIOVA, IOVA: testIOVA})
	must(t, err)
	return m
}

// TestPagesAreFetched: every operation works between memories whose pages come
// and go, with and without losses, towards peers of both kinds. Without losses
// nothing waits for a timeout, but where a NAK meets a repair that waits for a
// page.
func TestPagesAreFetched(t *testing.T) {
	t.Parallel()
	for seed := range testshort.Rounds[uint64](300) {
		r := rand.New(rand.NewPCG(seed, 7))
		own, lossy := r.IntN(2) == 0, r.IntN(2) == 0
		uses := 2 + r.IntN(40) // a packet may use a page for two entries
		if uses > 30 {
			uses = 1 << 30
		}
		invalidated := 0
		p := newPair(t, pairConfig{config: Config{ReadChunk: r.IntN(2) * 16 << 10,
			Invalidate: func(ib.Key) ib.Fault { invalidated++; return ib.Fault(invalidated - 1) }}})
		p.batches, p.bursts = r.IntN(2) == 0, r.IntN(2) == 0
		if own {
			for _, e := range []*testEnd{p.a, p.b} {
				e.SetReorder(NewPool(64))
			}
		}
		if lossy {
			p.drop = func(*testEnd, *rocev2.Packet) bool { return r.IntN(20) == 0 }
		}
		var waiting []func()
		p.late = func(e *testEnd, f Fetch) bool {
			if r.IntN(2) == 0 {
				return false
			}
			waiting = append(waiting, func() { f.Fetch(); e.Fetched(p.now, f) })
			return true
		}
		for i, e := range []*testEnd{p.a, p.b} {
			if which := r.IntN(3); which == 2 || which == i {
				addPaged(t, e, uses)
			}
		}
		op := dataOpcodes()[r.IntN(len(dataOpcodes()))]
		n := sizeOf(op, 1+r.IntN(60000))
		from, to := r.IntN(1000), 100000+8*r.IntN(1000)
		word := binary.NativeEndian.Uint64(p.b.mem[to:])
		must(t, p.b.PostRecv(&ib.RecvWR{ID: 2, SGList: append(p.b.sge(to, n/2), p.b.sge(to+n/2, n-n/2)...)}))
		must(t, p.a.PostSend(&ib.SendWR{ID: 1, Opcode: op, Signaled: true, CompareAdd: word, Swap: 5, InvalidateKey: keyFor(p.a, op), Remote: p.b.remote(to),
			SGList: append(p.a.sge(from, n/2), p.a.sge(from+n/2, n-n/2)...)}))
		p.idle = func() bool {
			late := waiting
			waiting = nil
			for _, f := range late {
				f()
			}
			return len(late) > 0
		}
		p.settle()
		name := fmt.Sprintf("seed %d: %v of %d bytes, own kind %v, losses %v", seed, op, n, own, lossy)
		if got := p.a.sq.statuses(); got != "1 SUCCESS" {
			t.Errorf("%s: %q", name, got)
		}
		same := bytes.Equal(p.a.mem[from:from+n], p.b.mem[to:to+n])
		switch op {
		case ib.OpCompareSwap:
			same = binary.NativeEndian.Uint64(p.a.mem[from:]) == word && binary.NativeEndian.Uint64(p.b.mem[to:]) == 5
		case ib.OpFetchAdd:
			same = binary.NativeEndian.Uint64(p.a.mem[from:]) == word && binary.NativeEndian.Uint64(p.b.mem[to:]) == 2*word
		}
		if !same {
			t.Errorf("%s: the data is not right", name)
		}
		for _, e := range []*testEnd{p.a, p.b} {
			if fetches(e.QP) || e.halves.req.Snapshot().Paging {
				t.Errorf("%s: something still waits", name)
			}
		}
		if st := p.a.Stats(); !lossy && !own && st.Timeouts+st.Probes > 0 {
			t.Errorf("%s: %d timeouts, %d probes", name, st.Timeouts, st.Probes)
		}
		if op == ib.OpSendInv && invalidated != 1 {
			t.Errorf("%s: a key was invalidated %d times", name, invalidated)
		}
		if t.Failed() {
			return
		}
	}
}

// TestPageThatNeverComes: what waits for a page ends with the queue pair, and a
// fetch that comes back late means nothing to its next connection. The
// requester's timer does not run while it waits for a page of its own.
func TestPageThatNeverComes(t *testing.T) {
	t.Parallel()
	for _, op := range dataOpcodes() {
		for side := range 2 {
			p := newPair(t, pairConfig{config: Config{Invalidate: func(ib.Key) ib.Fault { return ib.FaultNone }}})
			e := []*testEnd{p.a, p.b}[side]
			addPaged(t, e, 1<<30)
			var never []Fetch
			p.late = func(_ *testEnd, f Fetch) bool { never = append(never, f); return true }
			n := sizeOf(op, 5000)
			must(t, p.b.PostRecv(&ib.RecvWR{ID: 2, SGList: p.b.sge(0, 1<<16)}))
			must(t, p.a.PostSend(&ib.SendWR{ID: 1, Opcode: op, SGList: p.a.sge(0, n), InvalidateKey: keyFor(p.a, op), Remote: p.b.remote(0), Signaled: true}))
			p.settle()
			want := ""
			if side == 1 {
				want = "1 RETRY_EXC_ERR" // to the peer it is silence
			}
			if got := p.a.sq.statuses(); got != want || len(never) != 1 {
				t.Errorf("%v, side %d: %q, %d fetches, want %q", op, side, got, len(never), want)
			}
			a := p.a.Attr()
			a.State = ib.StateErr
			must(t, e.Modify(&a, ib.AttrState))
			a.State = ib.StateReset
			must(t, e.Modify(&a, ib.AttrState))
			for _, f := range never {
				e.Fetched(p.now, f)
			}
			if fetches(e.QP) || e.poll(p.now, p.buf) != 0 {
				t.Errorf("%v, side %d: a queue pair in RESET has something to say", op, side)
			}
		}
	}
}

// fetches reports whether a queue pair has memory to fetch.
func fetches(q *QP) bool {
	_, ok := q.PollFetch()
	return ok
}
