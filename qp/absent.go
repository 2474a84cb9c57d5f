package qp

import (
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// noSend is the sending half of an XRC target, which has none (IBTA A14). It
// keeps the attributes that the state table asks for.
type noSend struct {
	c    *conn.Conn
	next rocev2.PSN
}

func (*noSend) HandleTimeout(clock.Time)     {}
func (*noSend) Deadline() (clock.Time, bool) { return 0, false }

func (s *noSend) ReadyToReceive()              { s.c.CC.Reset() }
func (s *noSend) ReadyToSend(first rocev2.PSN) { s.next = first }
func (*noSend) Drained() bool                  { return true }
func (*noSend) Flush()                         {}

// Configure takes a rate limit, which is that of the answers to READs.
func (s *noSend) Configure(mask ib.AttrMask) {
	if mask&ib.AttrRateLimit != 0 {
		s.c.SetRate()
	}
}

func (s *noSend) Reset() {
	s.next = 0
	s.c.CC.End()
}

func (s *noSend) NotifyDrained(on bool) {
	if on {
		s.c.Events.Raise(ib.EventSQDrained)
	}
}

func (s *noSend) NextPSN() rocev2.PSN { return s.next }
func (*noSend) NextCost() int         { return 0 }

func (*noSend) Fetch() (Fetch, bool)          { return Fetch{}, false }
func (*noSend) Fetched(clock.Time, conn.Need) {}

// noRecv is the receiving half of an XRC initiator, which has none.
type noRecv struct{ expected rocev2.PSN }

func (*noRecv) Owes() conn.Owed              { return conn.OwesNothing }
func (*noRecv) HandleTimeout(clock.Time)     {}
func (*noRecv) Deadline() (clock.Time, bool) { return 0, false }

func (r *noRecv) ReadyToReceive(first rocev2.PSN) { r.expected = first }
func (*noRecv) Flush(conn.End)                    {}
func (r *noRecv) Reset()                          { r.expected = 0 }

func (r *noRecv) ExpectedPSN() rocev2.PSN { return r.expected }

func (*noRecv) Fetch() (Fetch, bool) { return Fetch{}, false }
func (*noRecv) Fetched(conn.Need)    {}
