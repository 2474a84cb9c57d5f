package conn

import (
	"math"

	"github.com/gosoftroce/rocev2/qp/cc"
	"github.com/gosoftroce/rocev2/qp/trace"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// Congestion is the congestion control of a connection. Both halves send data,
// requests and the answers to READs, and keep to the same rate.
type Congestion struct {
	Limit   cc.Limit // as Control has it now, within Conn.Bound
	Control cc.Controller
}

// reload reads the limit again.
func (g *Congestion) reload() { g.Limit = g.Control.Limit() }

// Reset begins a connection.
func (g *Congestion) Reset() {
	if g.Control != nil {
		g.Control.Reset()
		g.reload()
	}
}

// End is Reset for a connection that is over: its rate limit goes too.
func (g *Congestion) End() {
	g.setRate(0, 0)
	g.Reset()
}

// setRate bounds the rate in bits per second; 0 removes the bound, and the
// burst is in bytes. Without a bound there is no Pacer.
func (g *Congestion) setRate(perSecond uint64, burst int) {
	p, paced := g.Control.(*cc.Pacer)
	switch {
	case perSecond > 0:
		if !paced {
			if g.Control == nil { // it has nothing in flight
				g.Control = cc.NewStatic(0, cc.Config{})
			}
			p = cc.NewPacer(g.Control)
			g.Control = p
		}
		p.SetRate(perSecond, burst)
	case paced:
		g.Control = p.Controller
	}
	if g.Control != nil {
		g.reload()
	}
}

// Reload reads the limit again, after an event.
func (c *Conn) Reload() {
	bytes, rate := c.CC.Limit.Bytes, c.CC.Limit.Rate
	if c.CC.reload(); c.most > 0 {
		c.CC.Limit.PSNs = min(c.CC.Limit.PSNs, c.most)
	}
	if c.Traces() && (c.CC.Limit.Bytes != bytes || c.CC.Limit.Rate != rate) {
		c.Trace(trace.Event{Kind: trace.Window})
	}
}

// Bound bounds how many PSNs are in flight, whatever the controller says; 0
// takes that back.
func (c *Conn) Bound(psns uint32) {
	if c.most != psns {
		c.most = psns
		c.Reload()
	}
}

// SetRate bounds the rate as the attributes say.
func (c *Conn) SetRate() {
	c.CC.setRate(uint64(c.Attr.RateLimit)*1000, int(min(c.Attr.RateBurst, math.MaxInt32)))
	c.most = 0 // until the next acknowledgement says it again
}

// Waits reports whether data has to wait for its time, and counts that for a
// half that has not waited yet.
func (c *Conn) Waits(now clock.Time, waited bool) bool {
	if now >= c.CC.Limit.NotBefore {
		return false
	}
	if !waited {
		c.Stats.Rare().RateWaits++
	}
	return true
}

// Resumes returns when data that waits wants to be looked at: when it may go,
// or when the controller may let it go earlier.
func (c *Conn) Resumes() clock.Time {
	l := &c.CC.Limit
	if l.Deadline != 0 && l.Deadline < l.NotBefore {
		return l.Deadline
	}
	return l.NotBefore
}

// Spent tells congestion control that packets with data were sent, where it
// asks for that (Limit.Burst).
func (c *Conn) Spent(now clock.Time, bytes, packets int) {
	c.CC.Control.Sent(now, bytes, packets)
	c.Reload()
	c.countCuts()
}

// countCuts counts the cuts of the rate that the controller has made by itself:
// one that a notification has put off happens with what is sent next, with a
// timer, or with the next notification. It reports whether there was one.
func (c *Conn) countCuts() bool {
	n := cc.TakeCuts(c.CC.Control)
	if n > 0 {
		c.Stats.Rare().RateCuts += uint64(n)
	}
	return n > 0
}

// Acked tells congestion control that n more bytes are acknowledged.
func (c *Conn) Acked(now clock.Time, f *cc.Flight, n uint64) {
	if c.CC.Control.Acked(now, f, n) {
		c.Reload()
	}
}

// Marked takes a sign of congestion.
func (c *Conn) Marked(now clock.Time, f *cc.Flight, how cc.Mark) {
	g := &c.CC
	if g.Control == nil {
		return
	}
	if c.Traces() {
		why := trace.Response
		if how == cc.Notified {
			why = trace.Notified
		}
		c.Trace(trace.Event{Kind: trace.Marked, Why: why})
	}
	less := g.Control.Marked(now, f, how)
	before := g.Limit.Rate
	c.Reload()
	switch {
	case c.countCuts():
	case g.Limit.Rate != 0 && (before == 0 || g.Limit.Rate < before):
		c.Stats.Rare().RateCuts++
	case less:
		c.Stats.Rare().WindowCuts++
	}
}

// Advance calls the controller if its time has come.
func (c *Conn) Advance(now clock.Time) {
	if at := c.CC.Limit.Deadline; at != 0 && at <= now {
		c.CC.Control.Advance(now)
		c.Reload()
		c.countCuts()
	}
}
