package queue

import (
	"bytes"
	"fmt"
	"time"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// Reorder is a reorder buffer: the packets of one direction of a connection
// that arrived after a gap, until the gap is closed. It takes memory from a
// Pool while there are some; the zero value is empty.
//
// What is in it has not been checked by the order of PSNs, and may be forged.
// So it is bounded, see Insert, and a packet is given back when it is older
// than ReorderAge says.
type Reorder struct{ *buffer }

// Inserted is what became of a packet that was to be kept.
type Inserted uint8

const (
	Buffered Inserted = iota
	Refused           // there is no room, it is too far ahead, or it is kept already
	Conflict          // another packet was kept for its PSN, and now neither is
)

// Len returns the number of packets.
func (r Reorder) Len() int {
	if r.buffer == nil {
		return 0
	}
	return r.n
}

// First returns the lowest PSN; the buffer must not be empty.
func (r Reorder) First() rocev2.PSN { return r.first }

// End returns the PSN after the highest packet; the buffer must not be empty.
func (r Reorder) End() rocev2.PSN { return r.end }

// Lowest returns the packet with the lowest PSN, nil if there is none.
func (r Reorder) Lowest() *rocev2.Packet {
	if r.buffer == nil {
		return nil
	}
	if k := r.find(r.first); k != nil {
		return &k.packet
	}
	return nil
}

// Oldest returns when the oldest packet arrived, and whether there is one. If a
// gap was closed later, it returns about when: that shows that others will be,
// and on a long path each takes its time.
func (r Reorder) Oldest() (clock.Time, bool) {
	if r.buffer == nil {
		return 0, false
	}
	return max(r.oldest.at, r.moved), true
}

// Deadline returns when the oldest packet is kept for an age, and whether there
// is one.
func (r Reorder) Deadline(age time.Duration) (clock.Time, bool) {
	at, ok := r.Oldest()
	return at.Add(age), ok
}

// Pop gives the first packet back. The memory of the buffer itself stays until
// Trim, so that the packet can still be read.
func (r *Reorder) Pop() { r.pop() }

// Trim gives the memory of the buffer back if it is empty.
func (r *Reorder) Trim() {
	if b := r.buffer; b != nil && b.n == 0 {
		b.pool.release(b)
		r.buffer = nil
	}
}

// Discard gives everything back.
func (r *Reorder) Discard() {
	if b := r.buffer; b != nil {
		for b.n > 0 {
			b.remove(b.newest)
		}
		r.Trim()
	}
}

// Expire gives back what arrived at a time or before, and returns how much that
// was.
func (r *Reorder) Expire(at clock.Time) (n int) {
	if r.buffer != nil && r.moved <= at {
		n = r.discardUntil(at)
		r.Trim()
	}
	return n
}

// Insert keeps a packet that lies after the gap at the expected PSN and takes
// psns PSNs, unless it lies too far ahead: more than 128 past the expected PSN
// or past the last packet that is kept, or more than the pool's Reach past the
// expected one.
func (r *Reorder) Insert(pool *Pool, now clock.Time, p *rocev2.Packet, psns uint32, expected rocev2.PSN) Inserted {
	if r.buffer != nil {
		r.discardBefore(expected)
		r.Trim()
	}
	psn := p.BTH.PSN
	distance := psn.Ahead(expected)
	limit := uint32(reorderGap)
	if r.buffer != nil {
		limit = min(r.end.Ahead(expected)-1+reorderGap, uint32(pool.Reach))
		if distance <= limit {
			if k := r.find(psn); k != nil {
				return r.insertAgain(k, p)
			}
		}
	}
	if distance > limit {
		return Refused
	}
	if r.buffer == nil {
		if r.buffer = pool.open(); r.buffer == nil {
			return Refused
		}
	}
	k := pool.take(r.buffer, len(p.Payload))
	if k == nil {
		r.Trim()
		return Refused
	}
	if b := r.buffer; b.n == 0 {
		b.expected, b.moved = expected, 0
	} else if b.expected != expected {
		b.expected, b.moved = expected, now
	}
	k.at, k.psns = now, min(psns, MostReorder)
	k.keep(p)
	r.insert(k)
	return Buffered
}

// insertAgain takes a packet with the PSN of one that is kept. If it says
// something else, one of them is forged and there is no way to know which: both
// are dropped, and the peer sends the right one again. A peer's program that
// changed its data meanwhile looks the same, and costs no more.
func (r *Reorder) insertAgain(k *heldPacket, p *rocev2.Packet) Inserted {
	a, b := &k.packet, p
	if isAcknowledge(a) && isAcknowledge(b) {
		a.BTH, a.AETH = b.BTH, b.AETH // as the NAK for a PSN and then its acknowledgement
		return Refused
	}
	if sameMeaning(a, b) {
		return Refused
	}
	r.remove(k)
	r.bound()
	r.Trim()
	return Conflict
}

func isAcknowledge(p *rocev2.Packet) bool {
	info, _ := p.BTH.Opcode.Info()
	return info.Operation == rocev2.OpAcknowledge
}

// sameMeaning reports whether two packets of a PSN are the same but for what
// may change when it is sent again: AckReq, marks, AETH, and where the answer
// to a READ begins and ends.
func sameMeaning(a, b *rocev2.Packet) bool {
	x, _ := a.BTH.Opcode.Info()
	y, _ := b.BTH.Opcode.Info()
	if x.Operation == rocev2.OpReadResponse {
		return y.Operation == rocev2.OpReadResponse && bytes.Equal(a.Payload, b.Payload)
	}
	if a.BTH.Opcode != b.BTH.Opcode || a.BTH.Solicited != b.BTH.Solicited || !bytes.Equal(a.Payload, b.Payload) {
		return false
	}
	// The fields of headers that a packet does not have are left over from
	// others.
	h := x.Headers
	return (!h.Has(rocev2.HasXRCETH) || a.XRCETH.SRQN == b.XRCETH.SRQN) &&
		(!h.Has(rocev2.HasFETH) || a.FETH == b.FETH) &&
		(!h.Has(rocev2.HasRETH) || a.RETH == b.RETH) &&
		(!h.Has(rocev2.HasAtomicETH) || a.AtomicETH == b.AtomicETH) &&
		(!h.Has(rocev2.HasAtomicAckETH) || a.AtomicAck == b.AtomicAck) &&
		(!h.Has(rocev2.HasImmDt) || a.Imm == b.Imm) &&
		(!h.Has(rocev2.HasIETH) || a.IETH == b.IETH)
}

// A packet is kept for about as long as the usual local ACK timeout, after
// which a peer sends everything again. Where the round trip is known to be
// long, it is ageTrips of it, up to maxAge.
const (
	minAge     = 64 * time.Millisecond
	unknownAge = 256 * time.Millisecond
	maxAge     = 512 * time.Millisecond
	ageTrips   = 4
)

// ReorderAge returns the longest time for which a packet is kept: 64 ms, or
// four smoothed round trip times if that is longer, but at most 512 ms. An srtt
// of 0 is not known.
func ReorderAge(srtt time.Duration) time.Duration {
	return min(max(minAge, ageTrips*srtt), maxAge)
}

// RequestAge returns that for requests. A side that only answers knows no round
// trip, and before a slow link the queue alone may be 100 ms long: then it is
// 256 ms.
func RequestAge(srtt time.Duration) time.Duration {
	if srtt == 0 {
		return unknownAge
	}
	return ReorderAge(srtt)
}

// Check says what is wrong with the buffer, for tests: all packets are found in
// the order of their PSNs, after the expected one and in reach.
func (r Reorder) Check(expected rocev2.PSN) error {
	if r.buffer == nil {
		return nil
	}
	n := 0
	for k := r.oldest; k != nil; k = k.newer {
		if k.of != r.buffer || r.find(k.packet.BTH.PSN) != k || k.newer == nil && k != r.newest {
			return fmt.Errorf("PSN %v is not found", k.packet.BTH.PSN)
		}
		n++
	}
	if n == 0 || n != r.n {
		return fmt.Errorf("%d packets are kept, not %d", n, r.n)
	}
	psn := r.first
	for range n - 1 {
		psn = r.after(psn)
	}
	if !r.first.After(expected) || psn.Sub(expected) > r.pool.Reach || r.find(psn) == nil || r.end.Before(psn.Next()) {
		return fmt.Errorf("PSN %v is expected, %v to %v are kept, up to %v", expected, r.first, psn, r.end)
	}
	return nil
}

// Held returns how many packets the reorder buffers of a pool have, or what is
// wrong with it, for tests: there are buffers if and only if there are packets.
func (s *Pool) Held() (int, error) {
	n := s.packets
	for _, k := range s.free {
		for ; k != nil; k = k.next {
			n--
		}
	}
	chained := 0
	for _, k := range s.index {
		for ; k != nil; k = k.next {
			chained++
		}
	}
	if chained != n || (s.buffers > 0) != (n > 0) || (s.ring != nil) != (n > 0) || s.made > s.Limit {
		return n, fmt.Errorf("%d packets are given away, %d in the index, %d buffers", n, chained, s.buffers)
	}
	return n, nil
}
