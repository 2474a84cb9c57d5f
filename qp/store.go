package qp

import (
	"math/bits"

	"github.com/gosoftroce/rocev2/clock"
	"github.com/gosoftroce/rocev2/rocev2"
)

// MaxReorder is how many PSNs past the expected one a packet may be to be kept:
// what a sender of our own kind has in flight at the most.
const MaxReorder = 1 << 12

// reorderGap is how many PSNs past the expected packet, or past the last one
// that is kept, a packet may be to be kept. A PSN is that many times easier to
// guess than without a reorder buffer.
const reorderGap = 128

// Store is memory for packets that arrived behind a gap, shared by queue pairs
// that are not used concurrently. It takes memory as it is needed, up to its
// limit, and keeps it for the next loss. When it is full, each queue pair that
// needs it has an equal share.
type Store struct {
	limit   int // packets
	made    int // packets allocated so far
	free    *keptPacket
	spare   *reorderBuffer
	buffers int            // in use
	ring    *reorderBuffer // one of these
	named   uint32         // name of the last buffer that was allocated

	index []*keptPacket // by buffer and PSN; chained
	shift uint8
}

// NewStore makes a store for so many packets, of 4.5 KiB each at the most.
func NewStore(packets int) *Store { return &Store{limit: packets} }

// keptPacket is a packet behind a gap.
type keptPacket struct {
	next         *keptPacket // in its chain of the index, or in the free list
	older, newer *keptPacket // in its buffer
	of           *reorderBuffer
	at           clock.Time // of its arrival
	psns         uint32     // that it takes: more than one for a READ request
	packet       rocev2.Packet
	buf          [4096]byte
}

// reorderBuffer is what one direction of a queue pair has in a store: packets
// at most MaxReorder PSNs past the expected one. The queue pair has none while
// nothing is kept.
type reorderBuffer struct {
	store          *Store
	left, right    *reorderBuffer // in the store's ring of those in use; the free list goes by right
	name           uint32
	n              int
	oldest, newest *keptPacket
	first          rocev2.PSN              // the lowest that is kept
	end            rocev2.PSN              // behind the PSNs of the highest
	have           [MaxReorder / 64]uint64 // the PSNs that are kept, modulo MaxReorder
}

// buffer returns an empty buffer.
func (s *Store) buffer() *reorderBuffer {
	b := s.spare
	if b != nil {
		s.spare = b.right
	} else {
		s.named++
		b = &reorderBuffer{store: s, name: s.named}
	}
	if s.buffers++; s.ring == nil {
		b.left, b.right = b, b
		s.ring = b
	} else {
		b.left, b.right = s.ring.left, s.ring
		b.left.right, b.right.left = b, b
	}
	return b
}

// release takes an empty buffer back.
func (s *Store) release(b *reorderBuffer) {
	if s.buffers--; s.buffers == 0 {
		s.ring = nil
	} else {
		b.left.right, b.right.left = b.right, b.left
		s.ring = b.right
	}
	b.left, b.right = nil, s.spare
	s.spare = b
}

// take returns room for another packet of b, nil if there is none. When the
// store is full, room comes from a buffer that has more than its share, if b
// has less.
func (s *Store) take(b *reorderBuffer) *keptPacket {
	if s.free == nil && s.made == s.limit && !s.reclaim(b) {
		return nil
	}
	k := s.free
	if k != nil {
		s.free = k.next
		return k
	}
	if s.index == nil {
		s.index = make([]*keptPacket, 1<<bits.Len(uint(s.limit)))
		s.shift = uint8(32 - bits.Len(uint(s.limit)))
	}
	s.made++
	return new(keptPacket)
}

// reclaim cuts a buffer that has more than its share down to that, for one that
// has less. The newest packets go: as if they had met a full store themselves.
func (s *Store) reclaim(b *reorderBuffer) bool {
	share := s.limit / s.buffers
	if b.n >= share {
		return false
	}
	for v := s.ring; ; v = v.right { // there is one: else fewer packets were in use
		if v.n > share {
			for v.n > share {
				v.remove(v.newest)
			}
			v.bound()
			s.ring = v.right
			return true
		}
	}
}

// chain returns where the search for a PSN of b begins.
func (s *Store) chain(b *reorderBuffer, psn rocev2.PSN) **keptPacket {
	return &s.index[(uint32(psn)^b.name<<12)*0x9e3779b1>>s.shift]
}

func (b *reorderBuffer) bit(psn rocev2.PSN) (word *uint64, mask uint64) {
	i := uint32(psn) % MaxReorder
	return &b.have[i/64], 1 << (i % 64)
}

// find returns the packet that is kept for a PSN, which lies in the buffer's
// range, or nil.
func (b *reorderBuffer) find(psn rocev2.PSN) *keptPacket {
	if w, m := b.bit(psn); *w&m == 0 {
		return nil
	}
	k := *b.store.chain(b, psn)
	for k != nil && (k.of != b || k.packet.BTH.PSN != psn) {
		k = k.next
	}
	return k
}

// insert adds a packet whose PSN is not there.
func (b *reorderBuffer) insert(k *keptPacket) {
	psn := k.packet.BTH.PSN
	c := b.store.chain(b, psn)
	k.next, k.of = *c, b
	*c = k
	w, m := b.bit(psn)
	*w |= m
	k.older, k.newer = b.newest, nil
	if b.n == 0 {
		b.oldest, b.first, b.end = k, psn, k.end()
	} else {
		b.newest.newer = k
		if psn.Before(b.first) {
			b.first = psn
		}
		if k.end().After(b.end) {
			b.end = k.end()
		}
	}
	b.newest = k
	b.n++
}

// end is the PSN behind those of a packet.
func (k *keptPacket) end() rocev2.PSN { return k.packet.BTH.PSN.Add(int(k.psns)) }

// remove gives a packet back. The bounds stay as they are.
func (b *reorderBuffer) remove(k *keptPacket) {
	psn := k.packet.BTH.PSN
	c := b.store.chain(b, psn)
	for *c != k {
		c = &(*c).next
	}
	*c = k.next
	w, m := b.bit(psn)
	*w &^= m
	if k.older != nil {
		k.older.newer = k.newer
	} else {
		b.oldest = k.newer
	}
	if k.newer != nil {
		k.newer.older = k.older
	} else {
		b.newest = k.older
	}
	b.n--
	k.older, k.newer, k.of = nil, nil, nil
	k.next = b.store.free
	b.store.free = k
}

// pop gives the first packet back.
func (b *reorderBuffer) pop() {
	psn := b.first
	b.remove(b.find(psn))
	if b.n > 0 {
		b.first = b.after(psn)
	}
}

// after returns the first PSN behind psn that is kept; there is one.
func (b *reorderBuffer) after(psn rocev2.PSN) rocev2.PSN {
	for psn = psn.Next(); ; psn = psn.Add(int(64 - psn%64)) {
		w, _ := b.bit(psn)
		if rest := *w >> (psn % 64); rest != 0 {
			return psn.Add(bits.TrailingZeros64(rest))
		}
	}
}

// bound finds the bounds again after packets in the middle were removed.
func (b *reorderBuffer) bound() {
	if b.n == 0 {
		return
	}
	if w, m := b.bit(b.first); *w&m == 0 {
		b.first = b.after(b.first)
	}
	last := b.first
	for n := 1; n < b.n; n++ {
		last = b.after(last)
	}
	b.end = b.find(last).end()
}

// discardBefore gives back what comes before a PSN.
func (b *reorderBuffer) discardBefore(psn rocev2.PSN) {
	for b.n > 0 && b.first.Before(psn) {
		b.pop()
	}
}

// discardUntil gives back what arrived at a time or before.
func (b *reorderBuffer) discardUntil(at clock.Time) (n int) {
	for b.n > 0 && b.oldest.at <= at {
		b.remove(b.oldest)
		n++
	}
	b.bound()
	return n
}
