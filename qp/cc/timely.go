package cc

import (
	"cmp"
	"time"

	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// TimelyConfig is the parameters of TIMELY. What is 0 has its default.
type TimelyConfig struct {
	Line     uint64        // rate of the port in bits per second, with which a connection begins; 0 means 100 Gb/s
	Min      uint64        // the least rate; 0 means a hundredth of Line
	Additive uint64        // additive increase (δ); 0 means a thousandth of Line: 10 Mb/s on the paper's 10 Gb/s
	Low      time.Duration // below this round trip the rate grows (T_low); 0 means 50 µs
	High     time.Duration // above it the rate falls (T_high); 0 means ten times Low: 500 µs
	RTT      time.Duration // by which the gradient is divided, a round trip without queues (minRTT); 0 means 2/5 of Low: 20 µs
	Burst    int           // bytes that may go at once; 0 means 64 KiB, 1 has packets spaced one by one
}

// withDefaults fills in what is 0.
func (c TimelyConfig) withDefaults() TimelyConfig {
	c.Line = lineOr(c.Line)
	c.Min = cmp.Or(c.Min, max(c.Line/100, kilo))
	c.Additive = cmp.Or(c.Additive, max(c.Line/1000, 1))
	c.Low = cmp.Or(c.Low, 50*time.Microsecond)
	c.High = cmp.Or(c.High, 10*c.Low)
	c.RTT = cmp.Or(c.RTT, max(c.Low*2/5, 1))
	c.Burst = cmp.Or(c.Burst, socketBurst)
	return c
}

// Check says what of c is out of its range.
func (c TimelyConfig) Check() error {
	c = c.withDefaults()
	return inRange("TIMELY", []bound{
		{"line", c.Line, kilo, mostRate},
		{"min", c.Min, kilo, c.Line},
		{"ai", c.Additive, 1, c.Line},
		{"low", uint64(c.Low), 1, uint64(time.Second)},
		{"high", uint64(c.High), uint64(c.Low), 10 * uint64(time.Second)},
		{"rtt", uint64(c.RTT), 1, uint64(time.Second)},
		{"burst", uint64(c.Burst), 1, mostBytes},
	})
}

// Timely is the rate control of Mittal et al., "TIMELY: RTT-based Congestion
// Control for the Datacenter" (SIGCOMM 2015), algorithm 1. Between Low and High
// the gradient of the round trip says whether a queue grows: the rate then
// falls in proportion, and else grows by Additive, or five times as much when
// it has for five times in a row. It stands around another controller, as DCQCN
// does, which bounds what is in flight and takes losses; that one hears of no
// marks.
//
// TIMELY has no fixed point: at which rates flows come to rest depends on where
// they begin (Zhu et al., "ECN or Delay", CoNEXT 2016).
//
// All arithmetic is in integers.
type Timely struct {
	Controller
	spaced
	c TimelyConfig

	current uint64        // rate in bits per second
	prev    time.Duration // the last round trip; 0: none
	diff    time.Duration // their differences, smoothed (rtt_diff)
	falls   int           // round trips in a row that did not get longer
	at      clock.Time    // of the last one
}

// Of TIMELY, see the paper: section 4.3.
const (
	timelyWeight = 7 // of 8, that a new difference has (α, 0.875)
	timelyBeta   = 8 // of 10 (β)
	hyperAfter   = 5 // falls after which the increase is as many times as large
)

// NewTimely returns a controller that has TIMELY stand around another one, with
// parameters that Check finds good.
func NewTimely(c Controller, p TimelyConfig) *Timely {
	t := &Timely{Controller: c, c: p.withDefaults()}
	t.begin()
	return t
}

// begin begins at the rate of the port.
func (t *Timely) begin() {
	*t = Timely{Controller: t.Controller, c: t.c, current: t.c.Line, spaced: spaced{burst: t.c.Burst}}
}

// Reset implements Controller.
func (t *Timely) Reset() {
	t.Controller.Reset()
	t.begin()
}

// Rate returns the rate in bits per second.
func (t *Timely) Rate() uint64 { return t.current }

// Limit implements Controller.
func (t *Timely) Limit() Limit {
	l := t.Controller.Limit()
	l.AckPSNs = ackPSNs
	if t.paced {
		t.bucket.narrow(&l)
	}
	return l
}

// Sent implements Controller.
func (t *Timely) Sent(now clock.Time, bytes, packets int) {
	if t.Controller.Limit().Burst != 0 {
		t.Controller.Sent(now, bytes, packets)
	}
	t.sent(now, bytes, packets)
}

// Marked implements Controller.
func (t *Timely) Marked(clock.Time, *Flight, Mark) bool { return false }

// Acked implements Controller.
func (t *Timely) Acked(now clock.Time, f *Flight, n uint64) bool {
	changed := t.Controller.Acked(now, f, n)
	if f.Sample <= 0 || t.prev != 0 && now <= t.at {
		return changed
	}
	before := t.current
	t.take(f.Sample)
	t.at = now
	if t.current != before {
		t.setRate(now, t.current, t.c.Line)
	}
	return changed || t.current != before
}

// take takes a round trip.
func (t *Timely) take(rtt time.Duration) {
	if t.prev == 0 {
		t.prev = rtt
		return
	}
	t.diff = ((8-timelyWeight)*t.diff + timelyWeight*(rtt-t.prev)) / 8
	t.prev = rtt
	if t.diff > 0 || rtt > t.c.High {
		t.falls = 0
	}
	switch {
	case rtt < t.c.Low:
		t.falls = 0
		t.grow(1)
	case rtt > t.c.High:
		t.cut(uint64(rtt-t.c.High), uint64(rtt))
	case t.diff <= 0:
		if t.falls++; t.falls >= hyperAfter {
			t.grow(hyperAfter)
		} else {
			t.grow(1)
		}
	default:
		t.cut(uint64(t.diff), uint64(t.c.RTT))
	}
}

// grow makes the rate larger by a multiple of the additive increase.
func (t *Timely) grow(times uint64) {
	t.current = min(t.current+times*t.c.Additive, t.c.Line)
}

// cut makes the rate smaller by β times a part over whole, to no less than Min.
func (t *Timely) cut(part, whole uint64) {
	less := muldiv(t.current*timelyBeta/10, part, whole)
	t.current = max(t.current-min(less, t.current), min(t.c.Min, t.current))
}
