package cc

import (
	"math"
	"math/bits"
	"time"

	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// WireOverhead is what a packet takes of a rate beyond its payload, in bytes:
// Ethernet with its FCS, IPv4, UDP, BTH and ICRC. Extended headers are not
// counted.
const WireOverhead = 18 + 20 + 8 + 12 + 4

const (
	// defaultBurstTime is for how long a rate saves up by default: more
	// than a timer is late on a busy machine.
	defaultBurstTime = 4 * time.Millisecond
	minBurst         = 2 * (4096 + WireOverhead)

	// longPause is the pause between two bursts, without a request for an
	// acknowledgement, after which the peer could seem to be silent.
	longPause = clock.Time(100 * time.Microsecond)
)

// Rate bounds how many bytes are sent in a time: a token bucket. In any time t
// it lets through at most burst + rate · t, and one packet or one READ more.
// The zero Rate is no bound.
type Rate struct {
	perSecond uint64     // bits; 0: no bound
	burst     uint64     // bytes
	depth     clock.Time // what burst takes
	smooth    bool       // pauses are shorter than longPause
	full      clock.Time // when the bucket is full again if nothing more is sent
	rest      uint64     // of the last division, in bits · ns / perSecond
	room      int
	next      clock.Time
}

// Set sets the rate in bits per second, 0 for none, and how many bytes may go
// at once after a pause. A burst of 0 is what the rate gives in 4 ms, two full
// packets at least.
func (r *Rate) Set(perSecond uint64, burst int) {
	*r = Rate{perSecond: perSecond}
	if perSecond == 0 {
		return
	}
	r.burst = uint64(max(burst, 0))
	if burst <= 0 {
		hi, lo := bits.Mul64(perSecond, uint64(defaultBurstTime))
		r.burst, _ = bits.Div64(hi, lo, 8*uint64(time.Second))
		r.burst = min(max(r.burst, minBurst), math.MaxInt32)
	}
	r.deepen()
	r.Reset()
}

// deepen finds out how long the burst takes.
func (r *Rate) deepen() {
	r.depth, _ = r.takes(r.burst, 0)
	pause, _ := r.takes(minBurst/2+r.burst/2, 0)
	r.smooth = pause < longPause
}

// Reset fills the bucket.
func (r *Rate) Reset() { r.full, r.rest, r.room, r.next = 0, 0, int(r.burst), 0 }

// On reports whether there is a bound.
func (r *Rate) On() bool { return r.perSecond != 0 }

// takes returns how long bytes take at the rate, and the remainder of the
// division.
func (r *Rate) takes(bytes, rest uint64) (t clock.Time, left uint64) {
	hi, lo := bits.Mul64(bytes, 8*uint64(time.Second))
	lo, carry := bits.Add64(lo, rest, 0)
	if hi += carry; hi >= r.perSecond {
		return never, 0
	}
	ns, left := bits.Div64(hi, lo, r.perSecond)
	return clock.Time(min(ns, uint64(never))), left
}

// Sent takes the bytes of payload of that many packets out of the bucket. When
// the bucket is empty, nothing may be sent before it is half full: so packets
// go in bursts, and a timer that is a little late costs nothing of the rate.
func (r *Rate) Sent(now clock.Time, bytes, packets int) {
	if now > r.full {
		r.full, r.rest = now, 0
	}
	t, rest := r.takes(uint64(bytes)+uint64(packets)*WireOverhead, r.rest)
	r.full, r.rest = later(r.full, t), rest
	r.refill(now)
}

// refill finds out how many bytes may be sent from now on, and when.
func (r *Rate) refill(now clock.Time) {
	missing := max(r.full-now, 0)
	if missing < r.depth {
		hi, lo := bits.Mul64(uint64(r.depth-missing), r.perSecond)
		left, _ := bits.Div64(hi, lo, 8*uint64(time.Second))
		r.room, r.next = int(max(left, 1)), 0
		return
	}
	r.room, r.next = int(max(r.burst/2, 1)), r.full-r.depth/2
}

// Change changes the rate, which is on and stays on, and the burst, which is at
// least 1. What is missing in the bucket stays missing. A smaller bucket
// becomes at most empty, except for what was sent beyond the contents of the
// larger one.
func (r *Rate) Change(now clock.Time, perSecond uint64, burst int) {
	missing, beyond := max(r.full-now, 0), clock.Time(0)
	smaller := uint64(burst) < r.burst
	if smaller {
		beyond = max(missing-r.depth, 0)
	}
	missing, beyond = r.convert(missing-beyond, perSecond), r.convert(beyond, perSecond)
	r.perSecond, r.burst = perSecond, uint64(burst)
	r.deepen()
	if smaller {
		missing = min(missing, r.depth)
	}
	r.full, r.rest = later(now, later(missing, beyond)), 0
	r.refill(now)
}

// convert returns how long the bytes take at another rate that take t at this
// one.
func (r *Rate) convert(t clock.Time, perSecond uint64) clock.Time {
	hi, lo := bits.Mul64(uint64(t), r.perSecond)
	if hi >= perSecond {
		return never
	}
	ns, _ := bits.Div64(hi, lo, perSecond)
	return clock.Time(min(ns, uint64(never)))
}

// never is 146 years away: a rate that is so low, or a burst so large, has no
// exact time.
const never = clock.Time(math.MaxInt64 / 2)

// later returns the time t after at, or never.
func later(at, t clock.Time) clock.Time {
	if t >= never-min(at, never) {
		return never
	}
	return at + t
}

// Next returns how many bytes may be sent, and when.
func (r *Rate) Next() (bytes int, at clock.Time) { return r.room, r.next }

// Pacer is a controller with a rate: what the other controller allows is sent
// no faster than that, and so are the answers to the peer's READs. READs count
// with the responses that they ask for. What is sent again counts too.
// Acknowledgements are not paced.
type Pacer struct {
	Controller
	rate Rate
}

// NewPacer returns a controller that bounds the rate of another one.
func NewPacer(c Controller) *Pacer { return &Pacer{Controller: c} }

// SetRate sets the rate in bits per second and the burst in bytes, see
// Rate.Set.
func (p *Pacer) SetRate(perSecond uint64, burst int) { p.rate.Set(perSecond, burst) }

// Limit implements Controller: the narrower of both.
func (p *Pacer) Limit() Limit { return p.narrow(p.Controller.Limit()) }

func (p *Pacer) narrow(l Limit) Limit {
	if p.rate.On() {
		p.rate.narrow(&l)
	}
	return l
}

// narrow has l keep the rate too.
func (r *Rate) narrow(l *Limit) {
	_, at := r.Next()
	r.narrowAt(l, at)
}

// narrowAt is narrow where it is known that the next burst may go at another
// time than at this rate.
func (r *Rate) narrowAt(l *Limit, at clock.Time) {
	n := r.room
	l.Smooth = r.smooth && (l.Smooth || l.Burst == 0)
	if l.Burst == 0 || n < l.Burst {
		l.Burst = n
	}
	l.NotBefore = max(l.NotBefore, at)
	if l.Rate == 0 || r.perSecond < l.Rate {
		l.Rate = r.perSecond
	}
}

// Reset implements Controller.
func (p *Pacer) Reset() {
	p.Controller.Reset()
	p.rate.Reset()
}

// Sent implements Controller.
func (p *Pacer) Sent(now clock.Time, bytes, packets int) {
	if p.rate.On() {
		p.rate.Sent(now, bytes-packets*PacketOverhead, packets)
	}
	if p.Controller.Limit().Burst != 0 {
		p.Controller.Sent(now, bytes, packets)
	}
}
