package transport

import (
	"net/netip"

	"github.com/gosoftroce/rocev2/rocev2"
)

// Limits of a run: what UDP_SEGMENT takes on every kernel that has it.
const (
	MaxRunSegments = 64
	MaxRunBytes    = 65507 // an IPv4 datagram without its headers
)

// TxBatch collects packets for one Send. It is not safe for concurrent use.
type TxBatch struct {
	arena []byte
	off   int // end of the last packet, its ICRC included
	soft  int // from here on the batch ends with a whole run
	pkts  []txPacket

	whole bool // packets are sealed as they come

	runStart, runSize int  // the latest run: where it begins, and the size of its packets
	runLen            int  // packets
	runShort          bool // the last of them is shorter: nothing can join it
}

type txPacket struct {
	off, n int // BTH..pad is arena[off:off+n], the ICRC follows
	path   *Path
	damage uint32
	id     uint16
}

// NewTxBatch makes a batch with room for arenaBytes, at least one packet of
// the largest size.
func NewTxBatch(arenaBytes int) *TxBatch {
	arenaBytes = max(arenaBytes, rocev2.MaxPacketLen)
	return &TxBatch{
		arena: make([]byte, arenaBytes),
		soft:  max(arenaBytes-MaxRunBytes-rocev2.MaxPacketLen, 0),
		pkts:  make([]txPacket, 0, arenaBytes/1024+1),
	}
}

// NewSealedBatch makes a batch for packets that need no ICRC: Commit is given
// all of their bytes, and Seal leaves them as they are. Room has MaxSealedLen.
func NewSealedBatch(arenaBytes int) *TxBatch {
	b := NewTxBatch(arenaBytes + MaxSealedLen)
	b.whole = true
	return b
}

// Room returns rocev2.MaxPacketLen bytes to encode the next packet into, or nil
// when the batch is full. The end of the arena, as long as the longest run,
// takes only packets that complete a run, so that no run leaves half full.
func (b *TxBatch) Room() []byte {
	end := b.off + rocev2.MaxPacketLen
	if b.whole {
		end += SealedOverhead
	}
	if end > len(b.arena) || b.off >= b.soft && b.full() {
		return nil
	}
	return b.arena[b.off:end:end]
}

// Commit adds the first n bytes of Room (BTH to pad) as a packet to p. It
// panics if n is less than a BTH or does not leave room for the ICRC.
func (b *TxBatch) Commit(n int, p *Path) {
	most := rocev2.MaxPacketLen
	if b.whole {
		n, most = n-rocev2.ICRCLen, MaxSealedLen
	}
	if n < rocev2.BTHLen || n > most-rocev2.ICRCLen || p == nil {
		panic("transport: TxBatch.Commit out of range")
	}
	b.pkts = append(b.pkts, txPacket{})
	t := &b.pkts[len(b.pkts)-1] // in place: to copy what was just written in parts stalls
	t.off, t.n, t.path = b.off, n, p
	// The packet joins the latest run, or ends it. Run finds the same runs.
	size := n + rocev2.ICRCLen
	if size > b.runSize || !b.fits(size) || b.pkts[len(b.pkts)-2].path != p {
		b.runStart, b.runSize, b.runLen = b.off, size, 0
	}
	b.runLen++
	b.runShort = size < b.runSize
	b.off += size
}

// fits reports whether the latest run can take size bytes more, as a packet.
func (b *TxBatch) fits(size int) bool {
	return !b.runShort && b.runLen > 0 && b.runLen < MaxRunSegments && b.off+size <= b.runStart+MaxRunBytes
}

// full reports whether the latest run can take no other packet of its size.
func (b *TxBatch) full() bool { return b.runLen > 0 && !b.fits(b.runSize) }

// Len returns the number of packets.
func (b *TxBatch) Len() int { return len(b.pkts) }

// Bytes returns the number of bytes of all packets, their ICRCs included.
func (b *TxBatch) Bytes() int { return b.off }

// Reset empties the batch. Its paths are no longer referenced.
func (b *TxBatch) Reset() {
	clear(b.pkts)
	b.pkts = b.pkts[:0]
	b.off, b.runLen, b.runShort = 0, 0, false
}

// Packet returns packet i from BTH to pad, and its path.
func (b *TxBatch) Packet(i int) (data []byte, p *Path) {
	k := &b.pkts[i]
	return b.arena[k.off : k.off+k.n : k.off+k.n], k.path
}

// ToCommit returns what Commit was given of packet i, and its path.
func (b *TxBatch) ToCommit(i int) (data []byte, p *Path) {
	if b.whole {
		data, _ = b.Sealed(i)
		return data, b.pkts[i].path
	}
	return b.Packet(i)
}

// Sealed returns packet i from BTH to ICRC and the IPv4 Identification that it
// was sealed with. It is valid after Seal.
func (b *TxBatch) Sealed(i int) (data []byte, ipID uint16) {
	k := &b.pkts[i]
	end := k.off + k.n + rocev2.ICRCLen
	return b.arena[k.off:end:end], k.id
}

// Damage makes Seal spoil the ICRC of packet i by exclusive-or with mask, as a
// corrupted packet has it. Package fault uses it.
func (b *TxBatch) Damage(i int, mask uint32) { b.pkts[i].damage = mask }

// Damaged reports whether one of the packets of r was damaged.
func (b *TxBatch) Damaged(r *Run) bool {
	for i := r.First; i < r.Last; i++ {
		if b.pkts[i].damage != 0 {
			return true
		}
	}
	return false
}

// NeedsNoICRC reports whether the batch is one of NewSealedBatch, or a view of
// one.
func (b *TxBatch) NeedsNoICRC() bool { return b.whole }

// CopyPacket adds a copy of packet i of src, which is a batch of the same kind,
// its damage included. It reports false when the batch is full.
func (b *TxBatch) CopyPacket(src *TxBatch, i int) bool {
	data, p := src.ToCommit(i)
	if b.off+len(data)+rocev2.ICRCLen > len(b.arena) {
		return false
	}
	copy(b.arena[b.off:], data)
	b.Commit(len(data), p)
	b.pkts[len(b.pkts)-1].damage = src.pkts[i].damage
	return true
}

// View makes v the packets first to last-1 of b, which v shares until it is
// reset. A view is for sending: it takes no other packets.
func (b *TxBatch) View(v *TxBatch, first, last int) {
	v.arena, v.off, v.pkts, v.whole = b.arena, len(b.arena), b.pkts[first:last:last], b.whole
}

// Run is a part of a TxBatch that can leave as one buffer: packets First to
// Last-1, all to Path. All have SegmentSize bytes but the last, which may be
// shorter. Data is all of them with their ICRCs.
type Run struct {
	Path        *Path
	First, Last int
	SegmentSize int
	Data        []byte
}

// Len returns the number of packets in r.
func (r *Run) Len() int { return r.Last - r.First }

// Run returns the run that starts at packet first, which must exist. Without
// offload every packet is a run of its own.
func (b *TxBatch) Run(first int, offload bool) Run {
	p := &b.pkts[first]
	size := p.n + rocev2.ICRCLen
	end, last := p.off+size, first+1
	if offload {
		limit := p.off + MaxRunBytes
		for last < len(b.pkts) && last-first < MaxRunSegments {
			q := &b.pkts[last]
			n := q.n + rocev2.ICRCLen
			if q.path != p.path || n > size || q.off+n > limit {
				break
			}
			end = q.off + n
			last++
			if n < size {
				break
			}
		}
	}
	return Run{Path: p.path, First: first, Last: last, SegmentSize: size, Data: b.arena[p.off:end:end]}
}

// Seal writes the ICRC of every packet of r for sending from local. It seals
// packet i of the run for the IPv4 Identification i: a datagram socket with the
// don't-fragment flag sends 0 (RFC 6864 leaves the choice to the sender), and
// segmentation counts up from there.
func (b *TxBatch) Seal(r *Run, local netip.AddrPort) {
	flow := r.Path.Flow(local)
	for i := r.First; i < r.Last; i++ {
		p := &b.pkts[i]
		end := p.off + p.n
		p.id = uint16(i - r.First)
		data := b.arena[p.off : end : end+rocev2.ICRCLen]
		switch {
		case b.whole:
		case r.Path.KernelPeer:
			flow.SealKernelFlush(p.id, data)
		default:
			flow.Seal(p.id, data)
		}
		if p.damage != 0 {
			for k := range rocev2.ICRCLen {
				b.arena[end+k] ^= byte(p.damage >> (8 * k))
			}
		}
	}
}

// SealAll seals the whole batch, run by run.
func (b *TxBatch) SealAll(local netip.AddrPort, offload bool) {
	for i := 0; i < len(b.pkts); {
		r := b.Run(i, offload)
		b.Seal(&r, local)
		i = r.Last
	}
}
