package requester

import (
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/qp/queue"
	"github.com/gosoftroce/rocev2/rocev2"
)

// acknowledgeBefore completes the requests before psn, which lies in (una,
// max], or is una: a response acknowledges all requests before its own (IBTA
// 9.7.5.1). It stops and returns false at one that needs a response of its own,
// or when the connection failed.
func (s *stream) acknowledgeBefore(psn rocev2.PSN) bool {
	for s.una != psn {
		w := s.head()
		if w.Kind&ib.OpAnswered != 0 {
			return false
		}
		n := min(psn.Ahead(w.First), w.PSNs)
		s.take(w, n)
		if n == w.PSNs && !s.completeHead() {
			return false
		}
	}
	return true
}

// take moves una to PSN number rel of the oldest request.
func (s *stream) take(w *queue.Send, rel uint32) {
	s.una, s.posUna = w.First.Add(int(rel)), s.position(w, rel)
}

// answered takes the response with PSN number rel of the oldest request, the
// last to one that was sent (last), and completes the request with its last.
func (s *stream) answered(w *queue.Send, rel uint32, last bool) {
	if last && s.nxt.Ahead(w.First) > rel {
		s.rd--
	}
	if s.take(w, rel+1); rel+1 < w.PSNs {
		return
	}
	if w.Kind&ib.OpInvalidates != 0 { // its data is there: the key that goes with it ends
		if f := s.c.ExecuteLocal(&s.ring, s.ring.Head); f != ib.FaultNone {
			s.failHead(ib.StatusLocQPOpErr, conn.VendorErr(f))
			return
		}
	}
	s.completeHead()
}

// fits checks the opcode and the length of a response against its place in the
// READ (IBTA 9.7.6.1), or in a request that is answered like an empty one. When
// the READ was asked for again from the middle, the answers to both requests
// are taken. Linux calls the one packet of such an answer LAST.
func (s *stream) fits(w *queue.Send, rel uint32, first, last bool, p *rocev2.Packet, info *rocev2.OpcodeInfo) bool {
	if w.Kind&(ib.OpReads|ib.OpEmptyAnswer) == 0 || info.Headers&rocev2.HasAETH != 0 && !p.AETH.Syndrome.IsACK() {
		return false
	}
	if info.Last != last && (last || w.Flags&queue.Resumed == 0 || s.c.Pool == nil) {
		return false
	}
	if info.First != first && (first || w.Flags&queue.Resumed == 0) {
		return false
	}
	if w.Kind&ib.OpEmptyAnswer != 0 {
		return len(p.Payload) == 0
	}
	return len(p.Payload) == int(min(w.Length-rel<<s.c.Shift, uint32(s.c.MTU)))
}

// possible reports whether a response may be one to what is in flight: whether
// the peer can have completed as many messages as it says (its MSN), those
// before the oldest request at least, and none that was not started. With many
// packets in flight a PSN is easily guessed, and the MSN is not. Only a native
// peer is sure to count as this side does.
func (s *stream) possible(p *rocev2.Packet, info *rocev2.OpcodeInfo) bool {
	if s.c.Pool == nil || info.Headers&rocev2.HasAETH == 0 {
		return true
	}
	w := s.head()
	done := w.SSN.Add(-int(s.chunk.messages(w)))
	return p.AETH.MSN.Ahead(done) <= s.ssn.Ahead(done)
}

// completeHead completes the oldest request with success, and the local
// operations after it that were carried out meanwhile. It returns false if
// that failed the connection.
func (s *stream) completeHead() bool {
	for {
		w := s.head()
		s.ring.Head++
		s.c.Stats.SendDone++
		if w.PSNs > 1 || w.Opcode == ib.OpSendInv {
			s.accepted.completed(w, s.c.Pool != nil)
		}
		if w.Flags&queue.Signaled != 0 {
			wc := s.c.WC()
			wc.ID, wc.Opcode, wc.ByteLen = w.ID, w.Opcode.Completion(), w.Length
			if !s.c.Complete(s.sink, wc) {
				s.c.Fail(conn.EndOverflow)
				return false
			}
		}
		if s.ring.Head == s.started || s.head().Kind&ib.OpLocal == 0 {
			return true
		}
	}
}

// completeError delivers the completion of a request that has failed.
func (s *stream) completeError(id uint64, op ib.Opcode, status ib.Status, vendor uint32) {
	wc := s.c.WC()
	wc.ID, wc.Status, wc.Opcode, wc.VendorErr = id, status, op.Completion(), vendor
	s.c.Complete(s.sink, wc)
}

// failHead completes the oldest request with an error, which ends the
// connection.
func (s *stream) failHead(status ib.Status, vendor uint32) {
	if s.c.Failed() {
		return
	}
	if s.ring.Head != s.ring.Tail {
		w := s.head()
		s.ring.Head++
		s.completeError(w.ID, w.Opcode, status, vendor)
	}
	s.c.Fail(conn.EndLocal)
}

// fail fails the request at the cursor for a reason on this side: at once if it
// is the oldest, or when those before it are done.
func (s *stream) fail(status ib.Status, vendor uint32) {
	if s.cur == s.ring.Head {
		s.failHead(status, vendor)
		return
	}
	w := s.ring.At(s.cur)
	w.Status, w.Vendor, s.fault = status, uint16(vendor), true
}

// flush completes every request with WR_FLUSH_ERR, in order (IBTA 10.3.1).
func (s *stream) flush() {
	for ; s.ring.Head != s.ring.Tail; s.ring.Head++ {
		w := s.head()
		s.completeError(w.ID, w.Opcode, ib.StatusWRFlushErr, 0)
	}
	s.cur, s.started = s.ring.Head, s.ring.Head
}

// settle does what was put off until una moved on: it fails a request that is
// the oldest now, and raises EventSQDrained.
func (s *stream) settle() {
	switch {
	case s.fault && s.ring.Head != s.ring.Tail && s.head().Status != ib.StatusSuccess:
		s.failHead(s.head().Status, uint32(s.head().Vendor))
	case s.notify && s.c.State == ib.StateSQD && s.drained():
		s.notify = false
		s.c.Events.Raise(ib.EventSQDrained)
	}
}

// drained reports whether no message is under way: everything that was started
// has completed.
func (s *stream) drained() bool { return s.ring.Head == s.started }

// notifyDrained has EventSQDrained raised once when the send queue is drained
// (IBTA 10.3.1).
func (s *stream) notifyDrained(on bool) {
	s.notify = on
	s.settle()
}
