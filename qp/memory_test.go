package qp

import (
	"bytes"
	"errors"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
)

// foreign is memory that can only be copied, and fails on demand.
type foreign struct {
	memreg.Memory
	broken bool
}

var errUnmapped = errors.New("unmapped")

func (f *foreign) Bytes() []byte { return nil }

func (f *foreign) CopyIn(off uint64, src []byte) error {
	if f.broken {
		return errUnmapped
	}
	return f.Memory.CopyIn(off, src)
}

func (f *foreign) CopyOut(dst []byte, off uint64) error {
	if f.broken {
		return errUnmapped
	}
	return f.Memory.CopyOut(dst, off)
}

func (f *foreign) Store64(off, v uint64) error {
	if f.broken {
		return errUnmapped
	}
	return f.Memory.Store64(off, v)
}

func (f *foreign) FetchAdd64(off, add uint64) (uint64, error) {
	if f.broken {
		return 0, errUnmapped
	}
	return f.Memory.FetchAdd64(off, add)
}

// addForeign gives an end a region of foreign memory in place of its own.
func addForeign(t *testing.T, e *testEnd) *foreign {
	t.Helper()
	f := &foreign{Memory: memreg.Local(make([]byte, 1<<16))}
	var err error
	e.mr, err = e.table.Register(e.pd, f, memreg.Options{Access: testAccess, Base: memreg.BaseIOVA, IOVA: testIOVA})
	must(t, err)
	return f
}

// TestForeignMemory: every operation works on memory without bytes, and a fault
// of it is a status on either side (IBTA 11.6.2).
func TestForeignMemory(t *testing.T) {
	t.Parallel()
	for _, op := range dataOpcodes() {
		for _, where := range []string{"nowhere", "here", "there"} {
			p := newPair(t, pairConfig{config: Config{Invalidate: func(ib.Key) ib.Fault { return ib.FaultNone }}})
			a, b := addForeign(t, p.a), addForeign(t, p.b)
			a.broken, b.broken = where == "here", where == "there"
			must(t, p.b.PostRecv(&ib.RecvWR{ID: 2, SGList: p.b.sge(0, 1<<16)}))
			n := sizeOf(op, 5000)
			must(t, p.a.PostSend(&ib.SendWR{ID: 1, Opcode: op, SGList: p.a.sge(0, n), Remote: p.b.remote(0), Signaled: true,
				InvalidateKey: keyFor(p.a, op)}))
			p.settle()
			want := "1 SUCCESS"
			switch {
			case where == "here":
				want = "1 LOC_PROT_ERR"
			case where == "there" && op != ib.OpCompareSwap:
				want = "1 REM_OP_ERR"
			}
			if got := p.a.sq.statuses(); got != want {
				t.Errorf("%v, broken %s: %q, want %q", op, where, got, want)
			}
			if where == "there" && op != ib.OpCompareSwap {
				wantRecv := "2 WR_FLUSH_ERR"
				if op.Is(ib.OpConsumesRecv) && op != ib.OpWriteImm {
					wantRecv = "2 LOC_PROT_ERR"
				}
				if got := p.b.rq.statuses(); got != wantRecv {
					t.Errorf("%v: receive %q, want %q", op, got, wantRecv)
				}
			}
		}
	}
}

// TestScatterGather: lists on both sides whose entries end inside packets, with
// empty ones between (IBTA 11.4.1.1).
func TestScatterGather(t *testing.T) {
	t.Parallel()
	for _, op := range []ib.Opcode{ib.OpSend, ib.OpWrite, ib.OpRead} {
		p := newPair(t, pairConfig{config: Config{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: ib.MaxSGE, MaxRecvSGE: ib.MaxSGE}})
		list := func(e *testEnd) (l []ib.SGE) {
			for i := range ib.MaxSGE {
				l = append(l, e.mr.SGE(uint64(i)*1000, uint32(i*23)))
			}
			return l
		}
		joined := func(e *testEnd) (b []byte) {
			for i := range ib.MaxSGE {
				b = append(b, e.mem[i*1000:i*1000+i*23]...)
			}
			return b
		}
		n := len(joined(p.a))
		must(t, p.b.PostRecv(&ib.RecvWR{SGList: list(p.b)}))
		must(t, p.a.PostSend(&ib.SendWR{Opcode: op, SGList: list(p.a), Remote: p.b.remote(1 << 16), Signaled: true}))
		p.settle()
		to := p.b.mem[1<<16 : 1<<16+n]
		if op == ib.OpSend {
			to = joined(p.b)
		}
		if p.a.sq.statuses() != "0 SUCCESS" || !bytes.Equal(joined(p.a), to) {
			t.Errorf("%v of %d bytes in %d entries", op, n, ib.MaxSGE)
		}
	}
}

// TestInline: the data is taken at the call.
func TestInline(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 1024, 3000} {
		p := newPair(t, pairConfig{config: Config{MaxSendWR: 4, MaxRecvWR: 4, MaxInline: 3000}})
		data := bytes.Repeat([]byte{0x5a}, n)
		must(t, p.a.PostSend(&ib.SendWR{Opcode: ib.OpWrite, Inline: data, SGList: []ib.SGE{{Length: 9, LKey: 9}},
			Remote: p.b.remote(0), Signaled: true}))
		clear(data)
		p.settle()
		if p.a.sq.statuses() != "0 SUCCESS" || !bytes.Equal(p.b.mem[:n], bytes.Repeat([]byte{0x5a}, n)) {
			t.Errorf("%d bytes", n)
		}
	}
}

// TestSmallWindow: even a window of less than a packet moves everything without
// waiting for a timer.
func TestSmallWindow(t *testing.T) {
	t.Parallel()
	for _, w := range []WindowConfig{{InitialBytes: 1, MaxBytes: 1}, {MaxPSNs: 1}, {InitialBytes: 3000, MaxBytes: 5000, MaxPSNs: 3}} {
		p := newPair(t, pairConfig{config: Config{Window: w, ReadChunk: 4096}})
		must(t, p.b.PostRecv(&ib.RecvWR{SGList: p.b.sge(0, 1<<16)}))
		for _, op := range []ib.Opcode{ib.OpSend, ib.OpWrite, ib.OpRead, ib.OpFetchAdd, ib.OpWrite} {
			n := 1 << 16
			if op == ib.OpFetchAdd {
				n = 8
			}
			must(t, p.a.PostSend(&ib.SendWR{Opcode: op, SGList: p.a.sge(0, n), Remote: p.b.remote(1 << 17)}))
		}
		p.run()
		if p.a.Stats().SendDone != 5 || p.a.Stats().Retransmits != 0 {
			t.Errorf("%+v: %d done, %d sent again", w, p.a.Stats().SendDone, p.a.Stats().Retransmits)
		}
	}
}

// TestReset: a queue pair can be connected again, and nothing of the first
// connection is left (IBTA 10.3.1).
func TestReset(t *testing.T) {
	t.Parallel()
	p := newPair(t, pairConfig{})
	for round := range 3 {
		must(t, p.b.PostRecv(&ib.RecvWR{ID: 5, SGList: p.b.sge(0, 4096)}))
		must(t, p.a.PostSend(&ib.SendWR{Opcode: ib.OpSend, SGList: p.a.sge(0, 3000), Signaled: true}))
		must(t, p.a.PostSend(&ib.SendWR{Opcode: ib.OpRead, SGList: p.a.sge(0, 3000), Remote: p.b.remote(0)}))
		p.transfer(p.a, round)
		for _, e := range []*testEnd{p.a, p.b} {
			attr := e.Attr()
			attr.SQPSN, attr.RQPSN = 77, 77
			must(t, e.Modify(&ib.Attr{State: ib.StateReset}, ib.AttrState))
			if e.State() != ib.StateReset || len(e.sq.wcs)+len(e.rq.wcs) != 0 {
				t.Fatalf("reset: state %v, %d completions", e.State(), len(e.sq.wcs)+len(e.rq.wcs))
			}
			p.connect(e, p.peer(e), attr, true)
			checkIdle(t, e)
		}
		must(t, p.b.PostRecv(&ib.RecvWR{ID: 6, SGList: p.b.sge(0, 4096)}))
		must(t, p.a.PostSend(&ib.SendWR{ID: 9, Opcode: ib.OpSend, SGList: p.a.sge(0, 3000), Signaled: true}))
		p.settle()
		if s, r := p.a.sq.statuses(), p.b.rq.statuses(); s != "9 SUCCESS" || r != "6 SUCCESS" {
			t.Errorf("connected again: %q and %q", s, r)
		}
	}
}
