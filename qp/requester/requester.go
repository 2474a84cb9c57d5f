package requester

import (
	"time"

	"github.com/gosoftroce/rocev2/qp/cc"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/qp/queue"
	"github.com/gosoftroce/rocev2/rocev2"
)

// Config is what a requester is made with.
type Config struct {
	MaxSendWR, MaxSendSGE, MaxInline int

	SendCQ     queue.CompletionSink
	SignalAll  bool
	Controller cc.Controller
	ReadChunk  int  // bytes per READ request; 0 is no bound
	LongReads  bool // see qp.Config
	MinProbe   time.Duration
}

// Requester is the sending half, and the uppermost of its layers; see the
// package's documentation.
type Requester struct {
	sender

	readChunk uint32
	signalAll bool
	longReads bool
}

// Init makes a requester of c, which is in RESET.
func (r *Requester) Init(c *conn.Conn, config Config) {
	*r = Requester{signalAll: config.SignalAll, readChunk: uint32(config.ReadChunk), longReads: config.LongReads}
	r.c, r.sink, r.rtt.floor = c, config.SendCQ, config.MinProbe
	c.CC.Control = config.Controller
	r.queue.Init(config.MaxSendWR, config.MaxSendSGE, config.MaxInline)
	r.Reset()
}

// Reset drops everything but the memory of the queue.
func (r *Requester) Reset() {
	r.stop()
	r.queue.Clear()
	floor := r.rtt.floor
	r.cursor, r.credit, r.recoveryState = cursor{}, credit{}, recoveryState{}
	r.rtt.init(floor)
	r.c.CC.End()
}

// Flush ends all work, on the way to ERR: every request completes with
// WR_FLUSH_ERR, in order (IBTA 10.3.1).
func (r *Requester) Flush() {
	r.stop()
	r.flushRequests()
}

// maxChunk bounds a READ request to 2^22 packets, so that PSN comparisons hold
// whatever the message length.
const maxChunk = 1 << 22

// ReadyToReceive takes the path MTU, on the way to RTR.
func (r *Requester) ReadyToReceive() {
	r.chunk = maxChunk
	if n := r.readChunk; n > 0 {
		r.chunk = max(1, min(n>>r.c.Shift, maxChunk))
		r.long = r.longReads && r.chunk <= maxChunk/(longer*mostLonger)
	}
}

// ReadyToSend begins at PSN first, on the way to RTS.
func (r *Requester) ReadyToSend(first rocev2.PSN) {
	r.una, r.nxt, r.max, r.rtt.asked = first, first, first, first.Add(-1)
	r.c.CC.Reset()
}
