package qp

import (
	"fmt"
	"math"
	"net/netip"
	"time"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/rocev2"
)

// GuardTimeout stands in for the local ACK timeout if the attribute is 0, "none": the connection must not hang for ever
// when a packet is lost.
const GuardTimeout = 8589934592 * time.Nanosecond // code 21: 4.096 µs · 2^21

// Config is what a queue pair is created with. Queue depths of 0 mean a queue that takes nothing.
type Config struct {
	QPN     rocev2.QPN
	Service rocev2.Service // ServiceRC; others are refused for now

	Memory *memreg.Table
	PD     *memreg.PD

	SendCQ, RecvCQ CompletionSink
	RecvSource     RecvSource // nil: the queue pair's own receive queue

	MaxSendWR, MaxRecvWR   int // queue depths in requests
	MaxSendSGE, MaxRecvSGE int // scatter/gather entries per request; 0 means 1
	MaxInline              int // bytes
	SignalAll              bool

	Window WindowConfig
	// ReadChunk splits READs into requests of so many bytes, each of which takes one of MaxRdAtomic, so that their
	// responses cannot overrun the receive buffer. It is rounded down to whole packets, one at least; 0 is no split.
	ReadChunk int

	// MinProbe, if not 0, makes the requester send again before the local ACK timeout when the peer has been silent for so
	// long, for four round trips and their deviations, and for longer than the pauses in which lately nothing was lost:
	// otherwise the loss of the last packets in flight stops the connection for a whole timeout. It costs none of
	// RetryCount, and is tried at twice the time when it does not help. Before a round trip was measured it is four times
	// as long. A millisecond is a good value. After losses that KeepPackets made cheap an eighth of it is enough.
	MinProbe time.Duration

	// Invalidate ends a key of this side on behalf of a SEND with invalidate. False refuses: the peer gets a NAK, as it
	// does if Invalidate is nil.
	Invalidate func(key ib.Key) bool
}

// QP is a queue pair. It is not safe for concurrent use, and its sinks must not call back into it. Posting, handling and
// polling do not allocate.
type QP struct {
	cfg   Config
	state ib.State
	attr  ib.Attr
	peer  netip.Addr // attr.AV.DGID, unmapped and without zone

	mtu      int // bytes
	mtuShift uint8
	events   eventSet
	notify   bool // raise EventSQDrained when drained

	req    requester
	resp   responder
	notice notice
	store  *Store // for packets behind a gap; nil unless KeepPackets was called
	absent *absence
	wc     ib.WC   // scratch: a completion on its way to a sink
	word   [8]byte // scratch: the result of an atomic
	stats  Stats
}

// New returns a queue pair in state RESET. The error wraps ErrService or ErrConfig.
func New(c Config) (*QP, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	c.MaxSendSGE = max(c.MaxSendSGE, 1)
	c.MaxRecvSGE = max(c.MaxRecvSGE, 1)
	q := &QP{cfg: c}
	q.req.queue.init(c.MaxSendWR, c.MaxSendSGE, c.MaxInline)
	if c.RecvSource == nil {
		q.resp.queue.init(c.MaxRecvWR, c.MaxRecvSGE)
	}
	q.resp.recv.SGList = make([]ib.SGE, 0, c.MaxRecvSGE)
	q.req.window.init(c.Window)
	q.req.rtt.init(c.MinProbe)
	q.req.allowance = math.MaxInt
	return q, nil
}

func (c *Config) check() error {
	switch {
	case c.Service != rocev2.ServiceRC:
		return fmt.Errorf("%w, not %v", ErrService, c.Service)
	case c.QPN > rocev2.QPNMask:
		return fmt.Errorf("%w: QPN %#x has more than 24 bits", ErrConfig, uint32(c.QPN))
	case c.Memory == nil || c.PD == nil:
		return fmt.Errorf("%w: no memory table or protection domain", ErrConfig)
	case c.SendCQ == nil || c.RecvCQ == nil:
		return fmt.Errorf("%w: no completion sink", ErrConfig)
	case c.MinProbe < 0:
		return fmt.Errorf("%w: MinProbe is negative", ErrConfig)
	}
	for _, l := range [...]struct {
		name string
		v    int
		max  int64 // 2 GiB are more than an int of 32 bits has
	}{
		{"MaxSendWR", c.MaxSendWR, ib.MaxWR}, {"MaxRecvWR", c.MaxRecvWR, ib.MaxWR},
		{"MaxSendSGE", c.MaxSendSGE, ib.MaxSGE}, {"MaxRecvSGE", c.MaxRecvSGE, ib.MaxSGE},
		{"MaxInline", c.MaxInline, ib.MaxInline}, {"ReadChunk", c.ReadChunk, ib.MaxMessage},
		{"Window.InitialBytes", c.Window.InitialBytes, ib.MaxMessage}, {"Window.MaxBytes", c.Window.MaxBytes, ib.MaxMessage},
		{"Window.MaxPSNs", c.Window.MaxPSNs, maxWindowPSNs},
	} {
		if l.v < 0 || int64(l.v) > l.max {
			return fmt.Errorf("%w: %s is %d, not 0 to %d", ErrConfig, l.name, l.v, l.max)
		}
	}
	return nil
}

// State returns the current state.
func (q *QP) State() ib.State { return q.state }

// QPN returns the number of the queue pair.
func (q *QP) QPN() rocev2.QPN { return q.cfg.QPN }

// Attr returns the attributes. SQPSN is the next new PSN to send, RQPSN the next expected.
func (q *QP) Attr() ib.Attr {
	a := q.attr
	a.State, a.CurState = q.state, q.state
	if q.state >= ib.StateRTR {
		a.RQPSN = q.resp.epsn
	}
	if q.state >= ib.StateRTS {
		a.SQPSN = q.req.max
	}
	return a
}

// AV returns the address vector, which must not be changed.
func (q *QP) AV() *ib.AddressVector { return &q.attr.AV }

// Stats returns the live counters.
func (q *QP) Stats() *Stats { return &q.stats }

// PollEvent returns the next asynchronous event. Each kind is reported once however often it was raised in between.
func (q *QP) PollEvent() (ib.Event, bool) { return q.events.poll() }

// Config returns what the queue pair was created with.
func (q *QP) Config() Config { return q.cfg }

// SetWindow changes the bounds of the send window, for a driver that has learned what the peer can take. InitialBytes is
// not looked at.
func (q *QP) SetWindow(c WindowConfig) { q.req.window.limits(c) }

// InFlight returns the bytes that may lie in the peer's receive buffer: those between the oldest unacknowledged packet and
// the next one, as the window counts them, without a share that the peer has kept behind a gap. Outside of RTS and SQD
// nothing is in flight.
func (q *QP) InFlight() int {
	if q.state != ib.StateRTS && q.state != ib.StateSQD {
		return 0
	}
	return q.req.window.charge(int(min(q.req.posNxt-q.req.posUna, mostCounted)))
}

// mostCounted bounds numbers of bytes that become an int, which may have 32 bits: a READ can be of more.
const mostCounted = math.MaxInt / 2

// Silent reports that the peer has not answered what is in flight for so long that it was sent again, or would be.
func (q *QP) Silent() bool {
	r := &q.req.retry
	return q.req.rtt.attempts > 0 || q.req.rtt.late || r.left < r.limit && r.restarts == 0
}

// Allow bounds the bytes of the requests that the next polls write, for a driver that shares a peer's buffers among queue
// pairs: while there are bytes left a request may go, and with 0 none. Answers and timers go on. At first there is no bound.
func (q *QP) Allow(bytes int) { q.req.allowance = bytes }

// Allowance returns what is left of the bytes that Allow has let go; it may be negative.
func (q *QP) Allowance() int { return q.req.allowance }
