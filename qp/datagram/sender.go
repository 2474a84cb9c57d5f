package datagram

import (
	"math"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/cc"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/qp/queue"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// GSIQKey is the Q_Key of the management queue pair, whatever its program says
// (IBTA 10.2.5).
const GSIQKey = 0x80010000

// privileged is the bit of a Q_Key in a request that stands for the Q_Key of
// the queue pair itself (IBTA 10.2.5).
const privileged = 1 << 31

// Config is what a sender is made with.
type Config struct {
	Type    ib.QPType  // UC, UD or GSI
	PortMTU rocev2.MTU // the longest datagram; not of UC

	MaxSendWR, MaxSendSGE, MaxInline int

	SendCQ    queue.CompletionSink
	SignalAll bool
}

// Sender is the sending half of UC and UD.
type Sender struct {
	c         *conn.Conn
	sink      queue.CompletionSink
	queue     queue.SendRing
	to        destinations // of the queue; UD only
	typ       ib.QPType
	portMTU   rocev2.MTU
	signalAll bool
	notify    bool // raise EventSQDrained when drained

	rate  cc.Rate
	paced bool       // the last poll stopped for the rate
	nxt   rocev2.PSN // PSN of the next packet
	sent  uint32     // packets of the oldest request that were sent
	fetch conn.Fetches
}

// Init makes a sender of c, which is in RESET.
func (s *Sender) Init(c *conn.Conn, config Config) {
	*s = Sender{c: c, sink: config.SendCQ, typ: config.Type, portMTU: config.PortMTU, signalAll: config.SignalAll}
	s.queue.Init(config.MaxSendWR, config.MaxSendSGE, config.MaxInline)
	if s.datagrams() {
		s.to = make(destinations, queue.RingSize(config.MaxSendWR))
	}
}

// datagrams reports whether each request says where it goes.
func (s *Sender) datagrams() bool { return s.typ != ib.UC }

// Reset drops everything but the memory of the queue.
func (s *Sender) Reset() {
	s.queue.Clear()
	clear(s.to)
	s.nxt, s.sent, s.notify, s.fetch = 0, 0, false, conn.Fetches{}
	s.rate, s.paced = cc.Rate{}, false
}

// ReadyToReceive takes the port's MTU where there is no path, on the way to
// RTR.
func (s *Sender) ReadyToReceive() {
	if s.datagrams() {
		s.c.SetMTU(s.portMTU)
	}
}

// ReadyToSend begins at PSN first, on the way to RTS.
func (s *Sender) ReadyToSend(first rocev2.PSN) { s.nxt = first }

// Configure takes attributes that have changed.
func (s *Sender) Configure(mask ib.AttrMask) {
	if mask&ib.AttrQKey != 0 && s.typ == ib.GSI {
		s.c.Attr.QKey = GSIQKey
	}
	if mask&ib.AttrRateLimit != 0 {
		a := &s.c.Attr
		s.rate.Set(uint64(a.RateLimit)*1000, int(min(a.RateBurst, math.MaxInt32)))
		s.paced = false
	}
}

// HandleTimeout does what is due at now: Poll may go on where the rate has
// stopped it.
func (s *Sender) HandleTimeout(now clock.Time) {
	_, at := s.rate.Next()
	s.paced = s.paced && now < at
}

// Deadline returns when HandleTimeout wants to be called, and then Poll, and
// whether at all.
func (s *Sender) Deadline() (clock.Time, bool) {
	_, at := s.rate.Next()
	return at, s.paced
}

// NextPSN returns the PSN of the next packet.
func (s *Sender) NextPSN() rocev2.PSN { return s.nxt }

// NextCost returns what the next request counts in flight: nothing, because no
// acknowledgement would ever take it out.
func (s *Sender) NextCost() int { return 0 }

// Drained reports whether no message is under way.
func (s *Sender) Drained() bool { return s.sent == 0 }

// NotifyDrained has EventSQDrained raised once when the send queue is drained
// (IBTA 10.3.1).
func (s *Sender) NotifyDrained(on bool) {
	s.notify = on
	s.checkDrained()
}

func (s *Sender) checkDrained() {
	if s.notify && s.Drained() {
		s.notify = false
		s.c.Events.Raise(ib.EventSQDrained)
	}
}

// complete completes the oldest request with success.
func (s *Sender) complete(w *queue.Send) {
	s.queue.Head++
	s.sent = 0
	s.c.Stats.SendDone++
	if s.c.State == ib.StateSQD {
		s.checkDrained()
	}
	if w.Flags&queue.Signaled == 0 {
		return
	}
	wc := s.c.WC()
	wc.ID, wc.Opcode, wc.ByteLen = w.ID, w.Opcode.Completion(), w.Length
	if !s.c.Complete(s.sink, wc) {
		s.c.Fail(conn.EndOverflow)
	}
}

// completeError delivers the completion of a request that has failed. If that
// is lost SQE is not enough.
func (s *Sender) completeError(id uint64, op ib.Opcode, status ib.Status, vendor uint32) {
	wc := s.c.WC()
	wc.ID, wc.Status, wc.Opcode, wc.VendorErr = id, status, op.Completion(), vendor
	if !s.c.Complete(s.sink, wc) {
		s.c.Fail(conn.EndOverflow)
	}
}

// fail completes the oldest request with an error, flushes the others, and goes
// to SQE: the receiving half goes on (IBTA 10.3.1).
func (s *Sender) fail(status ib.Status, vendor uint32) {
	w := s.queue.At(s.queue.Head)
	s.queue.Head++
	s.c.SetState(ib.StateSQE)
	s.completeError(w.ID, w.Opcode, status, vendor)
	s.Flush()
}

// Flush completes every request with WR_FLUSH_ERR, in order (IBTA 10.3.1).
func (s *Sender) Flush() {
	for ; s.queue.Head != s.queue.Tail; s.queue.Head++ {
		w := s.queue.At(s.queue.Head)
		s.completeError(w.ID, w.Opcode, ib.StatusWRFlushErr, 0)
	}
	clear(s.to)
	s.sent, s.notify, s.fetch, s.paced = 0, false, conn.Fetches{}, false
}

// Fetch returns the next memory that must be fetched, each once.
func (s *Sender) Fetch() (conn.Fetch, bool) { return s.fetch.Poll(conn.NeedPayload) }

// Fetched has what waited for a fetch go on. It may come late.
func (s *Sender) Fetched(_ clock.Time, need conn.Need) { s.fetch.Done(need) }

// Queued returns the number of requests that have not completed.
func (s *Sender) Queued() int { return s.queue.Len() }
