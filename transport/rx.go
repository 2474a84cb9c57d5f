package transport

import (
	"net/netip"

	"github.com/gosoftroce/rocev2/rocev2"
)

// ICRCState is the result of checking a received packet's ICRC.
type ICRCState uint8

// Results of the ICRC check.
const (
	ICRCBad      ICRCState = iota // wrong
	ICRCSealed                    // inside of a packet that nothing has opened: see IsSealed
	ICRCVerified                  // right in all 32 bits
	ICRCWeak                      // right for some IPv4 Identification: a 16-bit check
	ICRCAbsent                    // nothing to check: the packet came through memory, or was authenticated
)

var icrcNames = [...]string{"bad", "sealed", "verified", "weak", "absent"}

// Refuses reports whether nothing may look at the packet.
func (s ICRCState) Refuses() bool { return s < ICRCVerified }

func (s ICRCState) String() string {
	if int(s) < len(icrcNames) {
		return icrcNames[s]
	}
	return "unknown"
}

// RxPacket is one received packet, with what the IP and UDP headers said: all
// that a rocev2.GRH has.
type RxPacket struct {
	Data         []byte     // BTH to ICRC
	Src          netip.Addr // plain IPv4 or IPv6, without zone
	Dst          netip.Addr // the link's address, or the group that it was sent to; without zone
	SrcPort      uint16
	IPID         uint16 // IPv4 Identification, as the ICRC revealed it; 0 if ICRC is bad
	TrafficClass uint8  // DSCP and ECN; 0 also if the link cannot tell
	HopLimit     uint8  // or TTL; 0 = the link cannot tell
	ICRC         ICRCState
	FlowLabel    uint32 // IPv6, 20 bits; 0 also if the link cannot tell
	SPI          uint32 // of the security association that the packet was opened with; 0: it came in clear
}

// Sizes of receive buffers.
const (
	RxBufferLen    = 1 << 16 // one buffer holds any datagram or coalesced run
	maxRunReceived = 128     // segments in a coalesced buffer; Linux ends at 64, since 6.9 at 128
	minPacketLen   = rocev2.BTHLen + rocev2.ICRCLen
)

// RxBatch holds received packets and the buffers that they lie in. It takes
// memory as links need it. It is not safe for concurrent use.
type RxBatch struct {
	n       int
	buffers [][]byte // of RxBufferLen bytes each, made one by one
	small   []byte   // for the first copies; most batches need no more
	copied  int      // of buffers, how many hold copies
	off     int      // end of the copies in the last of them, or in small
	packets []RxPacket

	placed    []PlacedRun
	placedLen int // packets
}

// smallCopies is how many bytes of copies a batch keeps room for. Room for more
// is shared by all batches.
const smallCopies = 16 << 10

// NewRxBatch makes a batch of n receive buffers of RxBufferLen bytes, at least
// one. The batch takes memory when packets come.
func NewRxBatch(n int) *RxBatch { return &RxBatch{n: max(n, 1)} }

// Packets returns what was received, and was not placed.
func (b *RxBatch) Packets() []RxPacket { return b.packets }

// Len returns the number of packets, those that were placed included.
func (b *RxBatch) Len() int { return len(b.packets) + b.placedLen }

// Reset empties the batch. Buffers that held copies are given back.
func (b *RxBatch) Reset() {
	b.packets = b.packets[:0]
	clear(b.placed) // nothing keeps the program's memory
	b.placed, b.placedLen = b.placed[:0], 0
	b.off = 0
	for ; b.copied > 0; b.copied-- {
		rxBuffers.put(b.buffers[b.copied-1])
		b.buffers[b.copied-1] = nil
	}
}

// Filter keeps the packets for which keep returns true; keep may change them.
// All memory of the batch stays as it is.
func (b *RxBatch) Filter(keep func(p *RxPacket) bool) {
	kept := 0
	for i := range b.packets {
		p := &b.packets[i]
		if !keep(p) {
			continue
		}
		if i != kept {
			b.packets[kept] = *p
		}
		kept++
	}
	b.packets = b.packets[:kept]
}

// Buffers returns the number of receive buffers.
func (b *RxBatch) Buffers() int { return b.n }

// Buffer returns receive buffer i for a link to receive into. It stays the same
// as long as nothing is copied into the batch.
func (b *RxBatch) Buffer(i int) []byte {
	if b.buffers == nil {
		b.buffers = make([][]byte, b.n)
	}
	if b.buffers[i] == nil {
		b.buffers[i] = rxBuffers.get()
	}
	return b.buffers[i]
}

// Append adds a packet whose Data the link keeps valid.
func (b *RxBatch) Append(p RxPacket) { b.packets = append(b.packets, p) }

// AppendCopy adds a packet and copies its Data into the batch. It reports false
// when that is full. Between two resets, use either copies or Buffer.
func (b *RxBatch) AppendCopy(p RxPacket) bool {
	data := b.Copy(p.Data)
	if data == nil {
		return false
	}
	p.Data = data
	b.packets = append(b.packets, p)
	return true
}

// Copy copies data, which is not longer than a buffer, into the batch, for a
// link to Split. It returns nil when the batch is full. Between two
// resets, use either copies or Buffer.
func (b *RxBatch) Copy(data []byte) []byte {
	room := b.small
	switch {
	case b.copied > 0:
		room = b.buffers[b.copied-1]
	case room == nil:
		b.small = make([]byte, smallCopies)
		room = b.small
	}
	end := b.off + len(data)
	if end > len(room) {
		if b.copied == b.n || len(data) > RxBufferLen {
			return nil
		}
		room = b.Buffer(b.copied)
		b.copied++
		b.off, end = 0, len(data)
	}
	at := room[b.off:end:end]
	copy(at, data)
	b.off = end
	return at
}

// Split adds the packets of one received buffer. data has segments of segment
// bytes; the last one may be shorter. Where segment is 0, or not smaller than
// data, data is a single packet. meta gives all fields but Data, IPID and ICRC.
// Split checks the ICRC of every packet with v. It returns how many segments it
// dropped because they cannot be packets.
func (b *RxBatch) Split(data []byte, segment int, meta RxPacket, v *Verifier) (malformed int) {
	return b.SplitFrom(0, data, segment, &meta, v)
}

// SplitFrom is Split for the rest of a buffer, which begins with segment first.
func (b *RxBatch) SplitFrom(first int, data []byte, segment int, meta *RxPacket, v *Verifier) (malformed int) {
	if segment <= 0 || segment > len(data) {
		segment = len(data)
	}
	if len(data) == 0 {
		return 1
	}
	peer := v.Peer(netip.AddrPortFrom(meta.Src, meta.SrcPort))
	for i := first; len(data) > 0; i++ {
		if i == maxRunReceived {
			return malformed + (len(data)+segment-1)/segment
		}
		n := min(segment, len(data))
		seg := data[:n:n]
		data = data[n:]
		if n < minPacketLen || n > rocev2.MaxPacketLen && (n > MaxSealedLen || !IsSealed(seg)) {
			malformed++
			continue
		}
		b.packets = append(b.packets, RxPacket{})
		p := &b.packets[len(b.packets)-1]
		// Field by field: to copy as a whole what was just written in
		// parts stalls.
		p.Data, p.Src, p.Dst = seg, meta.Src, meta.Dst
		p.SrcPort, p.TrafficClass, p.HopLimit, p.FlowLabel = meta.SrcPort, meta.TrafficClass, meta.HopLimit, meta.FlowLabel
		p.ICRC, p.IPID = peer.Check(i, seg)
	}
	return malformed
}
