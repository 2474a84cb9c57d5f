package network

import (
	"math/bits"

	"github.com/gosoftroce/rocev2/fabric/event"
)

// noise is what a direction of a cable does to packets, if it is more than to
// lose each with the same chance. Chances are whole numbers: what happens is
// the same on every processor.
type noise struct {
	rand event.Rand

	// right has the chance that 2^i bits are right, of 2^64; of a cable
	// with bit errors.
	errors bool
	right  [maxBits]uint64

	// The model of Gilbert (1960): packets are lost in one of two states.
	// enter is the chance to come into it with the next packet, leave that
	// to get out, both of 2^64.
	enter, leave uint64
	losing       bool
}

const (
	maxBits = 20 // of the number of bits of a packet
	// quintillion is what bit error rates are counted in.
	quintillion = 1_000_000_000_000_000_000
)

// newNoise returns that of a transmitter, nil if its cable has none.
func (c *Cable) newNoise(seed uint64, l uint32) *noise {
	if c.BER == 0 && !c.bursty() {
		return nil
	}
	n := &noise{rand: event.NewRand(seed, uint64(l)<<8|streamNoise), errors: c.BER != 0}
	if c.BER < quintillion {
		wrong, _ := bits.Div64(c.BER, 0, quintillion)
		n.right[0] = -wrong
	}
	for i := range maxBits - 1 {
		hi, lo := bits.Mul64(n.right[i], n.right[i])
		n.right[i+1] = hi + lo>>63
	}
	if c.bursty() {
		n.leave = ^uint64(0) / uint64(c.Burst)
		hi, lo := bits.Mul64(n.leave, uint64(c.Loss))
		n.enter, _ = bits.Div64(hi, lo, billion-uint64(c.Loss))
	}
	return n
}

// bursty reports whether packets are lost in bursts.
func (c *Cable) bursty() bool { return c.Burst > 1 && c.Loss != 0 }

// loses draws whether a packet is lost.
func (n *noise) loses() bool {
	if n.leave == 0 {
		return false
	}
	chance := n.enter
	if n.losing {
		chance = n.leave
	}
	if n.rand.Uint64() < chance {
		n.losing = !n.losing
	}
	return n.losing
}

// spoils draws whether a bit of a packet is wrong on arrival: of its frame,
// without preamble and gap.
func (n *noise) spoils(size uint16) bool {
	if !n.errors {
		return false
	}
	const around = 8 + 12
	frame := 8 * (uint64(size) - around)
	chance := ^uint64(0)
	for i := range maxBits {
		if frame>>i&1 != 0 {
			chance, _ = bits.Mul64(chance, n.right[i])
		}
	}
	return n.rand.Uint64() >= chance
}
