package queue

import (
	"math/bits"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// buffer is what one direction of a queue pair has in a pool: packets
// at most pool.Reach PSNs past the expected one. The queue pair has none while
// nothing is kept.
type buffer struct {
	pool           *Pool
	left, right    *buffer // in the pool's ring of those in use; the free list goes by right
	name           uint32
	n              int
	oldest, newest *heldPacket
	first          rocev2.PSN // the lowest that is kept
	end            rocev2.PSN // after the PSNs of the highest
	expected       rocev2.PSN // when a packet came last
	moved          clock.Time // when that was first so
	used           int        // of the pool, in the unit of its limit
	have           []uint64   // the PSNs that are kept, modulo its bits
}

// words returns how many words of have are for reach PSNs: a power of two.
func words(reach int) int { return 1 << bits.Len(uint(max(reach, 64)-1)) / 64 }

func (b *buffer) bit(psn rocev2.PSN) (word *uint64, mask uint64) {
	i := uint32(psn) & uint32(64*len(b.have)-1)
	return &b.have[i/64], 1 << (i % 64)
}

// find returns the packet that is kept for a PSN, which lies in the buffer's
// range, or nil.
func (b *buffer) find(psn rocev2.PSN) *heldPacket {
	if w, m := b.bit(psn); *w&m == 0 {
		return nil
	}
	k := *b.pool.chain(b, psn)
	for k != nil && (k.of != b || k.packet.BTH.PSN != psn) {
		k = k.next
	}
	return k
}

// insert adds a packet whose PSN is not there.
func (b *buffer) insert(k *heldPacket) {
	psn := k.packet.BTH.PSN
	c := b.pool.chain(b, psn)
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

// end is the PSN after those of a packet.
func (k *heldPacket) end() rocev2.PSN { return k.packet.BTH.PSN.Add(int(k.psns)) }

// remove gives a packet back. The bounds stay as they are.
func (b *buffer) remove(k *heldPacket) {
	psn := k.packet.BTH.PSN
	c := b.pool.chain(b, psn)
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
	b.used -= b.pool.costs[k.class]
	k.older, k.newer, k.of = nil, nil, nil
	free := &b.pool.free[k.class]
	k.next, *free = *free, k
}

// pop gives the first packet back.
func (b *buffer) pop() {
	psn := b.first
	b.remove(b.find(psn))
	if b.n > 0 {
		b.first = b.after(psn)
	}
}

// after returns the first PSN after psn that is kept; there is one.
func (b *buffer) after(psn rocev2.PSN) rocev2.PSN {
	for psn = psn.Next(); ; psn = psn.Add(int(64 - psn%64)) {
		w, _ := b.bit(psn)
		if rest := *w >> (psn % 64); rest != 0 {
			return psn.Add(bits.TrailingZeros64(rest))
		}
	}
}

// before returns the last PSN before psn that is kept; there is one.
func (b *buffer) before(psn rocev2.PSN) rocev2.PSN {
	for psn = psn.Add(-1); ; psn = psn.Add(-1 - int(psn%64)) {
		w, _ := b.bit(psn)
		if rest := *w << (63 - psn%64); rest != 0 {
			return psn.Add(-bits.LeadingZeros64(rest))
		}
	}
}

// bound finds the bounds again after packets in the middle were removed.
func (b *buffer) bound() {
	if b.n == 0 {
		return
	}
	if w, m := b.bit(b.first); *w&m == 0 {
		b.first = b.after(b.first)
	}
	end := b.end // a packet that takes many PSNs may end where the bits have begun again
	if end.Ahead(b.first) > uint32(b.pool.Reach) {
		end = b.first.Add(b.pool.Reach)
	}
	b.end = b.find(b.before(end)).end()
}

// discardBefore gives back what comes before a PSN.
func (b *buffer) discardBefore(psn rocev2.PSN) {
	for b.n > 0 && b.first.Before(psn) {
		b.pop()
	}
}

// discardUntil gives back what arrived at a time or before.
func (b *buffer) discardUntil(at clock.Time) (n int) {
	for b.n > 0 && b.oldest.at <= at {
		b.remove(b.oldest)
		n++
	}
	b.bound()
	return n
}
