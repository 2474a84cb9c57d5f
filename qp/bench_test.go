package qp

import (
	"fmt"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
)

// benchPair is a pair for steady traffic: deep queues, completions only
// counted.
func benchPair(tb testing.TB, m rocev2.MTU, psns int) *pair {
	return newPair(tb, pairConfig{noKeepCQ: true, mem: 4 << 20, attr: ib.Attr{PathMTU: m, MaxRdAtomic: 16, MaxDestRdAtomic: 16},
		config: Config{MaxSendWR: 1024, MaxRecvWR: 1024, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInline: 64,
			Window: WindowConfig{MaxPSNs: psns, MaxBytes: 8 << 20, InitialBytes: 8 << 20}}})
}

// post keeps the send queue of a full until n requests were posted.
func (p *pair) stream(wr *ib.SendWR, n int) {
	for posted := 0; posted < n; {
		for posted < n && p.a.PostSend(wr) == nil {
			posted++
		}
		for p.transfer(p.a, 64)+p.transfer(p.b, 64) > 0 {
			if p.a.Stats().SendPosted-p.a.Stats().SendDone < 512 {
				break
			}
		}
	}
	p.run()
}

func benchmark(b *testing.B, m rocev2.MTU, wr func(p *pair) ib.SendWR) {
	p := benchPair(b, m, 1024)
	p.batches, p.bursts = true, true
	benchmarkPair(b, p, wr)
}

// benchmarkBursts compares one packet a Poll with many.
func benchmarkBursts(b *testing.B, wr func(p *pair) ib.SendWR) {
	for _, m := range []rocev2.MTU{rocev2.MTU1024, rocev2.MTU4096} {
		for _, bursts := range []bool{false, true} {
			b.Run(fmt.Sprintf("mtu=%d/bursts=%v", m.Bytes(), bursts), func(b *testing.B) {
				b.SetBytes(1 << 20)
				p := benchPair(b, m, 4096)
				p.batches, p.bursts = true, bursts
				benchmarkPair(b, p, wr)
			})
		}
	}
}

func benchmarkPair(b *testing.B, p *pair, wr func(p *pair) ib.SendWR) {
	w := wr(p)
	p.stream(&w, 2048)
	b.ReportAllocs()
	b.ResetTimer()
	before := p.a.Stats().TxPackets + p.b.Stats().TxPackets
	p.stream(&w, b.N)
	b.StopTimer()
	b.ReportMetric(float64(p.a.Stats().TxPackets+p.b.Stats().TxPackets-before)/float64(b.N), "packets/op")
	if p.a.State() != ib.StateRTS {
		b.Fatal(p.a.State())
	}
}

func BenchmarkWrite8(b *testing.B) {
	benchmark(b, rocev2.MTU4096, func(p *pair) ib.SendWR {
		return ib.SendWR{Opcode: ib.OpWrite, SGList: p.a.sge(0, 8), Remote: p.b.remote(0)}
	})
}

func BenchmarkWrite8Inline(b *testing.B) {
	benchmark(b, rocev2.MTU4096, func(p *pair) ib.SendWR {
		return ib.SendWR{Opcode: ib.OpWrite, Inline: p.a.mem[:8], Remote: p.b.remote(0), Signaled: true}
	})
}

func BenchmarkWrite4K(b *testing.B) {
	b.SetBytes(4096)
	benchmark(b, rocev2.MTU4096, func(p *pair) ib.SendWR {
		return ib.SendWR{Opcode: ib.OpWrite, SGList: p.a.sge(0, 4096), Remote: p.b.remote(0), Signaled: true}
	})
}

func BenchmarkWrite1M(b *testing.B) {
	benchmarkBursts(b, func(p *pair) ib.SendWR {
		return ib.SendWR{Opcode: ib.OpWrite, SGList: p.a.sge(0, 1<<20), Remote: p.b.remote(0), Signaled: true}
	})
}

func BenchmarkRead1M(b *testing.B) {
	benchmarkBursts(b, func(p *pair) ib.SendWR {
		return ib.SendWR{Opcode: ib.OpRead, SGList: p.a.sge(0, 1<<20), Remote: p.b.remote(0), Signaled: true}
	})
}

func BenchmarkFetchAdd(b *testing.B) {
	benchmark(b, rocev2.MTU4096, func(p *pair) ib.SendWR {
		return ib.SendWR{Opcode: ib.OpFetchAdd, SGList: p.a.sge(0, 8), Remote: p.b.remote(0), CompareAdd: 1, Signaled: true}
	})
}

// TestNoAllocations holds each operation to no allocation on any path of the
// steady state, receives included.
func TestNoAllocations(t *testing.T) {
	for _, bursts := range []bool{false, true} {
		testNoAllocations(t, bursts)
	}
}

func testNoAllocations(t *testing.T, bursts bool) {
	for _, op := range wireOps() {
		p := benchPair(t, rocev2.MTU1024, 128)
		p.bursts = bursts
		if op == ib.OpSendInv || op == ib.OpReadInv {
			continue // the hook is the driver's, and a key ends once
		}
		n := sizeOf(op, 5000)
		wr := ib.SendWR{Opcode: op, Signaled: true, SGList: p.a.sge(0, n), Remote: p.b.remote(0), FlushType: rocev2.FlushGlobal}
		recv := ib.RecvWR{SGList: p.b.sge(8192, 8192)}
		round := func() {
			for range 20 {
				must(t, p.b.PostRecv(&recv))
				must(t, p.a.PostSend(&wr))
			}
			p.run()
		}
		round()
		if got := testing.AllocsPerRun(20, round); got != 0 {
			t.Errorf("%v, bursts %v: %v allocations", op, bursts, got)
		}
	}
}
