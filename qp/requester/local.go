package requester

import (
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/qp/queue"
)

// Local operations (IBTA 10.6.5, 10.6.7 and 11.4.1.1) stand in the send queue
// among the requests, and send nothing. One takes no PSN, and it is carried out
// once, when it is started: going back passes it over. So neither the cursor
// nor the head of the queue is ever at one that was carried out. It completes
// when the requests before it have.
//
// The order (IBTA 10.8.3.3): requests after a local operation are started
// after it was carried out. A bind and a registration are carried out when all
// before them are started, and with the fence when the READs and atomics among
// these have completed. LOCAL_INV is carried out when all before it have
// completed, as if its fence were always set: what the key stands for may be
// what they are made of, and they may have to be sent again.

// executeLocal carries out the local operation at the cursor. It returns false
// if that must wait, or fails.
func (s *stream) executeLocal() bool {
	w := s.ring.At(s.cur)
	switch {
	case s.c.State != ib.StateRTS || w.Status != ib.StatusSuccess:
		return false
	case w.Flags&queue.Fence != 0 && s.rd > 0:
		return false
	case w.Kind&ib.OpInvalidates != 0 && s.cur != s.ring.Head:
		return false
	}
	if f := s.c.ExecuteLocal(&s.ring, s.cur); f != ib.FaultNone {
		s.fail(conn.LocalStatus(w.Opcode), conn.VendorErr(f))
		return false
	}
	w.First, w.Pos, w.PSNs, w.SSN = s.max, s.posNxt, 0, s.ssn
	s.started++
	s.cur++
	if s.ring.Head+1 == s.cur {
		return s.completeHead()
	}
	return true
}
