package cc

import (
	"math"
	"math/bits"
	"time"

	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// Hop is what a switch tells of the port by which a packet has left it (in-band
// network telemetry, INT).
type Hop struct {
	Rate   uint64     // of the cable, in bits per second
	Queued uint64     // bytes that were left in the port's queues
	Sent   uint64     // bytes that the port has ever sent; it may wrap
	At     clock.Time // when the packet left, by the switch's clock
	Node   uint32     // the switch, and its port: another one is another path
	Port   uint32
}

// Telemetry is what a Controller implements besides, that looks at what the
// switches on the way tell. Hops is called before Acked for the acknowledgement
// that has brought the hops of the newest packet that the peer has received, in
// the order of the path, or for the response to a READ that has come with its
// own. They are the caller's, and are not kept.
type Telemetry interface {
	Hops(now clock.Time, hops []Hop)
}

// Tell hands the hops of a packet to a controller that looks at them, and
// reports whether it does.
func Tell(c Controller, now clock.Time, hops []Hop) bool {
	if p, ok := c.(*Pacer); ok {
		c = p.Controller
	}
	t, ok := c.(Telemetry)
	if ok {
		t.Hops(now, hops)
	}
	return ok
}

// muldiv returns a·b/c, rounded down, or the largest number where it is larger,
// or c is 0.
func muldiv(a, b, c uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	if hi >= c {
		return math.MaxUint64
	}
	q, _ := bits.Div64(hi, lo, c)
	return q
}

// carries returns how many bytes a rate in bits per second carries in a time,
// in units of 1/256 byte.
func carries(rate uint64, t time.Duration) uint64 {
	return muldiv(rate, uint64(max(t, 0)), 8*uint64(time.Second)/256)
}

// spaced is a window in bytes on the wire that may be smaller than a packet,
// with a rate that spaces packets. It is the base of controllers that have
// both.
type spaced struct {
	bucket Rate
	paced  bool // the bucket bounds the rate
	burst  int  // bytes that may go at once, but no more than the rate gives in 1/burstTime s
	bounds Config
}

// limit returns the limit of a window of that many bytes as they count in
// flight. One packet may be in flight in any case.
func (s *spaced) limit(bytes uint64, acks uint16) Limit {
	l := Limit{Bytes: int(max(min(bytes, uint64(s.bounds.MaxBytes)), 1)), Max: s.bounds.MaxBytes, PSNs: uint32(s.bounds.MaxPSNs), AckPSNs: acks}
	if s.paced {
		s.bucket.narrow(&l)
	}
	return l
}

// setRate has packets be spaced at a rate, unless that is the line's or more.
// The first time the bucket is empty: what was sent before it was not counted.
func (s *spaced) setRate(now clock.Time, rate, line uint64) {
	rate = max(rate, leastRate)
	if rate >= line {
		s.paced = false
		return
	}
	burst := int(max(min(uint64(s.burst), rate/8/burstTime), 1))
	switch {
	case !s.paced:
		s.paced = true
		s.bucket.Set(rate, burst)
		s.bucket.full = later(now, s.bucket.depth)
		s.bucket.refill(now)
	case s.bucket.perSecond != rate:
		s.bucket.Change(now, rate, burst)
	}
}

// leastRate is the lowest rate that packets are spaced with, in bits per
// second, as in adapters (see AdapterProfile): a connection never stands still.
const leastRate = mega

// sent takes what was sent out of the bucket.
func (s *spaced) sent(now clock.Time, bytes, packets int) {
	if s.paced {
		s.bucket.Sent(now, bytes-packets*PacketOverhead, packets)
	}
}

// counted returns how a number of bytes on the wire counts in flight, in
// packets of the path MTU, that count packet each.
func counted(wire uint64, packet int) uint64 {
	return muldiv(wire, uint64(packet), uint64(max(packet-PacketOverhead+WireOverhead, 1)))
}
