package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// BenchmarkReceive measures what a packet costs the engine that receives the
// data of messages, in nanoseconds: without link, ICRC, and the other side.
func BenchmarkReceive(b *testing.B) {
	for _, op := range []ib.Opcode{ib.OpWrite, ib.OpSend, ib.OpRead} {
		for _, mtu := range []rocev2.MTU{rocev2.MTU1024, rocev2.MTU4096} {
			for _, size := range []uint32{8, 64 << 10, 1 << 20} {
				b.Run(fmt.Sprintf("%v/%v/%d", op, mtu, size), func(b *testing.B) {
					benchmarkReceive(b, op, mtu, size)
				})
			}
		}
	}
}

func benchmarkReceive(b *testing.B, op ib.Opcode, mtu rocev2.MTU, size uint32) {
	w := newWorld(b, 1)
	from, to := w.newPair(Config{Window: boundless})
	from.mtu, to.mtu = mtu, mtu
	q, peer := connectPair(from, to, true)
	from.held, to.held = true, true
	burst := min(8, 1+(64<<10)/int(size)) // messages that go at once
	measured := to
	if op == ib.OpRead {
		measured = from
	}
	var packets []transport.RxPacket
	arena := make([]byte, 0, 256<<10)
	var spent time.Duration
	n := 0
	pass := func(from, to *host) {
		w.tx.Reset()
		from.e.Fill(w.now, w.tx, AllClasses)
		packets, arena = packets[:0], arena[:0]
		for i := range w.tx.Len() {
			data, _ := w.tx.Packet(i)
			start := len(arena)
			arena = append(append(arena, data...), 0, 0, 0, 0)
			packets = append(packets, transport.RxPacket{Data: arena[start:], Src: from.addr, Dst: to.addr, SrcPort: rocev2.UDPPort, ICRC: transport.ICRCVerified})
		}
		begun := time.Now()
		to.e.Receive(w.now, packets)
		if to == measured {
			spent += time.Since(begun)
			n += len(packets)
		}
		w.now += 1000
	}
	for b.Loop() {
		for range burst {
			if op == ib.OpSend {
				_, err := to.e.PostRecv(peer, []ib.RecvWR{{SGList: []ib.SGE{to.mr.SGE(0, size)}}})
				w.must(err)
			}
			from.post(q, op, to, size)
		}
		for from.done = from.done[:0]; len(from.done) < burst; {
			pass(from, to)
			pass(to, from)
		}
		to.done = to.done[:0]
	}
	b.ReportMetric(float64(spent.Nanoseconds())/float64(max(n, 1)), "ns/packet")
	b.ReportMetric(0, "ns/op")
}
