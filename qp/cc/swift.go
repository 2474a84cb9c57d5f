package cc

import (
	"math/bits"
	"time"

	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// SwiftConfig is the parameters of Swift. What is 0 has its default. The paper
// has the law and few numbers; the defaults are those of the authors of htsim
// (swift.cpp).
type SwiftConfig struct {
	Target time.Duration // the round trip that is aimed at, without the rest; 0 means 20 µs
	Hop    time.Duration // what each switch on the path adds to it (ħ); 0 means Target/6.55
	Hops   int           // switches on the path; negative: none
	Range  time.Duration // what a small window adds to it at most (fs_range); 0 means 5 · Target
}

// withDefaults fills in what is 0.
func (c SwiftConfig) withDefaults() SwiftConfig {
	if c.Target == 0 {
		c.Target = 20 * time.Microsecond
	}
	if c.Hop == 0 {
		c.Hop = c.Target * 100 / 655
	}
	if c.Range == 0 {
		c.Range = 5 * c.Target
	}
	c.Hops = max(c.Hops, 0)
	return c
}

// Check says what of c is out of its range.
func (c SwiftConfig) Check() error {
	c = c.withDefaults()
	return inRange("Swift", []bound{
		{"target", uint64(c.Target), uint64(time.Microsecond), uint64(time.Second)},
		{"hop", uint64(c.Hop), 0, uint64(time.Second)},
		{"hops", uint64(c.Hops), 0, 255},
		{"range", uint64(c.Range), 0, 8 * uint64(time.Second)},
	})
}

// Swift is the congestion control of Kumar et al., "Swift: Delay is Simple and
// Effective for Congestion Control in the Datacenter" (SIGCOMM 2020), algorithm
// 1. It aims at a round trip: below it the window grows by a packet in each,
// and above it gives way in proportion to what is beyond, by half at most. The
// target grows with the number of switches on the path, and where the window is
// small, so that many flows find room in a queue and come to equal shares. A
// window may be smaller than a packet: then one is sent in more than a round
// trip. A loss halves the window, once in a round trip.
//
// The paper tells the delay of the fabric from that in hosts, by time stamps of
// the adapter, and has a window for each of the two. Here a round trip is
// measured as a whole, from a packet to its acknowledgement, one at a time; so
// there is one window, and a target has the hosts' part in it.
//
// All arithmetic is in integers, packets in units of 2^-20.
type Swift struct {
	spaced
	c SwiftConfig

	window  uint64 // in packets
	prior   uint64 // as Silence found it
	packet  int    // what one counts, as it was last
	silent  int    // timeouts in a row
	delay   time.Duration
	changed clock.Time // last time that it was made smaller
	cut     bool       // it ever was
}

const (
	onePacket = 1 << 20 // of windows
	// leastPackets is the smallest window, some bytes of a packet, as in
	// htsim: a connection has to go on, with a READ of many packets, too.
	leastPackets = onePacket / 128
	// manyTimeouts is how many timeouts in a row make the window the
	// smallest (RETX_RESET_THRESHOLD).
	manyTimeouts = 5
)

// NewSwift returns a controller with these parameters, that Check finds good,
// within the bounds of w. It begins with w.InitialBytes.
func NewSwift(c SwiftConfig, w Config) *Swift {
	s := &Swift{c: c.withDefaults()}
	s.bounds = w.withDefaults()
	s.Reset()
	return s
}

// SetConfig implements Controller.
func (s *Swift) SetConfig(c Config) {
	initial := s.bounds.InitialBytes
	s.bounds = c.withDefaults()
	s.bounds.InitialBytes = min(initial, s.bounds.MaxBytes)
	s.window = s.within(s.window)
}

// Reset implements Controller.
func (s *Swift) Reset() {
	*s = Swift{c: s.c, spaced: spaced{burst: 1, bounds: s.bounds}, packet: 4096 + PacketOverhead}
	s.window = s.within(muldiv(uint64(s.bounds.InitialBytes), onePacket, uint64(s.packet)))
}

// within returns a window in its bounds.
func (s *Swift) within(window uint64) uint64 {
	return max(min(window, max(muldiv(uint64(s.bounds.MaxBytes), onePacket, uint64(max(s.packet, 1))), onePacket)), leastPackets)
}

// Window returns the window, in units of 2^-20 packets of the path MTU.
func (s *Swift) Window() uint64 { return s.window }

// Limit implements Controller.
func (s *Swift) Limit() Limit {
	return s.limit(muldiv(s.window, uint64(s.packet), onePacket), ackPSNs)
}

// Sent implements Controller.
func (s *Swift) Sent(now clock.Time, bytes, packets int) { s.sent(now, bytes, packets) }

// Of flow scaling: 1/√w for the windows of 0.1 and 100 packets, in units of
// 2^-20.
const (
	smallFlow = 3315894
	largeFlow = onePacket / 10
)

// Target returns the round trip that is aimed at, with a window: Target, Hop
// for each switch, and with less than 100 packets a part of Range that grows
// with 1/√w, up to all of it with 0.1.
func (s *Swift) Target() time.Duration {
	w := min(max(root(1<<60/s.window), largeFlow), smallFlow)
	return s.c.Target + time.Duration(s.c.Hops)*s.c.Hop +
		time.Duration(muldiv(uint64(s.c.Range), w-largeFlow, smallFlow-largeFlow))
}

// root returns the square root, rounded down.
func root(n uint64) uint64 {
	if n == 0 {
		return 0
	}
	for x := uint64(1) << ((bits.Len64(n) + 1) / 2); ; {
		y := (x + n/x) / 2
		if y >= x {
			return x
		}
		x = y
	}
}

// Acked implements Controller.
func (s *Swift) Acked(now clock.Time, f *Flight, n uint64) bool {
	before := s.window
	s.packet, s.silent = f.Packet, 0
	if f.Sample > 0 {
		s.delay = f.Sample
	}
	target := s.Target()
	switch {
	case s.delay == 0: // not known
	case s.delay < target:
		s.grow(min(n, uint64(s.bounds.MaxBytes)))
	case f.Sample > 0: // else this round trip was looked at
		// 0.8 of the excess (β), at most half (max_mdf).
		excess := muldiv(uint64(s.delay-target), onePacket*8/10, uint64(s.delay))
		s.shrink(now, f, min(excess, onePacket/2))
	}
	return s.space(now) || s.window != before
}

// grow grows the window for n bytes that were acknowledged, by a packet for
// each window of them; if that is smaller than one, by as much as they are.
func (s *Swift) grow(n uint64) {
	packets := muldiv(n, onePacket, uint64(s.packet))
	if s.window >= onePacket {
		packets = muldiv(packets, onePacket, s.window)
	}
	s.window = s.within(s.window + packets)
}

// shrink makes the window smaller by a part in units of 2^-20, if a round trip
// has passed since the last time, and reports whether it does.
func (s *Swift) shrink(now clock.Time, f *Flight, part uint64) bool {
	if s.cut && now < s.changed.Add(max(s.delay, f.RTT)) {
		return false
	}
	before := s.window
	s.window = s.within(before - muldiv(before, part, onePacket))
	s.changed, s.cut = now, true
	return s.window < before
}

// space has packets be spaced while the window is smaller than one. It reports
// whether the rate may be another one.
func (s *Swift) space(now clock.Time) bool {
	if s.window >= onePacket {
		was := s.paced
		s.paced = false
		return was
	}
	wire := uint64(max(s.packet-PacketOverhead, 0) + WireOverhead)
	s.setRate(now, muldiv(wire*s.window>>10, 8*uint64(time.Second)>>10, uint64(max(s.delay, time.Microsecond))), never64)
	return true
}

const never64 = 1<<64 - 1 // a line that no rate comes to

// Lost implements Controller.
func (s *Swift) Lost(now clock.Time, f *Flight, how Loss) bool {
	s.packet = f.Packet
	if how == Timeout {
		if s.silent++; s.silent >= manyTimeouts {
			less := s.window > leastPackets
			s.window, s.changed, s.cut = leastPackets, now, true
			s.space(now)
			return less
		}
	}
	less := s.shrink(now, f, onePacket/2)
	s.space(now)
	return less
}

// Marked implements Controller. The round trip tells more.
func (s *Swift) Marked(clock.Time, *Flight, Mark) bool { return false }

// Silence implements Controller.
func (s *Swift) Silence() { s.prior = s.window }

// Undo implements Controller.
func (s *Swift) Undo() {
	s.window = s.within(max(s.window, s.prior))
	s.silent = 0
	s.paced = s.paced && s.window < onePacket
}

// Advance implements Controller.
func (s *Swift) Advance(clock.Time) {}
