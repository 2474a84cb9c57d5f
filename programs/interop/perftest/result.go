package perftest

import (
	"time"

	"github.com/gosoftroce/rocev2/programs/interop"
)

// Result is what one run of one size measured.
type Result struct {
	Test          Test
	Service       interop.Service
	Role          interop.Role
	Size          int // bytes of a message
	QPs           int
	MTU           int // bytes
	Bidirectional bool
	Secured       *Secured // nil: nothing is

	// Reported says that the figures are the peer's: this side only
	// answered.
	Reported bool

	Iterations uint64        // operations that were measured, all queue pairs together
	Elapsed    time.Duration // in which they were
	Average    float64       // bytes a second; with Bidirectional both sides together
	Peak       float64       // bytes a second in the best stretch of at least 10 ms
	MsgRate    float64       // messages a second

	// Lost is how many messages of an unreliable service did not arrive at
	// this side, where a number of iterations bounds the run. They are not
	// in Iterations.
	Lost uint64

	// Latency is set by the latency tests on the side that measures: half a
	// round trip for SEND and WRITE, a whole one for READ and atomics.
	Latency *Latencies
}

// Gbps returns the average in 10^9 bits a second.
func (r Result) Gbps() float64 { return r.Average * 8 / 1e9 }

// MiBps returns the average in 2^20 bytes a second.
func (r Result) MiBps() float64 { return r.Average / mib }

const mib = 1 << 20

func (r Result) report() report {
	return report{
		size: uint64(r.Size), iterations: r.Iterations,
		peak: r.Peak / mib, average: r.Average / mib, msgRate: r.MsgRate / 1e6,
	}
}

// resultOf makes a result of what a peer reports.
func resultOf(p report) Result {
	r := Result{
		Reported: true, Size: int(min(p.size, MaxSize)), Iterations: p.iterations,
		Peak: p.peak * mib, Average: p.average * mib, MsgRate: p.msgRate * 1e6,
	}
	if r.MsgRate > 0 {
		r.Elapsed = time.Duration(min(float64(p.iterations)/r.MsgRate, 1e6) * float64(time.Second))
	}
	return r
}

// meter measures a rate: all in all, and in the best stretch.
type meter struct {
	size          int
	start, last   time.Time
	count         uint64
	stretchStart  time.Time
	stretchCount  uint64
	bestPerSecond float64
}

// stretch is the shortest time whose rate counts as a peak.
const stretch = 10 * time.Millisecond

func (m *meter) begin(now time.Time) {
	m.start, m.last, m.stretchStart = now, now, now
	m.count, m.stretchCount, m.bestPerSecond = 0, 0, 0
}

// add counts n operations that had completed at now.
func (m *meter) add(now time.Time, n uint64) {
	m.last = now
	m.count += n
	m.stretchCount += n
	if d := now.Sub(m.stretchStart); d >= stretch {
		m.bestPerSecond = max(m.bestPerSecond, float64(m.stretchCount)/d.Seconds())
		m.stretchStart, m.stretchCount = now, 0
	}
}

func (m *meter) result() Result {
	r := Result{Size: m.size, Iterations: m.count, Elapsed: m.last.Sub(m.start)}
	if s := r.Elapsed.Seconds(); s > 0 {
		r.MsgRate = float64(m.count) / s
	}
	r.Average = r.MsgRate * float64(m.size)
	r.Peak = max(m.bestPerSecond*float64(m.size), r.Average)
	return r
}

// clock divides a run that is bounded by time: the margins at both ends, a
// quarter each if nothing else is said, are for getting up to speed and for
// differences between the two sides.
type clock struct {
	from, to, end time.Time
}

func newClock(start time.Time, d, margin time.Duration) clock {
	return clock{from: start.Add(margin), to: start.Add(d - margin), end: start.Add(d)}
}

func (c *clock) sampling(now time.Time) bool { return !now.Before(c.from) && now.Before(c.to) }
