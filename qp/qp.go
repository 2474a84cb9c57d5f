package qp

import (
	"fmt"
	"time"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp/cc"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/qp/datagram"
	"github.com/gosoftroce/rocev2/qp/requester"
	"github.com/gosoftroce/rocev2/qp/responder"
	"github.com/gosoftroce/rocev2/rocev2"
)

// Config is what a queue pair is created with. Queue depths of 0 mean a queue
// that takes nothing.
type Config struct {
	QPN  rocev2.QPN
	Type ib.QPType // 0 is RC

	Memory *memreg.Table
	PD     *memreg.PD

	// Scratch may be shared by queue pairs that are not used at once; nil
	// is one of its own.
	Scratch *Scratch

	SendCQ, RecvCQ CompletionSink
	RecvSource     RecvSource // nil: the queue pair's own receive queue

	// OwnSource says that RecvSource is the receive queue of this queue
	// pair alone: the way to ERR flushes a few of its receives, and
	// DrainReceives those that are left or come in ERR. The way to RESET,
	// and Close, call its Clear, if it has one. Without OwnSource it is
	// shared.
	OwnSource bool

	// Domain has the shared receive queues that requests to an XRC target
	// name. A target needs neither PD nor sinks; an initiator needs no
	// RecvCQ.
	Domain XRCDomain

	MaxSendWR, MaxRecvWR   int // queue depths in requests
	MaxSendSGE, MaxRecvSGE int // scatter/gather entries per request, those of RecvSource too; 0 means 1
	MaxInline              int // bytes
	SignalAll              bool

	// Window bounds what is in flight. Congestion control is Congestion, if
	// that is not nil, for this queue pair alone; else it is a cc.Window.
	// Where that works with a rate, so do the answers to the peer's READs.
	Window     cc.Config
	Congestion cc.Controller

	// NotifyInterval is the least time between two congestion notifications
	// to the peer, at most 2 s. 0 means DefaultNotifyInterval; a negative
	// number means one for each marked packet, unless they come in one
	// batch.
	NotifyInterval time.Duration

	// NotifyHold says that a packet which is marked too early for another
	// notification has it when the interval is over. Else the mark is lost,
	// and there are fewer notifications than DCQCN with the parameters of
	// its paper counts on.
	NotifyHold bool

	// ReadChunk splits READs into requests of so many bytes, each of which
	// takes one of MaxRdAtomic, so that their responses cannot overrun the
	// receive buffer. It is rounded down to whole packets, one at least; 0
	// is no split.
	ReadChunk int
	// LongReads has requests of four times ReadChunk go to a native peer
	// nearby while two of them fit into the window.
	LongReads bool

	// PortMTU is how long a datagram may be: of UD and GSI, which need it.
	PortMTU rocev2.MTU

	// MinProbe, if not 0, makes the requester send again before the local
	// ACK timeout when a native peer (SetReorder) has been silent for so
	// long, for four round trips and their deviations, and for longer than
	// the pauses in which lately nothing was lost: otherwise the loss of
	// the last packets in flight stops the connection for a whole timeout.
	// It costs none of RetryCount, and is tried at twice the time when it
	// does not help. Before a round trip was measured it is four times as
	// long, or 100 µs with fewer than three packets in flight, if it is not
	// above that. A millisecond is a good value for sockets. After losses
	// that SetReorder made cheap an eighth of it is enough. To other peers
	// nothing goes again before that timeout.
	MinProbe time.Duration

	// Invalidate ends a key of this side on behalf of a SEND with
	// invalidate. On a fault the peer gets a NAK, as it does if Invalidate
	// is nil.
	Invalidate func(key ib.Key) ib.Fault
}

// QP is a queue pair. It is not safe for concurrent use, and
// its sinks must not call back into it. Posting, handling and polling do not
// allocate.
type QP struct {
	notices Notices

	conn conn.Conn
	send sendHalf
	recv recvHalf

	halves Halves         // send and recv, if they are reliable
	dgram  *datagram.Pair // send and recv, if they are not; else nil
}

// New returns a queue pair in state RESET. The error wraps ErrService or
// ErrConfig.
func New(c Config) (*QP, error) {
	if c.Type == 0 {
		c.Type = ib.RC
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	if c.Scratch == nil {
		c.Scratch = new(Scratch)
	}
	q := &QP{conn: conn.Conn{QPN: c.QPN, Memory: c.Memory, PD: c.PD, Scratch: c.Scratch}}
	q.notices = makeNotices(&c)
	q.halves = Halves{c: &q.conn, typ: c.Type, service: c.Type.Service()}
	switch c.Type {
	case ib.UC, ib.UD, ib.GSI:
		c.makeDatagram(q)
	case ib.XRCInitiator:
		q.conn.Opcodes = rocev2.XRCSendFirst
		c.makeRequester(q)
		q.recv = new(noRecv)
	case ib.XRCTarget:
		q.conn.Opcodes = rocev2.XRCSendFirst
		q.send = &noSend{c: &q.conn}
		q.conn.CC.Control = c.Congestion
		c.makeResponder(q)
	default:
		c.makeRequester(q)
		c.makeResponder(q)
	}
	return q, nil
}

// makeDatagram makes both halves of an unreliable service.
func (c *Config) makeDatagram(q *QP) {
	q.dgram = new(datagram.Pair)
	q.dgram.Init(&q.conn, datagram.Config{Type: c.Type, PortMTU: c.PortMTU, MaxSendWR: c.MaxSendWR,
		MaxSendSGE: max(c.MaxSendSGE, 1), MaxInline: c.MaxInline, SendCQ: c.SendCQ, SignalAll: c.SignalAll},
		datagram.ReceiverConfig{Source: c.RecvSource, OwnSource: c.OwnSource, RecvCQ: c.RecvCQ,
			MaxRecvWR: c.MaxRecvWR, MaxRecvSGE: max(c.MaxRecvSGE, 1)})
	q.send = &q.dgram.Send
	if q.recv = q.dgram.UD; c.Type == ib.UC {
		q.recv = q.dgram.UC
	}
}

// makeRequester makes the sending half of a reliable service.
func (c *Config) makeRequester(q *QP) {
	control := c.Congestion
	if control == nil {
		control = cc.NewWindow(c.Window)
	}
	q.halves.req = new(requester.Requester)
	q.halves.req.Init(&q.conn, requester.Config{MaxSendWR: c.MaxSendWR, MaxSendSGE: max(c.MaxSendSGE, 1), MaxInline: c.MaxInline,
		SendCQ: c.SendCQ, SignalAll: c.SignalAll, Controller: control, ReadChunk: c.ReadChunk, LongReads: c.LongReads, MinProbe: c.MinProbe})
	q.send = q.halves.req
}

// makeResponder makes the receiving half of a reliable service.
func (c *Config) makeResponder(q *QP) {
	q.halves.resp = new(responder.Responder)
	q.halves.resp.Init(&q.conn, responder.Config{Source: c.RecvSource, OwnSource: c.OwnSource, RecvCQ: c.RecvCQ, Domain: c.Domain,
		Invalidate: c.Invalidate, MaxRecvWR: c.MaxRecvWR, MaxRecvSGE: max(c.MaxRecvSGE, 1)})
	q.recv = q.halves.resp
}

func (c *Config) check() error {
	switch {
	case classOf(c.Type) == 0:
		return fmt.Errorf("%w: %v", ErrService, c.Type)
	case c.Type.Service() == rocev2.ServiceUD && !c.PortMTU.Valid():
		return fmt.Errorf("%w: PortMTU: %w", ErrConfig, c.PortMTU.Err())
	case c.QPN > rocev2.QPNMask:
		return fmt.Errorf("%w: QPN %#x has more than 24 bits", ErrConfig, uint32(c.QPN))
	case c.Memory == nil || c.PD == nil && c.Type != ib.XRCTarget:
		return fmt.Errorf("%w: no memory table or protection domain", ErrConfig)
	case c.SendCQ == nil && c.Type != ib.XRCTarget || c.RecvCQ == nil && c.Type.Service() != rocev2.ServiceXRC:
		return fmt.Errorf("%w: no completion sink", ErrConfig)
	case (c.Domain != nil) != (c.Type == ib.XRCTarget):
		return fmt.Errorf("%w: XRC targets, and no others, need a Domain", ErrConfig)
	case c.RecvSource != nil && c.Type.Service() == rocev2.ServiceXRC:
		return fmt.Errorf("%w: RecvSource: requests of XRC name a queue of the Domain", ErrConfig)
	case c.OwnSource && c.RecvSource == nil:
		return fmt.Errorf("%w: OwnSource without a RecvSource", ErrConfig)
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
		{"Window.MaxPSNs", c.Window.MaxPSNs, cc.MaxPSNs},
	} {
		if l.v < 0 || int64(l.v) > l.max {
			return fmt.Errorf("%w: %s is %d, not 0 to %d", ErrConfig, l.name, l.v, l.max)
		}
	}
	return nil
}

// Type returns the type of the queue pair.
func (q *QP) Type() ib.QPType { return q.halves.typ }

// Domain returns the protection domain of q: nil for an XRC target, which
// reaches memory of several.
func Domain(q *QP) *memreg.PD {
	if q.halves.typ == ib.XRCTarget {
		return nil
	}
	return q.conn.PD
}

// PollNotice writes a congestion notification, if one is due, for a driver that
// has it go beside what Poll writes. It returns the length, 0 if there is none.
func (q *QP) PollNotice(buf []byte) int { return q.notices.poll(&q.conn, buf) }

// Notices returns the congestion notifications of q.
func (q *QP) Notices() *Notices { return &q.notices }

// Halves returns the halves of a reliable service: where payloads go, and what
// is left to say at the end.
func (q *QP) Halves() *Halves { return &q.halves }

// Connected reports whether the queue pair has one peer. The others are of UD:
// each request says where it goes, and datagrams from any sender are taken.
func (q *QP) Connected() bool { return q.halves.service != rocev2.ServiceUD }

// Reliable reports whether the peer acknowledges what it gets.
func (q *QP) Reliable() bool {
	return q.halves.service == rocev2.ServiceRC || q.halves.service == rocev2.ServiceXRC
}

// State returns the current state.
func (q *QP) State() ib.State { return q.conn.State }

// QPN returns the number of the queue pair.
func (q *QP) QPN() rocev2.QPN { return q.conn.QPN }

// Attr returns the attributes. SQPSN is the next new PSN to send, RQPSN the
// next expected.
func (q *QP) Attr() ib.Attr {
	a := q.conn.Attr
	a.State, a.CurState = q.conn.State, q.conn.State
	if q.conn.State >= ib.StateRTR {
		a.RQPSN = q.recv.ExpectedPSN()
	}
	if q.conn.State >= ib.StateRTS {
		a.SQPSN = q.send.NextPSN()
	}
	return a
}

// Stats returns the counters.
func (q *QP) Stats() Stats { return q.conn.Stats.Stats() }

// AddStats adds the counters of q to sum.
func AddStats(sum *Stats, q *QP) { q.conn.Stats.AddTo(sum) }

// Reordered returns the counter of q of that name.
func Reordered(q *QP) uint64 { return q.conn.Stats.Reordered() }

// PollEvent returns the next asynchronous event. Each kind is reported once
// however often it was raised in between.
func (q *QP) PollEvent() (ib.Event, bool) { return q.conn.Events.Poll() }

// PostSend queues a send request. The error wraps one of those of package ib,
// and then nothing was queued. States RTS and SQD take requests (SQD sends them
// once back in RTS); ERR completes them at once with WR_FLUSH_ERR; the others
// refuse. SQE of UC and UD completes them like ERR.
//
// Keys and addresses of the scatter list are not looked at here: they become a
// completion status.
func (q *QP) PostSend(wr *ib.SendWR) error {
	switch {
	case q.halves.req != nil:
		return q.halves.req.Post(wr)
	case q.dgram != nil:
		return q.dgram.Send.Post(wr)
	}
	return ib.ErrNoSend
}

// PostSends queues all of the requests, or none if one of them is refused. Then
// it returns which one.
func (q *QP) PostSends(wrs []ib.SendWR) (int, error) {
	switch {
	case q.halves.req != nil:
		return q.halves.req.PostAll(wrs)
	case q.dgram != nil:
		return q.dgram.Send.PostAll(wrs)
	case len(wrs) > 0:
		return 0, ib.ErrNoSend
	}
	return 0, nil
}

// PostRecv queues a receive, from state INIT on. In ERR it completes at once
// with WR_FLUSH_ERR. The error wraps one of those of package ib, and then
// nothing was queued.
func (q *QP) PostRecv(wr *ib.RecvWR) error {
	switch {
	case q.halves.typ == ib.XRCTarget:
		return ib.ErrShared
	case q.halves.resp != nil:
		return q.halves.resp.Post(wr)
	case q.dgram != nil:
		return q.dgram.PostRecv(wr)
	}
	return ib.ErrNoReceive
}

// DrainReceives completes in ERR with WR_FLUSH_ERR some of what the RecvSource
// of q has, which is its own. It reports whether there may be more, for another
// call. In other states it does nothing.
func DrainReceives(q *QP) (more bool) {
	switch {
	case q.halves.resp != nil:
		return q.halves.resp.Drain()
	case q.dgram != nil:
		return q.dgram.Drain()
	}
	return false
}

// SetWindow changes the bounds of what may be in flight, for a driver that has
// learned what the peer can take. InitialBytes is not looked at.
func (q *QP) SetWindow(c cc.Config) {
	if q.halves.req != nil {
		q.halves.req.SetLimits(c)
	}
}

// SharePauses has the queue pair share p with others until it is reset.
func (q *QP) SharePauses(p *Pauses) {
	if q.halves.req != nil {
		q.halves.req.SharePauses(p)
	}
}

// SetReorder says that the peer is native: it buffers what arrives after a gap.
// From now on this queue pair does so too, in p, as long as there is room. It
// executes the packets in order when the gap is closed: to the peer that is as
// if the network had delayed them. After a loss it does not send everything
// again that was in flight, but a few packets from the missing one on, and more
// if they do not help. So a peer that buffers nothing, or not everything, costs
// only time. With nil, it treats the peer as any other: go-back-N.
//
// A packet from the buffer takes effect without the packets before it having
// shown that its PSN is right. So a PSN is up to 128 times easier to guess. The
// program must know the identity of the peer.
func (q *QP) SetReorder(p *Pool) {
	q.halves.reorder(p)
}

// InFlight returns the bytes that may lie in the peer's receive buffer: those
// between the oldest unacknowledged packet and the next one, as package cc
// counts them, without a share that the peer has kept after a gap. Outside of
// RTS and SQD nothing is in flight. It also reports whether the peer is silent:
// it has not answered what is in flight for so long that this was sent again,
// or would be.
func (q *QP) InFlight() (bytes int, silent bool) {
	return q.halves.inFlight()
}

// Flow is how the sending half of a queue pair stands at a moment.
type Flow = requester.Flow

// FlowOf returns how the sending of q stands. Of the unreliable services, which
// keep nothing in flight, it is zero. An XRC target has only a rate, if any.
func FlowOf(q *QP) Flow {
	if q.halves.req == nil {
		return Flow{Rate: q.conn.CC.Limit.Rate}
	}
	return q.halves.req.Flow()
}

// NextCost returns the bytes that the next request counts in flight, for a READ
// those that it asks for; 0 if there is none.
func (q *QP) NextCost() int { return q.send.NextCost() }
