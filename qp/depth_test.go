package qp

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/internal/testshort"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/rocev2"
)

// TestReadsBeyondDepth: twenty READs at a responder that keeps fewer are all
// answered, whether they come in one batch or one at a time, from a peer that
// goes back or one that repairs, over a path that loses packets or not. The
// outcome does not depend on when answers leave (IBTA 9.7.5.1.5).
func TestReadsBeyondDepth(t *testing.T) {
	t.Parallel()
	for _, depth := range []uint8{1, 2, 4} {
		for _, keep := range []bool{false, true} {
			for _, batch := range []int{1, 3, 64} {
				for seed := range testshort.Rounds[uint64](12) {
					t.Run(fmt.Sprintf("depth=%d/keep=%v/batch=%d/seed=%d", depth, keep, batch, seed), func(t *testing.T) {
						t.Parallel()
						readsBeyondDepth(t, depth, keep, batch, seed)
					})
				}
			}
		}
	}
}

func readsBeyondDepth(t *testing.T, depth uint8, keep bool, batch int, seed uint64) {
	const reads, length = 20, 700 // three packets each
	c := pairConfig{attr: ib.Attr{PathMTU: rocev2.MTU256, MaxRdAtomic: 32, MaxDestRdAtomic: depth, Timeout: 10, RetryCount: 7}}
	p := newPair(t, c)
	if keep {
		p = keepers(t, c, 64)
	}
	r := rand.New(rand.NewPCG(seed, 1))
	loss := []float64{0, 0, 0.05, 0.15}[seed%4]
	p.drop = func(*testEnd, *rocev2.Packet) bool { return r.Float64() < loss }
	for i := range reads {
		must(t, p.a.PostSend(&ib.SendWR{ID: uint64(i), Opcode: ib.OpRead, SGList: p.a.sge(i*length, length),
			Remote: p.b.remote((i * length) ^ 1), Signaled: true}))
	}
	for range 1 << 16 {
		n := p.transfer(p.a, 1+r.IntN(batch))
		n += p.transfer(p.b, 1+r.IntN(batch))
		if n > 0 {
			continue
		}
		at, ok := p.a.Deadline()
		if !ok {
			break
		}
		p.now = max(p.now, at)
		p.a.HandleTimeout(p.now)
	}
	if s := p.a.sq.statuses(); strings.Count(s, "SUCCESS") != reads {
		t.Errorf("%q", s)
	}
	for i := range reads {
		if !bytes.Equal(p.a.mem[i*length:][:length], p.b.mem[(i*length)^1:][:length]) {
			t.Fatalf("READ %d has wrong data", i)
		}
	}
	s := p.b.Stats()
	if s.NAKInvalidSent != 0 || loss == 0 && (s.ReadReplays > 0 && !keep || p.a.Stats().Timeouts > 0) {
		t.Errorf("%d NAKs, %d replays, %d timeouts", s.NAKInvalidSent, s.ReadReplays, p.a.Stats().Timeouts)
	}
	if batch == 64 && loss == 0 && s.Drops.RdAtomic == 0 {
		t.Error("no request was put off")
	}
}

// TestAtomicsBeyondDepth: without a loss atomics beyond the depth are executed
// too, each once (IBTA 9.7.5.1.6).
func TestAtomicsBeyondDepth(t *testing.T) {
	t.Parallel()
	for _, keep := range []bool{false, true} {
		c := pairConfig{attr: ib.Attr{MaxRdAtomic: 32, MaxDestRdAtomic: 2}}
		p := newPair(t, c)
		if keep {
			p = keepers(t, c, 64)
		}
		before, _ := p.b.mr.Load64(0)
		for i := range 20 {
			must(t, p.a.PostSend(&ib.SendWR{ID: uint64(i), Opcode: ib.OpFetchAdd, CompareAdd: 1, SGList: p.a.sge(8*i, 8),
				Remote: p.b.remote(0), Signaled: true}))
		}
		p.settle()
		for i := range 20 {
			if v, _ := p.a.mr.Load64(uint64(8 * i)); v != before+uint64(i) {
				t.Errorf("keep=%v: atomic %d returns %d, want %d", keep, i, v-before, i)
			}
		}
		if s := p.a.sq.statuses(); strings.Count(s, "SUCCESS") != 20 {
			t.Errorf("keep=%v: %q", keep, s)
		}
	}
}

// TestForgedDuplicates: whatever duplicates an attacker invents, the responder
// goes on, each gets at most one answer packet, and what waits stays bounded
// (IBTA 9.7.5.1.4).
func TestForgedDuplicates(t *testing.T) {
	t.Parallel()
	p := newPair(t, pairConfig{attr: ib.Attr{MaxRdAtomic: 8, MaxDestRdAtomic: 2}})
	for i := range 12 {
		must(t, p.a.PostSend(&ib.SendWR{ID: uint64(i), Opcode: ib.OpFetchAdd, CompareAdd: 1, SGList: p.a.sge(8*i, 8), Remote: p.b.remote(0)}))
	}
	p.settle()
	r := rand.New(rand.NewPCG(1, 1))
	ops := []rocev2.Opcode{rocev2.RCFetchAdd, rocev2.RCCompareSwap, rocev2.RCReadRequest, rocev2.RCSendOnly, rocev2.RCWriteOnly}
	for i := range 20000 {
		pkt := packet(ops[r.IntN(len(ops))], p.b.Attr().RQPSN.Add(-1-r.IntN(1<<(1+i%23))))
		pkt.RETH.Length = uint32(r.IntN(3)) * 500
		pkt.RETH.VA = testIOVA
		if d := p.inject(p.b, pkt); d != DropDuplicate && d != DropBusy {
			t.Fatalf("%v at %v: %v", pkt.BTH.Opcode, pkt.BTH.PSN, d)
		}
		if i%5 == 0 {
			for range 5 { // no more answers than packets
				p.b.poll(p.now, p.buf[:0])
			}
			if p.b.poll(p.now, p.buf[:0]) != 0 {
				t.Fatal("more answers than duplicates")
			}
		}
	}
	if p.b.State() != ib.StateRTS {
		t.Errorf("state %v", p.b.State())
	}
	must(t, p.a.PostSend(&ib.SendWR{ID: 99, Opcode: ib.OpWrite, Remote: p.b.remote(0), Signaled: true}))
	p.settle()
	if s := p.a.sq.statuses(); s != "99 SUCCESS" {
		t.Errorf("%q", s)
	}
}

// TestLateReplayFault: the region of a READ is gone when a duplicate of it
// comes. The peer is told, and the connection goes on: it may have had its
// answer long ago (IBTA 9.7.5.1.5).
func TestLateReplayFault(t *testing.T) {
	t.Parallel()
	p := newPair(t, pairConfig{})
	mr := registerAll(t, p.b, make([]byte, 8192))
	pkt := packet(rocev2.RCReadRequest, 0xfffffe)
	pkt.RETH = rocev2.RETH{VA: mr.Addr(), RKey: uint32(mr.RKey()), Length: 5000}
	p.inject(p.b, pkt)
	for p.b.poll(p.now, p.buf[:0]) > 0 {
	}
	p.b.table.Deregister(mr)
	p.inject(p.b, pkt)
	n := p.b.poll(p.now, p.buf[:0])
	var nak rocev2.Packet
	if n == 0 {
		t.Fatal("no answer")
	}
	must(t, nak.Parse(p.buf[:n+rocev2.ICRCLen]))
	if nak.BTH.Opcode != rocev2.RCAcknowledge || nak.AETH.Syndrome != rocev2.NAKRemoteAccess || nak.BTH.PSN != 0xfffffe ||
		p.b.State() != ib.StateRTS || p.b.poll(p.now, p.buf[:0]) != 0 {
		t.Errorf("%+v, state %v", nak, p.b.State())
	}
	if r := p.b.halves.resp.Snapshot(); r.Pending != 0 {
		t.Errorf("the READ still waits for its answer: %+v", r)
	}
}

func registerAll(t *testing.T, e *testEnd, mem []byte) *memreg.Region {
	t.Helper()
	mr, err := e.table.Register(e.pd, memreg.Local(mem), memreg.Options{Access: testAccess, Base: memreg.BaseIOVA, IOVA: testIOVA})
	must(t, err)
	return mr
}
