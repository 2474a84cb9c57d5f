package cc

import (
	"math/bits"

	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// DCQCN is the rate control of RDMA adapters: each connection has a rate, which
// notifications cut, and which grows back with time and with what is sent. Zhu
// et al. describe it (SIGCOMM 2015); Profile has the parameters, and in what
// adapters differ from the paper. It takes no notice of losses and round trips:
// the controller that it stands around bounds what is in flight, and takes
// losses. That one hears of no marks.
//
// All arithmetic is in integers: rates in bits per second, alpha in units of
// 2^-30, rounded down; only the mean of rate and target is rounded up, so that
// the target is reached. So a run gives the same numbers on every processor.
// The timers of the algorithm are not timers of the driver: what they would
// have done is made up for with the next event, as if they had. When a burst
// waits for its time, it is known by how much the rate grows until then, so
// that the driver is woken once. An idle connection has no timer, and with a
// rate that is not below that of the port there is none of the cost of pacing
// either.
type DCQCN struct {
	Controller
	p *Profile

	bucket  Rate
	current uint64 // rate (R_C)
	target  uint64 // rate before the last cut, and what has grown since (R_T)
	alpha   uint32 // alphaOne is 1

	active  bool   // a notification has come
	sampled bool   // one has come in the period that ends at alphaAt
	pending bool   // one waits for the end of the cut period
	grown   bool   // the rate was increased since the last cut
	cuts    uint32 // that TakeCuts has not returned

	timeStages, byteStages uint32
	sent                   uint64 // bytes since the last cut, or the last stage of bytes

	alphaAt    clock.Time // end of the period of alpha
	cutAt      clock.Time // no cut before
	increaseAt clock.Time // next stage of time

	goAt   clock.Time // when the next burst may go, if no notification comes
	wakeAt clock.Time // Limit.Deadline
}

// alphaOne is alpha's 1.
const alphaOne = 1 << 30

// mostStages is how many stages of time a connection makes up for that was
// idle. By then it has the rate of its port, or the profile has it grow for
// minutes.
const mostStages = 1 << 12

// mostAhead is how many stages are looked at before their time, for the next
// burst. One that waits longer is looked at again.
const mostAhead = 64

// burstTime is the longest time for which a rate saves up: at a low rate,
// Profile.Burst would hold back answers for so long that the peer takes them
// for lost.
const burstTime = 1000 // of a second the part

// NewDCQCN returns a controller that has DCQCN stand around another one. It
// shares p, which must not change any more, and which Check finds good.
func NewDCQCN(c Controller, p *Profile) *DCQCN {
	d := &DCQCN{Controller: c, p: p}
	d.begin()
	return d
}

// begin begins at the rate of the port.
func (d *DCQCN) begin() {
	*d = DCQCN{Controller: d.Controller, p: d.p, current: d.p.Line, target: d.p.Line}
	d.bucket.Set(d.p.Line, d.burst())
}

// burst is how many bytes may go at once at the rate.
func (d *DCQCN) burst() int {
	burst := d.p.Burst
	if burst == 0 {
		burst = socketBurst
	}
	return int(max(min(uint64(burst), d.current/8/burstTime), 1))
}

// Reset implements Controller.
func (d *DCQCN) Reset() {
	d.Controller.Reset()
	d.begin()
}

// Rate returns the rate now, in bits per second, and the target.
func (d *DCQCN) Rate() (current, target uint64) { return d.current, d.target }

// TakeCuts returns how often the rate of a controller was made lower since the
// last call, where it does so by itself, too: a DCQCN puts cuts off.
func TakeCuts(c Controller) (n uint32) {
	if p, ok := c.(*Pacer); ok {
		c = p.Controller
	}
	if d, ok := c.(*DCQCN); ok {
		n, d.cuts = d.cuts, 0
	}
	return n
}

// Alpha returns the estimate of congestion in units of 2^-30.
func (d *DCQCN) Alpha() uint32 { return d.alpha }

// paced reports whether the rate is below that of the port.
func (d *DCQCN) paced() bool { return d.current < d.p.Line }

// Limit implements Controller.
func (d *DCQCN) Limit() Limit { return d.narrow(d.Controller.Limit()) }

// narrow has l keep the rate.
func (d *DCQCN) narrow(l Limit) Limit {
	l.AckPSNs = ackPSNs
	if !d.paced() {
		return l
	}
	d.bucket.narrowAt(&l, d.goAt)
	if d.wakeAt != 0 && (l.Deadline == 0 || d.wakeAt < l.Deadline) {
		l.Deadline = d.wakeAt
	}
	return l
}

// plan finds out when the next burst may go, with what the rate grows by until
// then.
func (d *DCQCN) plan(now clock.Time) {
	_, at := d.bucket.Next()
	d.goAt, d.wakeAt = at, 0
	if at <= now || !d.paced() || d.nextEvent() >= at {
		return
	}
	ahead := *d
	for n := 0; n < mostAhead && ahead.paced(); n++ {
		now = ahead.nextEvent()
		if now >= at {
			now = at
			break
		}
		ahead.advance(now)
		if _, at = ahead.bucket.Next(); at <= now || !ahead.paced() {
			at = now
			break
		}
	}
	d.goAt, d.wakeAt = at, now
}

// nextEvent is when the rate changes of itself.
func (d *DCQCN) nextEvent() clock.Time {
	if d.pending {
		return min(d.cutAt, d.increaseAt)
	}
	return d.increaseAt
}

// Sent implements Controller.
func (d *DCQCN) Sent(now clock.Time, bytes, packets int) {
	if d.Controller.Limit().Burst != 0 {
		d.Controller.Sent(now, bytes, packets)
	}
	d.advance(now)
	if !d.paced() {
		return
	}
	bytes -= packets * PacketOverhead
	d.bucket.Sent(now, bytes, packets)
	if d.p.IncreaseBytes > 0 {
		d.sent += uint64(bytes) + uint64(packets)*WireOverhead
		for d.sent >= d.p.IncreaseBytes && d.paced() {
			d.sent -= d.p.IncreaseBytes
			d.byteStages++
			d.increase()
		}
		d.setRate(now)
	}
	d.plan(now)
}

// Advance implements Controller.
func (d *DCQCN) Advance(now clock.Time) {
	d.Controller.Advance(now)
	d.advance(now)
	d.plan(now)
}

// Marked implements Controller.
func (d *DCQCN) Marked(now clock.Time, _ *Flight, how Mark) bool {
	if how == MarkedAgain {
		return false // of these the peer gets no notification either
	}
	d.advance(now)
	before := d.current
	if !d.active {
		d.active = true
		d.alpha = alphaOne / 1024 * d.p.InitialAlpha
		d.alphaAt = now.Add(d.p.AlphaPeriod)
	}
	if d.p.Sampled {
		d.decay(now)
		d.sampled = true
	}
	if d.pending = now < d.cutAt; !d.pending {
		d.cut(now)
	}
	d.plan(now)
	return d.current < before
}

// advance makes up for what the timers would have done up to now. Alpha is left
// as it is: it matters with the next cut.
func (d *DCQCN) advance(now clock.Time) {
	if d.pending && d.cutAt <= now {
		at := d.cutAt
		d.stages(at)
		d.pending = false
		d.cut(at)
	}
	d.stages(now)
	d.setRate(now)
}

// stages carries out the stages of time up to now.
func (d *DCQCN) stages(now clock.Time) {
	for n := 0; d.paced() && d.increaseAt <= now; n++ {
		if n == mostStages {
			d.increaseAt = now.Add(d.p.IncreasePeriod)
			return
		}
		at := d.increaseAt
		d.increaseAt = at.Add(d.p.IncreasePeriod)
		d.timeStages++
		d.increase()
		if d.bucket.full > at { // else it stays full
			d.setRate(at)
		}
	}
}

// decay ends the periods of alpha up to now.
func (d *DCQCN) decay(now clock.Time) {
	for ; d.alphaAt <= now; d.alphaAt = d.alphaAt.Add(d.p.AlphaPeriod) {
		if d.sampled {
			d.sampled = false
			d.grow()
			continue
		}
		if d.alpha == 0 { // and stays so
			periods := now.Sub(d.alphaAt) / d.p.AlphaPeriod
			d.alphaAt = d.alphaAt.Add(periods * d.p.AlphaPeriod)
			continue
		}
		d.alpha = uint32(uint64(d.alpha) * uint64(d.p.G) / 1024)
	}
}

// grow makes alpha larger.
func (d *DCQCN) grow() {
	d.alpha = uint32(uint64(d.alpha)*uint64(d.p.G)/1024) + alphaOne/1024*(1024-d.p.G)
}

// cut makes the rate smaller by alpha's part, and begins the way back. Unless
// alpha is sampled, it grows with each cut, not with each notification: so a
// peer that sends more than one notification in a period gains nothing.
func (d *DCQCN) cut(now clock.Time) {
	d.decay(now)
	if d.p.ClampTarget || d.grown {
		d.target = d.current
	}
	hi, lo := bits.Mul64(d.current, uint64(d.alpha))
	part, _ := bits.Div64(hi, lo, alphaOne<<d.p.Shift)
	part = min(part, d.current*uint64(d.p.MaxCut)/100)
	before := d.current
	if d.current = max(before-part, min(d.p.Min, before)); d.current < before {
		d.cuts++
	}
	d.grown, d.timeStages, d.byteStages, d.sent = false, 0, 0, 0
	d.increaseAt = now.Add(d.p.IncreasePeriod)
	d.cutAt = now.Add(d.p.CutPeriod)
	if !d.p.Sampled {
		d.grow()
		d.alphaAt = now.Add(d.p.AlphaPeriod)
	}
	d.setRate(now)
}

// increase is what a stage does.
func (d *DCQCN) increase() {
	p, low, high := d.p, min(d.timeStages, d.byteStages), max(d.timeStages, d.byteStages)
	switch {
	case high < p.Threshold:
	case low > p.Threshold:
		d.target = min(d.target+uint64(low-p.Threshold)*p.Hyper, p.Line)
	default:
		d.target = min(d.target+p.Additive, p.Line)
	}
	d.grown = true
	d.current = (d.current + d.target + 1) / 2
}

// setRate has the bucket keep the rate, which may be another one now.
func (d *DCQCN) setRate(now clock.Time) {
	if d.bucket.perSecond != d.current {
		d.bucket.Change(now, d.current, d.burst())
	}
}
