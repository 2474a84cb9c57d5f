package requester

import (
	"math"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/cc"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/qp/queue"
	"github.com/gosoftroce/rocev2/rocev2"
)

// stream is the requests from post to completion, as the stream of packets that
// they are on the wire, and where sending is in it.
//
//	Head ≤ cur < started ≤ Tail       requests in the ring
//	una  ≤ nxt ≤ max                  PSNs: acknowledged | in flight |
//	                                  to be sent again | new
//
// The cursor is (cur, nxt): the request and the PSN that go next. Going back
// puts it at (Head, una), and sending goes on from there as if for the first
// time. The stream knows no time: why and when it goes back, others decide.
type stream struct {
	c    *conn.Conn
	sink queue.CompletionSink
	ring queue.SendRing

	cur     uint32 // request at the cursor
	started uint32 // first request of which nothing was ever sent

	una rocev2.PSN // oldest PSN not acknowledged
	nxt rocev2.PSN // PSN at the cursor
	max rocev2.PSN // first PSN never sent
	ssn rocev2.PSN // number of the last message that was started

	posUna, posNxt uint64 // the same places in the stream of bytes, see cc.Flight

	accepted accepted // by the peer

	chunk     chunk
	rd        uint32 // READ requests and atomics between una and nxt
	readChunk uint32 // see Config
	signalAll bool
	longReads bool
	fault     bool // some request between Head and cur has a status that waits
	notify    bool // raise EventSQDrained when drained
}

// init makes an empty stream.
func (s *stream) init(c *conn.Conn, config *Config) {
	*s = stream{c: c, sink: config.SendCQ, signalAll: config.SignalAll, longReads: config.LongReads, readChunk: uint32(config.ReadChunk)}
	s.ring.Init(config.MaxSendWR, config.MaxSendSGE, config.MaxInline)
}

// reset drops everything but the memory of the ring.
func (s *stream) reset() {
	*s = stream{c: s.c, sink: s.sink, ring: s.ring, signalAll: s.signalAll, longReads: s.longReads, readChunk: s.readChunk}
	s.ring.Clear()
}

// setMTU takes the path MTU.
func (s *stream) setMTU() {
	s.chunk = maxChunk
	if n := s.readChunk; n > 0 {
		s.chunk = chunk(max(1, min(n>>s.c.Shift, maxChunk)))
	}
}

// begin begins at PSN first.
func (s *stream) begin(first rocev2.PSN) { s.una, s.nxt, s.max = first, first, first }

// head returns the oldest request.
func (s *stream) head() *queue.Send { return s.ring.At(s.ring.Head) }

// empty reports whether there is no request at the cursor.
func (s *stream) empty() bool { return s.cur == s.ring.Tail }

// inFlight returns how many PSNs are.
func (s *stream) inFlight() uint32 { return s.nxt.Ahead(s.una) }

// goesAgain reports whether what is at the cursor was sent before.
func (s *stream) goesAgain() bool { return s.nxt != s.max }

// after returns the request after i, which was started: where the cursor goes
// from there.
func (s *stream) after(i uint32) uint32 {
	for i++; i != s.started && s.ring.At(i).Kind&ib.OpLocal != 0; i++ {
	}
	return i
}

// fullPacket is what a full packet counts in flight.
func fullPacket(c *conn.Conn) int { return c.MTU + cc.PacketOverhead }

// position returns where PSN number rel of a request is in the stream of bytes.
func (s *stream) position(w *queue.Send, rel uint32) uint64 {
	if rel == w.PSNs {
		return w.Pos + uint64(w.Length) + uint64(w.PSNs)*cc.PacketOverhead
	}
	return w.Pos + uint64(rel)*uint64(fullPacket(s.c))
}

// number gives the request at the cursor, of which nothing was sent, its place
// in the stream; flags say how it is cut.
func (s *stream) number(w *queue.Send, psns uint32, flags uint8) {
	w.First, w.Pos, w.PSNs = s.max, s.posNxt, psns
	w.Flags |= flags
	w.SSN = s.ssn.Add(int(s.chunk.messages(w)))
}

// sent moves the cursor past n packets: a run, or the one that rq is.
func (s *stream) sent(rq *request, n int) {
	w := rq.w
	if w.Kind&ib.OpAnswered != 0 {
		s.rd++
	}
	if w.Kind&ib.OpCarries != 0 {
		s.c.Stats.TxBytes += uint64(rq.n) * uint64(n)
	}
	psns := rq.psns * uint32(n)
	grows := s.inFlight()+psns > s.max.Ahead(s.una)
	s.nxt = s.nxt.Add(int(psns))
	s.posNxt += rq.cost * uint64(n)
	if grows {
		s.max = s.nxt
	}
	if s.cur == s.started {
		s.started++
		s.ssn = w.SSN
	}
	if rq.rel+psns == w.PSNs {
		s.cur = s.after(s.cur)
	}
}

// toHead puts the cursor at the oldest unacknowledged PSN.
func (s *stream) toHead() { s.cur, s.nxt, s.posNxt, s.rd = s.ring.Head, s.una, s.posUna, 0 }

// rewind goes back there, to send all again.
func (s *stream) rewind() {
	if s.toHead(); s.una != s.max && s.head().Kind&ib.OpReads != 0 {
		s.resume(s.cur)
	}
}

// resume records that a request is sent again while its answer may be on the
// way.
func (s *stream) resume(i uint32) { s.ring.At(i).Flags |= queue.Resumed }

// catchUp moves the cursor to una, if that has passed it since it was at from:
// a response to the first transmission came after going back, and there is no
// need to send that again.
func (s *stream) catchUp(from rocev2.PSN) {
	if s.nxt.Ahead(from) < s.una.Ahead(from) {
		s.toHead()
	}
}

// requestOf returns the request that a PSN in flight belongs to.
func (s *stream) requestOf(psn rocev2.PSN) (uint32, bool) {
	for i := s.ring.Head; i != s.started; i = s.after(i) {
		if w := s.ring.At(i); w.Kind&ib.OpLocal == 0 && psn.Ahead(w.First) < w.PSNs {
			return i, true
		}
	}
	return 0, false
}

// inHead reports whether a PSN belongs to the oldest request.
func (s *stream) inHead(psn rocev2.PSN) bool {
	w := s.head()
	return psn.Ahead(w.First) < w.PSNs
}

// awaitsRest reports whether the oldest packet that is missing is a response in
// the middle of a READ: there is no packet of that PSN to be sent again.
func (s *stream) awaitsRest() bool {
	w := s.head()
	return w.Kind&ib.OpReads != 0 && s.una.Ahead(w.First)%s.chunk.of(w) != 0
}

// readsUntil returns end, or the first PSN before it of a request in flight
// that is not a READ.
func (s *stream) readsUntil(end rocev2.PSN) rocev2.PSN {
	at := s.una
	for i := s.ring.Head; i != s.started && at.Before(end); i = s.after(i) {
		w := s.ring.At(i)
		if w.Kind&ib.OpReads == 0 {
			return at
		}
		at = w.First.Add(int(w.PSNs))
	}
	return end
}

// answers finds the PSNs of responses to READs among what the peer does not
// keep, and returns how many were taken for lost. The peer keeps the request
// for a READ as one packet, and as one packet it is lost.
func (s *stream) answers(b *queue.Scoreboard) (n int) {
	if s.rd == 0 {
		return 0
	}
	for i := s.ring.Head; i != s.started; i = s.after(i) {
		if w := s.ring.At(i); w.Kind&ib.OpReads != 0 && w.PSNs > 1 {
			n += b.Answers(w.First, w.PSNs, s.chunk.of(w))
		}
	}
	return n
}

// mostCounted bounds numbers of bytes that become an int, which may have 32
// bits: a READ can be of more.
const mostCounted = math.MaxInt / 2
