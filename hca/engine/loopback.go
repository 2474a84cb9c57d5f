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
	off   int // end of the last packet
	all   []loopPacket
	shape transport.RxPacket
	q     *QP    // whose packets are written
	spi   uint32 // of these
}

// loopPacket is a packet of the batch.
type loopPacket struct {
	end int
	to  *ib.AddressVector // nil for one of a connection
	spi uint32            // of one of a connection whose packets would be sealed
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
	b.all = make([]loopPacket, 0, loopArena/256)
	b.shape = transport.RxPacket{Src: b.addr, Dst: b.addr, SrcPort: b.port, ICRC: transport.ICRCVerified}
}

// Room implements qp.Writer.
func (b *loopback) Room() []byte {
	if b.arena == nil {
		b.alloc()
	}
	end := b.off + rocev2.MaxPacketLen
	if end > len(b.arena) || len(b.all) == cap(b.all) {
		return nil
	}
	return b.arena[b.off:end:end]
}

// Commit implements qp.Writer. The ICRC, which is part of every packet
// that is parsed, has its place after the packet.
func (b *loopback) Commit(n int, to *ib.AddressVector, _ qp.PacketKind) {
	b.off += n + rocev2.ICRCLen
	b.all = append(b.all, loopPacket{b.off, to, b.spi})
	if b.q != nil {
		b.q.turn -= int32(max(n+rocev2.ICRCLen, minTurnCost))
	}
}

func (b *loopback) reset() {
	clear(b.all)
	b.off, b.all = 0, b.all[:0]
}

// packet returns packet i, valid until the next call. A datagram comes with
// what its handle says of the header.
func (b *loopback) packet(i int) *transport.RxPacket {
	start := 0
	if i > 0 {
		start = b.all[i-1].end
	}
	at := &b.all[i]
	b.shape.Data = b.arena[start:at.end:at.end]
	p := &b.shape
	p.TrafficClass, p.HopLimit, p.FlowLabel, p.SPI = 0, 0, 0, at.spi
	if to := at.to; to != nil {
		p.TrafficClass, p.HopLimit, p.FlowLabel = to.TrafficClass, to.HopLimit, to.FlowLabel
	}
	return p
}
