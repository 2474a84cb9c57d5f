package responder

import (
	"github.com/gosoftroce/rocev2/clock"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/qp/queue"
	"github.com/gosoftroce/rocev2/rocev2"
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

// Responder is the receiving half, and the uppermost of its layers; see the
// package's documentation.
type Responder struct {
	answerer
	reorder    queue.Reorder
	invalidate func(key ib.Key) ib.Fault
	execution
}

// execution is where executing is.
type execution struct {
	nakSent     bool  // a NAK was sent for epsn: silence until the expected packet comes
	nakForGap   bool  // it was for a gap, before firstGap: when that or an earlier packet comes, epsn was sent again and lost again
	established bool  // EventCommEst was raised
	tellKept    bool  // a selective acknowledgement is to be sent
	kept        uint8 // packets that were kept since the last one
	reordered   uint8 // for how many more gaps the path is taken for one that does not keep the order

	message rocev2.Operation // the multi-packet message under way: OpSend, OpWrite or 0

	pagePSN  rocev2.PSN // of the request that was dropped because a page must be fetched
	firstGap rocev2.PSN // epsn: nothing came behind it since the NAK
	naks     nakLimit

	done uint32 // bytes of the message so far
	left uint32 // WRITE: bytes still to come
	va   uint64 // WRITE: where they go
	rkey ib.Key
}

// Init makes a responder of c, which is in RESET.
func (r *Responder) Init(c *conn.Conn, config Config) {
	*r = Responder{invalidate: config.Invalidate}
	r.c = c
	if config.Domain != nil {
		r.xrc = &target{domain: config.Domain}
		config.Source, config.MaxRecvSGE = noReceives{}, ib.MaxSGE
	}
	r.receives.Init(c, conn.ReceivesConfig{Source: config.Source, OwnSource: config.OwnSource, CQ: config.RecvCQ,
		Depth: config.MaxRecvWR, SGE: config.MaxRecvSGE})
}

// Reset drops everything but the memory of the ring.
func (r *Responder) Reset() {
	r.stop()
	r.receives.Reset()
	r.forgetSRQ()
	r.answers, r.execution = answers{}, execution{}
}

// Post queues a receive, see conn.Receives.
func (r *Responder) Post(wr *ib.RecvWR) error { return r.receives.Post(wr) }

// Drain flushes some of what a source of its own has in ERR, see conn.Receives.
func Drain(r *Responder) (more bool) { return r.receives.Drain() }

// ReadyToReceive expects PSN first, on the way to RTR.
func (r *Responder) ReadyToReceive(first rocev2.PSN) { r.epsn, r.msn = first, 0 }

// Held returns the number of requests that are kept behind a gap.
func (r *Responder) Held() int { return r.reorder.Len() }

// DiscardHeld discards the requests that are kept behind a gap.
func (r *Responder) DiscardHeld() { r.reorder.Discard() }

// HandleTimeout does what is due at now.
func (r *Responder) HandleTimeout(now clock.Time) {
	r.c.Expire(&r.reorder, now, queue.RequestAge(r.c.SRTT))
	r.paced = r.paced && now < r.c.CC.Limit.NotBefore
}

// Deadline returns when HandleTimeout wants to be called, and whether at all.
func (r *Responder) Deadline() (clock.Time, bool) {
	at, armed := r.reorder.Deadline(queue.RequestAge(r.c.SRTT))
	if r.paced {
		if next := r.c.Resumes(); !armed || next < at {
			return next, true
		}
	}
	return at, armed
}

// Flush ends all work, on the way to ERR: every receive completes with
// WR_FLUSH_ERR, in order (IBTA 10.3.1). Of the answers that wait only the
// acknowledgement of what was executed is left, unless the peer must be told
// why the connection ends.
func (r *Responder) Flush(why conn.End) {
	r.stop()
	switch why {
	case conn.EndOverflow:
		if r.endAnswers(r.epsn, rocev2.NAKRemoteOperational) {
			r.tellFatal()
		}
	case conn.EndLocal:
		r.reduceToFinal()
		r.fatal.left = 0
	}
	r.receives.Flush()
}

// stop gives back what is kept, and waits for no memory any more.
func (r *Responder) stop() {
	r.reorder.Discard()
	r.fetch = conn.Fetches{}
	r.paced, r.yields = false, false
}
