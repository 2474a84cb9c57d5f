package queue

import (
	"math/bits"

	"github.com/gosoftroce/rocev2/clock"
	"github.com/gosoftroce/rocev2/rocev2"
)

// MaxReorder is how many PSNs past the expected one a packet may be to be kept:
// what a native sender has in flight at the most.
const MaxReorder = 1 << 12

// reorderGap is how many PSNs past the expected packet, or past the last one
// that is kept, a packet may be to be kept. A PSN is that many times easier to
// guess than without a reorder buffer.
const reorderGap = 128

// Pool is the memory of reorder buffers, shared by queue pairs
// that are not used concurrently. It takes memory as it is needed, up to its
// limit, and keeps it for the next loss. When it is full, each queue pair that
// needs it has an equal share.
type Pool struct {
	limit   int  // packets
	made    int  // packets allocated so far
	lengths bool // of payloads it keeps the lengths
	free    *heldPacket
	spare   *buffer
	buffers int     // in use
	ring    *buffer // one of these
	named   uint32  // name of the last buffer that was allocated

	index []*heldPacket // by buffer and PSN; chained
	shift uint8

	spareBoard  *Scoreboard
	spareBoards int
}

// NewPool makes a pool for so many packets, of 4.5 KiB each at the most.
func NewPool(packets int) *Pool { return &Pool{limit: packets} }

// NewLengthPool makes a pool that keeps the lengths of payloads, and not their
// bytes, for memory that has none (memreg.Phantom): a packet is then about a
// tenth as large. What it gives back has 0 for each byte.
func NewLengthPool(packets int) *Pool { return &Pool{limit: packets, lengths: true} }

// Share returns how many packets a queue pair that needs the pool can count
// on.
func (s *Pool) Share() int { return s.limit / max(s.buffers, 1) }

// heldPacket is a packet behind a gap.
type heldPacket struct {
	next         *heldPacket // in its chain of the index, or in the free list
	older, newer *heldPacket // in its buffer
	of           *buffer
	at           clock.Time // of its arrival
	psns         uint32     // that it takes: more than one for a READ request
	packet       rocev2.Packet
	payload      []byte // room for it; nil: its length is enough
}

// heldWhole is one with room for its payload.
type heldWhole struct {
	heldPacket
	room [4096]byte
}

// noBytes are the payloads of which only the length is kept. Nobody writes
// here.
var noBytes [4096]byte

// keep keeps a packet.
func (k *heldPacket) keep(p *rocev2.Packet) {
	k.packet = *p
	if k.payload == nil {
		k.packet.Payload = noBytes[:len(p.Payload):len(p.Payload)]
		return
	}
	k.packet.Payload = k.payload[:copy(k.payload, p.Payload)]
}

// open returns an empty buffer.
func (s *Pool) open() *buffer {
	b := s.spare
	if b != nil {
		s.spare = b.right
	} else {
		s.named++
		b = &buffer{pool: s, name: s.named}
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
func (s *Pool) release(b *buffer) {
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
// pool is full, room comes from a buffer that has more than its share, if b
// has less.
func (s *Pool) take(b *buffer) *heldPacket {
	if s.free == nil && s.made == s.limit && !s.reclaim(b) {
		return nil
	}
	k := s.free
	if k != nil {
		s.free = k.next
		return k
	}
	if s.made++; 2*s.made > len(s.index) {
		s.widen()
	}
	if s.lengths {
		return new(heldPacket)
	}
	w := new(heldWhole)
	w.payload = w.room[:]
	return &w.heldPacket
}

// fewChains is how long the index is at first.
const fewChains = 32

// widen doubles the index.
func (s *Pool) widen() {
	old, n := s.index, max(2*len(s.index), fewChains)
	s.index, s.shift = make([]*heldPacket, n), uint8(33-bits.Len(uint(n)))
	for _, k := range old {
		for k != nil {
			next, c := k.next, s.chain(k.of, k.packet.BTH.PSN)
			k.next, *c = *c, k
			k = next
		}
	}
}

// reclaim cuts a buffer that has more than its share down to that, for one that
// has less. The newest packets go: as if they had met a full pool themselves.
func (s *Pool) reclaim(b *buffer) bool {
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
func (s *Pool) chain(b *buffer, psn rocev2.PSN) **heldPacket {
	return &s.index[(uint32(psn)^b.name<<12)*0x9e3779b1>>s.shift]
}
