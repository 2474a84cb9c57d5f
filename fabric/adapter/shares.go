package adapter

import (
	"math/bits"

	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/fabric/network"
	"github.com/gosoftroce/rocev2/hca/engine"
	"github.com/gosoftroce/rocev2/rocev2"
)

// Shares is how the classes of a host share its cable, as those of a switch
// share a port (network.Class): adapters have that, too (IEEE 802.1Q, enhanced
// transmission selection).
type Shares struct {
	Strict uint8                      // set of classes that go before all others, the highest first
	Weight [network.NumClasses]uint16 // of the others; 0 is 1
}

// SharesOf returns the shares that a switch has at a port with some classes.
func SharesOf(classes *[network.NumClasses]network.Class) *Shares {
	s := &Shares{}
	for i := range classes {
		s.Weight[i] = classes[i].Weight
		if classes[i].Strict {
			s.Strict |= 1 << i
		}
	}
	return s
}

// quanta returns the bytes that a class gets each time that its turn comes: a
// packet for the largest weight, so that shares are fair over few packets.
func (s *Shares) quanta() (q [network.NumClasses]int32) {
	most := int64(1)
	for _, w := range s.Weight {
		most = max(most, int64(w))
	}
	for i, w := range s.Weight {
		q[i] = int32(max(int64(w)*network.DefaultMTU/most, 1))
	}
	return q
}

// sharing says which class of a host sends next: deficit round robin, in which
// a class pays for a packet after it was sent, because its length is not known
// before. So it may owe up to a packet.
type sharing struct {
	strict  uint8
	quantum [network.NumClasses]int32
	left    [network.NumClasses]int32 // of the turn
	turn    uint8

	used   uint8 // classes of queue pairs
	needed bool  // the order is not always that of the classes
}

// use notes that a queue pair sends in a class.
func (s *sharing) use(class uint8) {
	s.used |= 1 << class
	s.needed = s.used&(s.used-1) != 0 || s.strict&(s.used-1) != 0
}

func newSharing(s *Shares) *sharing {
	return &sharing{strict: s.Strict, quantum: s.quanta()}
}

// next returns the class of a set that sends next. The set is not empty.
func (s *sharing) next(ready uint8) uint8 {
	if strict := ready & s.strict; strict != 0 {
		return uint8(bits.Len8(strict) - 1)
	}
	for ready>>s.turn&1 == 0 || s.left[s.turn] <= 0 {
		s.turn = following(s.turn, ready)
		s.left[s.turn] += s.quantum[s.turn]
	}
	return s.turn
}

// sent has a class of a set pay for a packet. One that was alone does not.
func (s *sharing) sent(class, ready uint8, bytes int) {
	if s.strict>>class&1 == 0 && ready&^s.strict&^(1<<class) != 0 {
		s.left[class] -= int32(bytes)
	}
}

// following returns the class of a set that comes after c, in a circle.
func following(c, set uint8) uint8 {
	if above := set &^ (2<<c - 1); above != 0 {
		return uint8(bits.TrailingZeros8(above))
	}
	return uint8(bits.TrailingZeros8(set))
}

// fill writes the next packet of the adapter, of a class that is not paused.
func (h *Host) fill(now event.Time, paused uint8) {
	at, tx := toClock(now), h.part.tx
	left := uint8(0)
	if h.sharing != nil && h.sharing.needed {
		left = uint8(h.e.Classes()) &^ paused
	}
	for left&(left-1) != 0 { // there is something to share
		class := h.sharing.next(left)
		if h.e.Fill(at, tx, 1<<class); tx.Len() > 0 {
			data, _ := tx.Packet(0)
			h.sharing.sent(class, left, network.WireSize(ipHeaders+len(data)+rocev2.ICRCLen))
			return
		}
		left &^= 1 << class // it had nothing to send
	}
	h.e.Fill(at, tx, ^engine.Classes(paused))
}
