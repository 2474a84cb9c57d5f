package engine

import (
	"net/netip"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// loopArena is how many bytes of packets go from queue pairs to queue pairs of
// the same engine at once. They are written and read within microseconds, so
// they should fit into the processor's cache beside what they are copied from
// and to.
const loopArena = 64 << 10

// loopback is a batch of packets to the engine's own address. They pass from
// the queue pair that sends to the one that receives, as inside an adapter:
// through no link and without ICRC, which guards a way that they do not take.
// It takes memory with the first packet. It implements qp.Writer.
type loopback struct {
	addr  netip.Addr // the own address as paths have it; the zero Addr, which is no peer's, if packets do not loop back
	port  uint16
	arena []byte
	off   int                 // end of the last packet
	ends  []int               // of all of them
	to    []*ib.AddressVector // of each; nil for those of connections
	spis  []uint32            // of each: inside of the engine nothing is sealed, and nothing is read
	shape transport.RxPacket
	q     *QP    // whose packets are written
	spi   uint32 // of these
}

func newLoopback(c *Config) (b loopback) {
	if c.Loopback {
		b.addr, b.port = c.Addr.Unmap().WithZone(""), c.Port
	}
	return b
}

// alloc takes the memory.
func (b *loopback) alloc() {
	b.arena = make([]byte, loopArena)
	b.ends = make([]int, 0, loopArena/256)
	b.to, b.spis = make([]*ib.AddressVector, 0, cap(b.ends)), make([]uint32, 0, cap(b.ends))
	b.shape = transport.RxPacket{Src: b.addr, Dst: b.addr, SrcPort: b.port, ICRC: transport.ICRCVerified}
}

// Room implements qp.Writer.
func (b *loopback) Room() []byte {
	if b.arena == nil {
		b.alloc()
	}
	end := b.off + rocev2.MaxPacketLen
	if end > len(b.arena) || len(b.ends) == cap(b.ends) {
		return nil
	}
	return b.arena[b.off:end:end]
}

// Commit implements qp.Writer. The ICRC, which is part of every packet
// that is parsed, has its place after the packet.
func (b *loopback) Commit(n int, to *ib.AddressVector, _ qp.PacketKind) {
	b.off += n + rocev2.ICRCLen
	b.ends, b.to, b.spis = append(b.ends, b.off), append(b.to, to), append(b.spis, b.spi)
	if b.q != nil {
		b.q.turn -= int32(max(n+rocev2.ICRCLen, minTurnCost))
	}
}

func (b *loopback) reset() {
	clear(b.to)
	b.off, b.ends, b.to, b.spis = 0, b.ends[:0], b.to[:0], b.spis[:0]
}

// packet returns packet i, valid until the next call. A datagram comes with
// what its handle says of the header.
func (b *loopback) packet(i int) *transport.RxPacket {
	start := 0
	if i > 0 {
		start = b.ends[i-1]
	}
	b.shape.Data = b.arena[start:b.ends[i]:b.ends[i]]
	p := &b.shape
	p.TrafficClass, p.HopLimit, p.FlowLabel, p.SPI = 0, 0, 0, b.spis[i]
	if to := b.to[i]; to != nil {
		p.TrafficClass, p.HopLimit, p.FlowLabel = to.TrafficClass, to.HopLimit, to.FlowLabel
	}
	return p
}
