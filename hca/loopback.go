package hca

import (
	"net/netip"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// loopArena is how many bytes of packets go from queue pairs to queue pairs of
// the same device at once. They are written and read within microseconds, so
// they should fit into the processor's cache beside what they are copied from
// and to.
const loopArena = 64 << 10

// loopback is a batch of packets to the device's own address. They pass from
// the queue pair that sends to the one that receives, as inside an adapter:
// through no link and without ICRC, which guards a way that they do not take.
// It implements qp.PacketWriter.
type loopback struct {
	arena []byte
	off   int                // end of the last packet
	ends  []int              // of all of them
	shape transport.RxPacket // what the packets have in common; Data is the current one
}

// init makes the batch for a device at addr on a link with the given port.
func (b *loopback) init(addr netip.Addr, port uint16) {
	b.arena = make([]byte, loopArena)
	b.ends = make([]int, 0, loopArena/256)
	b.shape = transport.RxPacket{Src: addr, Dst: addr, SrcPort: port, ICRC: transport.ICRCVerified}
}

// Room implements qp.PacketWriter.
func (b *loopback) Room() []byte {
	end := b.off + rocev2.MaxPacketLen
	if end > len(b.arena) || len(b.ends) == cap(b.ends) {
		return nil
	}
	return b.arena[b.off:end:end]
}

// Commit implements qp.PacketWriter. Behind the packet comes the place of the
// ICRC, which is part of every packet that is parsed.
func (b *loopback) Commit(n int) {
	b.off += n + rocev2.ICRCLen
	b.ends = append(b.ends, b.off)
}

func (b *loopback) empty() bool { return len(b.ends) == 0 }

func (b *loopback) reset() { b.off, b.ends = 0, b.ends[:0] }

// start returns where packet i begins.
func (b *loopback) start(i int) int {
	if i == 0 {
		return 0
	}
	return b.ends[i-1]
}

// packet returns packet i, valid until the next call.
func (b *loopback) packet(i int) *transport.RxPacket {
	b.shape.Data = b.arena[b.start(i):b.ends[i]:b.ends[i]]
	return &b.shape
}

// findLoopAddr returns the address that packets loop back from, as paths have it; the
// zero Addr, which is no peer's, if they do not.
func (d *Device) findLoopAddr() netip.Addr {
	if !d.cfg.Loopback {
		return netip.Addr{}
	}
	return d.addr.Unmap().WithZone("")
}

// loopBack hands the packets of the batch to their queue pairs. What those have
// to say comes with the next batches: nothing is nested, and others that want
// the shard have it in between. The caller holds mu and has set sending, which
// the batch belongs to.
func (s *shard) loopBack() {
	b := &s.loop
	s.loopPackets += uint64(len(b.ends))
	s.loopBytes += uint64(b.off)
	left := false // there are packets for other shards
	r := taken{now: s.dev.now()}
	for i := range b.ends {
		p := b.packet(i)
		if s.dev.shardOf(destQPN(p.Data)) == s {
			s.dispatch(&r, p)
		} else {
			left = true
		}
	}
	if left || b.off >= loopArena/2 {
		s.mu.Unlock()
		if left {
			b.toOthers(s)
		}
		s.mu.Lock()
	}
	b.reset()
}

// toOthers hands over the packets for other shards than s. No shard is locked
// when it is called, and never are two. Their answers go from their own
// goroutines, beside what s does.
func (b *loopback) toOthers(s *shard) {
	for i := 0; i < len(b.ends); {
		t := s.dev.shardOf(destQPN(b.packet(i).Data))
		if t == s {
			i++
			continue
		}
		t.mu.Lock()
		r := taken{now: t.dev.now()}
		for ; i < len(b.ends); i++ {
			p := b.packet(i)
			if s.dev.shardOf(destQPN(p.Data)) != t {
				break
			}
			if !t.closed {
				t.dispatch(&r, p)
			}
		}
		idle := !t.sending
		t.mu.Unlock()
		if idle {
			t.kickTransmitter()
		}
	}
}
