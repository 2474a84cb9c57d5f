package qp

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
)

// TestOperations runs every operation at every MTU and at lengths around its
// multiples, across the wrap of the PSN, without loss and with each packet of
// the request or the answer lost once (IBTA 9.4).
func TestOperations(t *testing.T) {
	t.Parallel()
	for m := rocev2.MTU256; m <= rocev2.MTU4096; m++ {
		if testing.Short() && m != rocev2.MTU256 && m != rocev2.MTU1024 && m != rocev2.MTU4096 {
			continue
		}
		mtu := m.Bytes()
		for _, op := range wireOps() {
			sizes := []int{0, 1, 3, 4, mtu - 1, mtu, mtu + 1, 2 * mtu, 5*mtu + 7, 40 * mtu}
			if n := sizeOf(op, -1); n >= 0 {
				sizes = []int{n}
			}
			for _, size := range sizes {
				for _, chunk := range []int{0, 3 * mtu} {
					if chunk != 0 && !op.Is(ib.OpReads) {
						continue
					}
					name := fmt.Sprintf("%v/%d/%d/chunk%d", op, mtu, size, chunk)
					t.Run(name, func(t *testing.T) {
						t.Parallel()
						n := runOperation(t, m, op, size, chunk, -1)
						if size > 6*mtu {
							return
						}
						for lost := range n {
							runOperation(t, m, op, size, chunk, lost)
						}
					})
				}
			}
		}
	}
}

// runOperation runs one operation and checks it on both sides; the packet
// number lost gets lost. It returns how many packets there were.
func runOperation(t *testing.T, m rocev2.MTU, op ib.Opcode, size, chunk, lost int) int {
	t.Helper()
	var invalidated ib.Key
	mem := 1 << 16
	if size > mem/4 {
		mem = 1 << 19
	}
	p := newPair(t, pairConfig{mem: mem, attr: ib.Attr{PathMTU: m}, config: Config{ReadChunk: chunk,
		Invalidate: func(k ib.Key) ib.Fault { invalidated = k; return ib.FaultNone }}})
	packets := 0
	p.drop = func(*testEnd, *rocev2.Packet) bool {
		packets++
		return packets-1 == lost
	}
	wr := ib.SendWR{ID: 7, Opcode: op, Signaled: true, SGList: p.a.sge(64, size), Remote: p.b.remote(128), Imm: 0x11223344,
		InvalidateKey: keyFor(p.a, op), CompareAdd: 5, Swap: 6, FlushType: rocev2.FlushGlobal}
	must(t, p.b.PostRecv(&ib.RecvWR{ID: 3, SGList: p.b.sge(200, mem/2)}))
	must(t, p.b.mr.Store64(128, 5).Err())
	old := bytes.Clone(p.b.mem)
	must(t, p.a.PostSend(&wr))
	p.settle()
	if got := p.a.sq.statuses(); got != "7 SUCCESS" {
		t.Fatalf("lost %d: completions %q, state %v", lost, got, p.a.State())
	}
	from, to := p.a.mem[64:64+size], p.b.mem[128:128+size]
	wantRecv := ""
	switch op {
	case ib.OpSend, ib.OpSendImm, ib.OpSendInv:
		to = p.b.mem[200 : 200+size]
		wantRecv = "3 SUCCESS"
	case ib.OpWriteImm:
		wantRecv = "3 SUCCESS"
	case ib.OpCompareSwap:
		if v, _ := p.b.mr.Load64(128); v != 6 {
			t.Fatalf("lost %d: the word is %d, not swapped once", lost, v)
		}
		to = old[128:136]
	case ib.OpFetchAdd:
		if v, _ := p.b.mr.Load64(128); v != 10 {
			t.Fatalf("lost %d: the word is %d, not added to once", lost, v)
		}
		to = old[128:136]
	}
	if !bytes.Equal(from, to) {
		t.Fatalf("lost %d: data differ", lost)
	}
	if len(p.b.rq.wcs) > 0 {
		w := p.b.rq.wcs[0]
		if int(w.ByteLen) != size || (w.Imm == wr.Imm) != w.WithImm || w.WithImm != (op == ib.OpSendImm || op == ib.OpWriteImm) {
			t.Fatalf("receive completion %+v", w)
		}
		if w.WithInv != (op == ib.OpSendInv) || w.InvalidatedKey != invalidated {
			t.Fatalf("receive completion %+v, invalidated %v", w, invalidated)
		}
	}
	if got := p.b.rq.statuses(); got != wantRecv {
		t.Fatalf("lost %d: receive completions %q, want %q", lost, got, wantRecv)
	}
	if msn := p.b.halves.resp.Snapshot().MSN; chunk == 0 && msn != 1 {
		t.Fatalf("lost %d: MSN is %d after one message", lost, msn)
	}
	checkIdle(t, p.a)
	checkIdle(t, p.b)
	return packets
}

// checkIdle checks what holds when nothing is under way.
func checkIdle(t testing.TB, e *testEnd) {
	t.Helper()
	if _, armed := e.Deadline(); armed {
		t.Error("a timer is set without work")
	}
	if r := e.halves.req.Snapshot(); r.Una != r.Max || r.Next != r.Max || r.Queued != 0 || e.halves.req.Check() != nil {
		t.Errorf("idle requester: %+v, %v", r, e.halves.req.Check())
	}
	if e.halves.resp.Waiting() {
		t.Error("idle responder has answers")
	}
}
