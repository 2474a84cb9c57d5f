package queue

import (
	"math/bits"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// How many PSNs past the expected one a packet may be to be kept: MaxReorder is
// the most that a native sender has in flight unless its window is raised, and
// MostReorder bounds what it may be raised to.
const (
	MaxReorder  = 1 << 12
	MostReorder = 1 << 15
)

// reorderGap is how many PSNs past the expected packet, or past the last one
// that is kept, a packet may be to be kept. A PSN is that many times easier to
// guess than without a reorder buffer.
const reorderGap = 128

// Pool is the memory of reorder buffers, shared by queue pairs
// that are not used concurrently. It takes memory as it is needed, up to its
// limit, and keeps it for the next loss. When it is full, each queue pair that
// needs it has an equal share.
type Pool struct {
	PoolConfig
	costs   [len(rooms)]int // of packets, in the unit of the limit
	opening int             // and of a buffer
	made    int             // what all that was allocated costs
	packets int             // of that
	free    [len(rooms)]*heldPacket
	spare   *buffer
	buffers int     // in use
	ring    *buffer // one of these
	named   uint32  // name of the last buffer that was allocated

	index []*heldPacket // by buffer and PSN; chained
	shift uint8

	spareBoard  *Scoreboard
	spareBoards int

	order order // of the paths of those that use it
}

// PoolConfig describes a pool.
type PoolConfig struct {
	Limit   int  // bytes
	Reach   int  // how many PSNs past the expected one a packet may be; 0: MaxReorder; at most MostReorder
	Lengths bool // it keeps the lengths of payloads, and not their bytes, for memory that has none (memreg.Phantom)
}

// rooms are the sizes of payloads that packets have room for. A packet takes
// the least that it fits into.
var rooms = [...]int{0, 256, 512, 1024, 2048, 4096}

// NewPool makes a pool for that many packets of any size, of at most 4.5 KiB
// each.
func NewPool(packets int) *Pool {
	s := &Pool{PoolConfig: PoolConfig{Limit: packets, Reach: MaxReorder}}
	for i := range s.costs {
		s.costs[i] = 1
	}
	return s
}

// MakePool makes a pool that is bounded in bytes. One that keeps lengths takes
// about a tenth of them, and keeps as much as one with the payloads.
func MakePool(c PoolConfig) *Pool {
	if c.Reach = min(c.Reach, MostReorder); c.Reach <= 0 {
		c.Reach = MaxReorder
	}
	s := &Pool{PoolConfig: c, opening: bufferSize + words(c.Reach)*8}
	for i, room := range rooms {
		s.costs[i] = packetSize + room
	}
	return s
}

// What a buffer takes beside its bits, and a packet beside its payload, with
// their places in the index.
const (
	bufferSize = 128
	packetSize = 384
)

// classOf returns the index of the smallest room for payload bytes.
func classOf(payload int) int {
	for i, room := range rooms {
		if payload <= room {
			return i
		}
	}
	return len(rooms) - 1
}

// share returns what each queue pair that needs the pool can count on, in the
// unit of the limit; buffers is the number of such queue pairs.
func (s *Pool) share(buffers int) int { return s.Limit / max(buffers, 1) }

// Share returns how many packets with so much payload a queue pair that needs
// the pool can count on.
func (s *Pool) Share(payload int) int {
	return min(max(s.share(s.buffers)-s.opening, 0)/s.costs[classOf(payload)], s.Reach)
}

// heldPacket is a packet after a gap.
type heldPacket struct {
	next         *heldPacket // in its chain of the index, or in the free list
	older, newer *heldPacket // in its buffer
	of           *buffer
	at           clock.Time // of its arrival
	psns         uint32     // that it takes: more than one for a READ request
	class        uint8      // of its room
	packet       rocev2.Packet
	payload      []byte // room for it; nil: its length is enough
}

// noBytes are the payloads of which only the length is kept. They are never
// written.
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

// open returns an empty buffer, nil if there is no room for one.
func (s *Pool) open() *buffer {
	for s.spare == nil && s.made+s.opening > s.Limit {
		if !s.forget(-1) && !s.reclaim(s.share(s.buffers+1), s.opening) {
			return nil
		}
	}
	b := s.spare
	if b != nil {
		s.spare = b.right
	} else {
		s.named++
		s.made += s.opening
		b = &buffer{pool: s, name: s.named, used: s.opening, have: make([]uint64, words(s.Reach))}
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
func (s *Pool) take(b *buffer, payload int) *heldPacket {
	class := classOf(payload)
	cost := s.costs[class]
	for s.free[class] == nil && s.made+cost > s.Limit {
		if !s.forget(class) && !s.reclaim(s.share(s.buffers), b.used+cost) {
			return nil
		}
	}
	k := s.free[class]
	if k != nil {
		s.free[class] = k.next
		b.used += cost
		return k
	}
	s.made += cost
	if s.packets++; 2*s.packets > len(s.index) {
		s.widen()
	}
	b.used += cost
	k = &heldPacket{class: uint8(class)}
	if !s.Lengths {
		k.payload = make([]byte, rooms[class])
	}
	return k
}

// forget gives the memory up that lies unused, but for that of a class, and
// reports whether there was any.
func (s *Pool) forget(but int) bool {
	before := s.made
	for i := range s.free {
		for k := s.free[i]; k != nil && i != but; k = k.next {
			s.made -= s.costs[i]
			s.packets--
			s.free[i] = k.next
		}
	}
	for ; s.spare != nil; s.spare = s.spare.right {
		s.made -= s.opening
	}
	return s.made < before
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

// reclaimLooks is how many buffers are looked at for one that has more than its
// share. The next search goes on after them.
const reclaimLooks = 64

// reclaim cuts a buffer that has more than a share down to that, for one that
// is to have used so much, no more than the share. It reports whether there was
// one. The newest packets go: as if they had met a full pool themselves.
func (s *Pool) reclaim(share, used int) bool {
	if used > share {
		return false
	}
	for range min(s.buffers, reclaimLooks) {
		v := s.ring
		s.ring = v.right
		if v.used <= share || v.n == 1 {
			continue
		}
		for v.used > share && v.n > 1 {
			v.remove(v.newest)
		}
		v.bound()
		return true
	}
	return false
}

// chain returns where the search for a PSN of b begins.
func (s *Pool) chain(b *buffer, psn rocev2.PSN) **heldPacket {
	return &s.index[(uint32(psn)^b.name<<15)*0x9e3779b1>>s.shift]
}
