package conn

import (
	"fmt"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/queue"
)

// Receives is where a receiving half has its receives from, whatever its
// service.
type Receives struct {
	Own    queue.RecvRing // empty if they are shared
	Shared bool           // they come from a source: Own stays empty
	ours   bool           // the source is the queue pair's alone
	Held   bool           // there is one in hand
	Recv   queue.Recv     // the one in hand
	Space  uint64         // its size in bytes

	c      *Conn
	source queue.RecvSource
}

// ReceivesConfig is what Receives are made with.
type ReceivesConfig struct {
	Source queue.RecvSource // nil: a ring of its own
	// OwnSource says that the source is the queue pair's alone: ERR flushes
	// it, RESET clears it.
	OwnSource  bool
	CQ         queue.CompletionSink
	Depth, SGE int // of the ring
}

// Init makes the own ring, unless there is a source.
func (r *Receives) Init(c *Conn, config ReceivesConfig) {
	*r = Receives{c: c, source: config.Source, Shared: config.Source != nil}
	depth := config.Depth
	if r.Shared {
		r.ours, depth = config.OwnSource, 0
	} else {
		r.source = &r.Own
	}
	r.Own.Init(depth, config.SGE, c.PD, config.CQ)
	r.Recv.SGList = make([]ib.SGE, 0, config.SGE)
}

// From has receives come from source from now on.
func (r *Receives) From(source queue.RecvSource) { r.source = source }

// Reset drops everything but the memory of the ring.
func (r *Receives) Reset() {
	r.Own.Clear()
	if s, ok := r.source.(queue.Clearer); ok && r.ours {
		s.Clear()
	}
	r.Recv, r.Held = queue.Recv{SGList: r.Recv.SGList[:0]}, false
}

// errReset is made once: a caller may post again and again without success.
var errReset = fmt.Errorf("%w: %v: receives are posted from INIT on", ib.ErrState, ib.StateReset)

// Post queues a receive in the own ring, from INIT on. In ERR it completes at
// once with WR_FLUSH_ERR (IBTA 10.3.1). On an error nothing was queued.
func (r *Receives) Post(wr *ib.RecvWR) error {
	switch {
	case r.Shared:
		return ib.ErrShared
	case r.c.State == ib.StateReset:
		return errReset
	}
	if err := queue.CheckRecv(wr, r.Own.MaxSGE(), "queue pair", "MaxRecvSGE"); err != nil {
		return err
	}
	if r.c.Failed() {
		r.c.Stats.RecvPosted++
		wc := r.WC(wr.ID, ib.WCRecv)
		wc.Status = ib.StatusWRFlushErr
		r.c.Complete(r.Own.CQ(), wc)
		return nil
	}
	if !r.Own.Push(wr) {
		return ib.ErrQueueFull
	}
	r.c.Stats.RecvPosted++
	return nil
}

// Take gets a receive for the message, unless one is in hand. It reports
// whether there is one.
func (r *Receives) Take() bool {
	if r.Held {
		return true
	}
	r.Recv.CQ = r.Own.CQ()
	r.Held = r.source.Next(&r.Recv)
	if r.Held {
		r.Space = ib.TotalLength(r.Recv.SGList)
	}
	return r.Held
}

// WC returns the completion of a receive, from the peer of the connection.
func (r *Receives) WC(id uint64, op ib.WCOpcode) *ib.WC {
	wc := r.c.WC()
	wc.ID, wc.Opcode, wc.SrcQPN = id, op, r.c.Attr.DestQPN
	return wc
}

// Fail completes the receive in hand with an error.
func (r *Receives) Fail(s ib.Status, vendor uint32) {
	r.Held = false
	wc := r.WC(r.Recv.ID, ib.WCRecv)
	wc.Status, wc.VendorErr = s, vendor
	r.c.Complete(r.Recv.CQ, wc)
}

// Flush completes every receive with WR_FLUSH_ERR, in order, on the way to ERR
// (IBTA 10.3.1). Of a source of its own Drain does the rest; those of a shared
// source stay there.
func (r *Receives) Flush() {
	if r.Held {
		r.Fail(ib.StatusWRFlushErr, 0)
	}
	switch {
	case !r.Shared:
		for r.Own.Next(&r.Recv) {
			r.Fail(ib.StatusWRFlushErr, 0)
		}
	case r.ours:
		r.Drain()
	default:
		r.c.Events.Raise(ib.EventLastWQEReached)
	}
}

// drainAtOnce is how many receives of a source a call of Drain completes: the
// owner of the source determines how many there are, and others wait meanwhile.
const drainAtOnce = 64

// Drain completes in ERR some of what a source of its own has, with
// WR_FLUSH_ERR, and reports whether there may be more.
func (r *Receives) Drain() (more bool) {
	if !r.ours || !r.c.Failed() {
		return false
	}
	for range drainAtOnce {
		if !r.Take() {
			return false
		}
		r.Fail(ib.StatusWRFlushErr, 0)
	}
	return true
}
