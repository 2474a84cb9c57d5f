package responder

import (
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/qp/queue"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// Config is what a responder is made with.
type Config struct {
	Source    queue.RecvSource // nil: a ring of its own, of the following
	OwnSource bool             // see conn.ReceivesConfig
	RecvCQ    queue.CompletionSink

	Domain queue.XRCDomain // of an XRC target, which has no Source, and no RecvCQ; else nil

	MaxRecvWR, MaxRecvSGE int

	// Invalidate ends a key of this side on behalf of a SEND with
	// invalidate. On a fault, or if it is nil, the peer gets a NAK.
	Invalidate func(key ib.Key) ib.Fault
}

// Responder is the receiving half: its parts, and the order in which a request
// passes them. See the package's documentation.
type Responder struct {
	exec    executor
	answers answers
	out     transmitter
	gap     gap
	dropped addresses // of FLUSHes and ATOMIC WRITEs
}

// Init makes a responder of c, which is in RESET.
func (r *Responder) Init(c *conn.Conn, config Config) {
	*r = Responder{answers: answers{c: c}, gap: gap{c: c}, out: transmitter{answers: &r.answers, exec: &r.exec}}
	r.exec.init(c, &config)
}

// Resize takes another max_dest_rd_atomic. No answer may wait.
func (r *Responder) Resize(depth int) { r.answers.resize(depth) }

// ReadyToReceive expects PSN first, on the way to RTR.
func (r *Responder) ReadyToReceive(first rocev2.PSN) { r.answers.begin(first) }

// ExpectedPSN returns the PSN that is expected next.
func (r *Responder) ExpectedPSN() rocev2.PSN { return r.answers.epsn }

// Post queues a receive, see conn.Receives.
func (r *Responder) Post(wr *ib.RecvWR) error { return r.exec.receives.Post(wr) }

// Drain flushes some of what a source of its own has in ERR, see conn.Receives.
func (r *Responder) Drain() (more bool) { return r.exec.receives.Drain() }

// Held returns the number of requests that are kept after a gap.
func (r *Responder) Held() int { return r.gap.reorder.Len() }

// DiscardHeld discards the requests that are kept after a gap.
func (r *Responder) DiscardHeld() { r.gap.discard() }

// HandleTimeout does what is due at now.
func (r *Responder) HandleTimeout(now clock.Time) {
	r.gap.expire(now)
	r.out.handleTimeout(now)
}

// Deadline returns when HandleTimeout wants to be called, and whether at all.
func (r *Responder) Deadline() (clock.Time, bool) {
	var at clock.Time
	armed := r.gap.holds()
	if armed {
		at = r.gap.deadline()
	}
	if r.out.paced { // until the rate lets answers to READs go on
		if next := r.exec.c.Resumes(); !armed || next < at {
			return next, true
		}
	}
	return at, armed
}

// Reset drops everything but the memory of the ring.
func (r *Responder) Reset() {
	r.exec.reset()
	r.answers = answers{c: r.answers.c}
	r.out.stop()
	r.gap.discard()
	r.gap = gap{c: r.gap.c}
	r.dropped.forget()
}

// Flush ends all work, on the way to ERR: every receive completes with
// WR_FLUSH_ERR, in order (IBTA 10.3.1). Of the answers that wait only the
// acknowledgement of what was executed is left, unless the peer must be told
// why the connection ends.
func (r *Responder) Flush(why conn.End) {
	r.gap.discard()
	r.out.stop()
	switch why {
	case conn.EndOverflow:
		r.answers.end(r.answers.epsn, rocev2.NAKRemoteOperational, false)
	case conn.EndLocal:
		r.answers.finish()
	}
	r.exec.flush()
}
