package requester

import (
	"math"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/cc"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/qp/queue"
	"github.com/gosoftroce/rocev2/rocev2"
)

// work is the requests of a requester, and where sending is.
//
//	Head ≤ cur < started ≤ Tail       requests in the queue
//	una  ≤ nxt ≤ max                  PSNs: acknowledged | in flight |
//	                                  to be sent again | new
//
// The cursor is (cur, nxt): the request and the PSN that go next. Going back
// puts it at (Head, una), and sending goes on from there as if for the first
// time.
type work struct {
	c     *conn.Conn
	sink  queue.CompletionSink
	queue queue.SendRing
	cursor
}

// cursor is where sending is.
type cursor struct {
	cur     uint32 // request at the cursor
	started uint32 // first request of which nothing was ever sent

	una rocev2.PSN // oldest PSN not acknowledged
	nxt rocev2.PSN // PSN at the cursor
	max rocev2.PSN // first PSN never sent
	ssn rocev2.PSN // number of the last message that was started

	posUna, posNxt uint64 // the same places in the stream of bytes, see cc.Flight

	accepted accepted // by the peer

	chunk  uint32 // packets per READ request
	rd     uint32 // READ requests and atomics between una and nxt
	fault  bool   // some request between Head and cur has a status that waits
	notify bool   // raise EventSQDrained when drained
	long   bool   // READs may go in longer requests, see lengthenRead
	paging bool   // nothing is sent until the place of a response is fetched
	paced  bool   // the last poll stopped before Limit.NotBefore
	tells  bool   // the peer sends selective acknowledgements
	flush  flushICRC
}

// mostCounted bounds numbers of bytes that become an int, which may have 32
// bits: a READ can be of more.
const mostCounted = math.MaxInt / 2

// request is a request packet to be (IBTA 9.7.2): PSNs and bytes of the message
// from number rel and byte off on.
type request struct {
	w    *queue.Send
	rel  uint32
	off  uint32
	psns uint32 // PSNs that it takes: for a READ, one for each packet of the response (IBTA 9.7.3)
	n    uint32 // bytes that it carries or asks for
	cost uint64
	ack  bool // AckReq
}

// messages returns how many messages a request is to the peer, which counts
// them in its MSN (IBTA 9.7.7): a READ may be several, see Config.ReadChunk,
// and a WRITE, see split.
func (r *work) messages(w *queue.Send) uint32 {
	switch {
	case w.Is(ib.OpReads):
		chunk := r.chunkOf(w)
		return (w.PSNs + chunk - 1) / chunk
	case w.Flags&queue.Split != 0:
		return w.PSNs
	}
	return 1
}

// chunkOf returns how many packets a READ request asks for.
func (r *work) chunkOf(w *queue.Send) uint32 {
	switch {
	case w.Flags&queue.Split != 0:
		return min(pair, r.chunk)
	case w.Flags&queue.Long != 0:
		return longer * r.chunk
	}
	return r.chunk
}

// requestAt makes rq, which is empty, the request packet at the cursor. (It is
// filled in place, here and elsewhere: to copy what was just written in smaller
// parts stalls the processor.)
func (r *work) requestAt(rq *request, w *queue.Send) {
	rq.w, rq.rel, rq.psns = w, r.nxt.Ahead(w.First), 1
	rq.off = rq.rel << r.c.Shift
	rq.n = w.Length - rq.off
	if w.Is(ib.OpReads) {
		end := r.chunkEnd(w, rq.rel)
		rq.psns = end - rq.rel
		if end < w.PSNs {
			rq.n = rq.psns << r.c.Shift
		}
	} else {
		rq.n = min(rq.n, uint32(r.c.MTU))
	}
	rq.cost = uint64(rq.n) + uint64(rq.psns)*cc.PacketOverhead
}

// possibleMSN reports whether the peer can have completed as many messages as a
// response says (its MSN): those before the oldest request at least, and none
// that was not started. With many packets in flight a PSN is easily guessed,
// and the MSN is not. Only a native peer is sure to count as this side does.
func (r *work) possibleMSN(p *rocev2.Packet, info *rocev2.OpcodeInfo) bool {
	if r.c.Pool == nil || !info.Headers.Has(rocev2.HasAETH) {
		return true
	}
	w := r.queue.At(r.queue.Head)
	done := w.SSN.Add(-int(r.messages(w)))
	return p.AETH.MSN.Ahead(done) <= r.ssn.Ahead(done)
}

// acknowledgeBefore completes the requests before psn, which lies in (una,
// max], or is una: a response acknowledges all requests before its own (IBTA
// 9.7.5.1). It stops and returns false at one that needs a response of its own,
// or when the connection failed.
func (r *work) acknowledgeBefore(psn rocev2.PSN) bool {
	for r.una != psn {
		w := r.queue.At(r.queue.Head)
		if w.Answered() {
			return false
		}
		if n := psn.Ahead(w.First); n < w.PSNs {
			r.una, r.posUna = psn, r.position(w, n)
			return true
		}
		r.una, r.posUna = w.First.Add(int(w.PSNs)), endOf(w)
		if !r.completeHead() {
			return false
		}
	}
	return true
}

// chunkEnd returns the PSN number behind the READ request that owns PSN number
// rel.
func (r *work) chunkEnd(w *queue.Send, rel uint32) uint32 {
	chunk := r.chunkOf(w)
	if w.PSNs <= chunk {
		return w.PSNs
	}
	return min(rel-rel%chunk+chunk, w.PSNs)
}

// readFits checks the opcode and the length of a response against its place in
// the READ (IBTA 9.7.6.1). When the READ was asked for again from the middle,
// the answers to both requests are taken. Linux calls the one packet of such an
// answer LAST.
func (r *work) readFits(w *queue.Send, rel uint32, p *rocev2.Packet, info *rocev2.OpcodeInfo) bool {
	if info.Headers.Has(rocev2.HasAETH) && !p.AETH.Syndrome.IsACK() {
		return false
	}
	end := r.chunkEnd(w, rel)
	if last := rel+1 == end; info.Last != last && (last || w.Flags&queue.Resumed == 0 || r.c.Pool == nil) {
		return false
	}
	first := rel%r.chunkOf(w) == 0
	if info.First != first && (first || w.Flags&queue.Resumed == 0) {
		return false
	}
	if w.Is(ib.OpEmptyAnswer) {
		return len(p.Payload) == 0
	}
	want := min(w.Length-rel<<r.c.Shift, uint32(r.c.MTU))
	return len(p.Payload) == int(want)
}

// unlessFailed returns d, or DropNone if the connection failed: then the packet
// was used.
func (r *work) unlessFailed(d conn.Drop) conn.Drop {
	if r.c.Failed() {
		return conn.DropNone
	}
	return d
}

// inHead reports whether a PSN belongs to the oldest request.
func (r *work) inHead(psn rocev2.PSN) bool {
	w := r.queue.At(r.queue.Head)
	return psn.Ahead(w.First) < w.PSNs
}

// NextPSN returns the first PSN that was never sent.
func (r *work) NextPSN() rocev2.PSN { return r.max }

// NextCost returns the bytes that the request at the cursor counts in flight,
// for a READ those that it asks for; 0 if there is none.
func (r *work) NextCost() int {
	if r.cur == r.queue.Tail {
		return 0
	}
	w := r.queue.At(r.cur)
	n, begun := uint64(w.Length), r.cur != r.started
	if begun {
		n -= uint64(r.nxt.Ahead(w.First)) << r.c.Shift
	}
	psns := uint64(1)
	switch {
	case w.Is(ib.OpReads) && begun:
		psns = uint64(r.chunkEnd(w, r.nxt.Ahead(w.First)) - r.nxt.Ahead(w.First))
	case w.Is(ib.OpReads):
		psns = min(uint64(r.c.PSNs(w.Length)), uint64(r.chunk))
	}
	return int(min(min(n, psns<<r.c.Shift)+psns*cc.PacketOverhead, mostCounted))
}

// NotifyDrained has EventSQDrained raised once when the send queue is drained
// (IBTA 10.3.1).
func (r *work) NotifyDrained(on bool) {
	r.notify = on
	r.checkDrained()
}

// Drained reports whether no message is under way: everything that was started
// has completed.
func (r *work) Drained() bool { return r.queue.Head == r.started }

// checkDrained raises the event that NotifyDrained asks for, when it is time.
func (r *work) checkDrained() {
	if r.notify && r.Drained() {
		r.notify = false
		r.c.Events.Raise(ib.EventSQDrained)
	}
}

// packet is what a full packet counts in flight.
func (r *work) packet() int { return r.c.MTU + cc.PacketOverhead }

// position returns where PSN number rel of a request is in the stream.
func (r *work) position(w *queue.Send, rel uint32) uint64 {
	return w.Pos + uint64(rel)*uint64(r.c.MTU+cc.PacketOverhead)
}

// endOf is the position behind a request.
func endOf(w *queue.Send) uint64 {
	return w.Pos + uint64(w.Length) + uint64(w.PSNs)*cc.PacketOverhead
}
