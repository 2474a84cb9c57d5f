package qp

import (
	"encoding/binary"

	"github.com/gosoftroce/rocev2/clock"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
)

// requester is the sending half (IBTA 9.7.2 to 9.7.4, 9.7.6).
//
//	head ≤ cur < started ≤ tail       WQEs
//	una  ≤ nxt ≤ max                  PSNs: acknowledged | in flight | to be sent again | new
//
// The cursor is (cur, nxt): the request and the PSN that go next. Going back puts it at (head, una), and sending goes on
// from there as if for the first time.
type requester struct {
	queue   sendQueue
	head    uint32 // oldest request that has not completed
	cur     uint32 // request at the cursor
	started uint32 // first request of which nothing was ever sent

	una rocev2.PSN // oldest PSN not acknowledged
	nxt rocev2.PSN // PSN at the cursor
	max rocev2.PSN // first PSN never sent
	ssn rocev2.PSN // number of the last message that was started

	posUna, posNxt uint64 // the same places in the stream of bytes that the window counts

	chunk    uint32 // packets per READ request
	rd       uint32 // READ requests and atomics between una and nxt
	sinceAck uint32 // packets since the last one with AckReq
	resent   uint64 // Stats.Retransmits when the peer's silence first had packets sent again, if rtt.asked
	fault    bool   // some request between head and cur has a status that waits
	stalled  bool   // the last poll stopped for lack of credits
	paging   bool   // nothing is sent until the place of a response is fetched

	allowance int // bytes of requests that the driver lets go

	repair repair
	kept   kept // responses behind a gap
	retry  retry
	rtt    rtt
	rnr    rnr
	window window
	credit credit
}

// maxChunk bounds a READ request to 2^22 packets, so that PSN comparisons hold whatever the message length.
const maxChunk = 1 << 22

// rewind puts the cursor at the oldest unacknowledged PSN.
func (r *requester) rewind() {
	r.cur, r.nxt, r.posNxt = r.head, r.una, r.posUna
	r.rd, r.sinceAck = 0, 0
	r.repair.left = 0
	r.retry.stop()
	r.rtt.discard()
	if r.una != r.max {
		if w := r.queue.at(r.head); w.opcode == ib.OpRead {
			w.flags |= flagResumed
		}
	}
}

// position returns where PSN number rel of a request is in the stream.
func (q *QP) position(w *sendWQE, rel uint32) uint64 {
	return w.pos + uint64(rel)*uint64(q.mtu+PacketOverhead)
}

// packet is the size of a full packet in the window.
func (q *QP) packet() int { return q.mtu + PacketOverhead }

// handleResponse takes a packet of the peer's responder. What comes behind a gap may be kept until that is closed.
func (q *QP) handleResponse(now clock.Time, p *rocev2.Packet, info *rocev2.OpcodeInfo) Drop {
	r := &q.req
	una := r.una
	d := q.executeResponse(now, p, info)
	if d == DropGap {
		d = q.keep(now, &r.kept, p, 1, r.una, d)
	}
	if r.kept.len() > 0 && r.una != una {
		q.executeKeptResponses(now)
	}
	return d
}

// executeResponse takes a packet of the peer's responder in its turn. The parts of it: what comes before its PSN is
// acknowledged by it, whatever it says; then comes its own meaning.
func (q *QP) executeResponse(now clock.Time, p *rocev2.Packet, info *rocev2.OpcodeInfo) Drop {
	r := &q.req
	psn := p.BTH.PSN
	if psn.Before(r.una) {
		return q.handleStale(now, p, info)
	}
	if ahead(psn, r.una) >= ahead(r.max, r.una) || !q.possibleMSN(p, info) {
		return DropGhost
	}
	from, pos := r.una, r.posUna
	var d Drop
	switch {
	case info.Operation == rocev2.OpReadResponse:
		d = q.readResponse(now, p, info)
	case info.Operation == rocev2.OpAtomicAcknowledge:
		d = q.atomicResponse(now, p)
	case p.AETH.Syndrome.IsACK():
		d = q.acknowledge(psn)
		if d == DropNone && q.state != ib.StateErr {
			r.credit.update(&p.AETH)
		}
	default:
		return q.handleNAK(now, p)
	}
	q.settle(now, from, pos)
	if d == DropGap {
		q.handleGap(psn, info)
	}
	return d
}

// possibleMSN reports whether the peer can have completed as many messages as a response says: those before the oldest
// request at least, and none that was not started. With many packets in flight a PSN is easily guessed, and this is not.
// Only a peer of our own kind is sure to count as we do.
func (q *QP) possibleMSN(p *rocev2.Packet, info *rocev2.OpcodeInfo) bool {
	if q.store == nil || !info.Headers.Has(rocev2.HasAETH) {
		return true
	}
	r := &q.req
	w := r.queue.at(r.head)
	done := w.ssn.Add(-int(r.messages(w)))
	return ahead(p.AETH.MSN, done) <= ahead(r.ssn, done)
}

// handleStale takes a response to what has completed. It may still say something new: the credits of an unsolicited
// acknowledgement (IBTA 9.7.7.2), and a fatal NAK of a READ in the middle of its responses, which Linux sends with the
// PSN of the request.
func (q *QP) handleStale(now clock.Time, p *rocev2.Packet, info *rocev2.OpcodeInfo) Drop {
	r := &q.req
	if r.rtt.doubted {
		q.answeredTwice(now, p.BTH.PSN)
	}
	if info.Operation != rocev2.OpAcknowledge {
		return DropStale
	}
	s := p.AETH.Syndrome
	switch {
	case s.IsACK() && p.BTH.PSN.Next() == r.una:
		r.credit.update(&p.AETH)
	case s.IsNAK() && s != rocev2.NAKSequence && r.head != r.started:
		w := r.queue.at(r.head)
		if w.opcode == ib.OpRead && ahead(p.BTH.PSN, w.first) < ahead(r.una, w.first) && q.possibleMSN(p, info) {
			q.countNAK(s)
			q.failHead(nakStatus(s), ib.VendorNAK|uint32(s))
			return DropNone
		}
	}
	return DropStale
}

// acknowledgeBefore completes the requests before psn, which lies in (una, max], or is una. It stops and returns false at
// one that needs a response of its own, or when the queue pair failed.
func (q *QP) acknowledgeBefore(psn rocev2.PSN) bool {
	r := &q.req
	for r.una != psn {
		w := r.queue.at(r.head)
		if w.answered() {
			return false
		}
		if n := ahead(psn, w.first); n < w.psns {
			r.una, r.posUna = psn, q.position(w, n)
			return true
		}
		r.una, r.posUna = w.first.Add(int(w.psns)), w.end()
		if !q.completeHead() {
			return false
		}
	}
	return true
}

// acknowledge takes an ACK of everything up to psn.
func (q *QP) acknowledge(psn rocev2.PSN) Drop {
	r := &q.req
	if q.acknowledgeBefore(psn.Next()) || q.state == ib.StateErr {
		return DropNone
	}
	if q.inHead(psn) {
		// A plain ACK does not complete a READ or an atomic, for there is no data in it.
		r.retry.badResp = true
		return DropBadResponse
	}
	return DropGap
}

// settle does what follows from progress: una was at from before.
func (q *QP) settle(now clock.Time, from rocev2.PSN, pos uint64) {
	r := &q.req
	if r.una == from || q.state == ib.StateErr {
		return
	}
	if ahead(r.nxt, from) < ahead(r.una, from) {
		// An answer to the first transmission came after going back: no need to send that again.
		r.cur, r.nxt, r.posNxt = r.head, r.una, r.posUna
		r.rd = 0
	}
	r.retry.progress(now, r.una != r.nxt)
	if r.rtt.progress(now, r.una) {
		q.takeBack()
	}
	r.rnr.reset()
	r.window.acked(r.posUna-pos, r.posUna)
	if r.repairFailed() {
		q.restart(true)
	} else {
		r.repair.forget(r.una)
	}
	if r.fault {
		if w := r.queue.at(r.head); r.head != r.queue.tail && w.status != ib.StatusSuccess {
			q.failHead(w.status, w.vendor)
			return
		}
	}
	if q.state == ib.StateSQD {
		q.checkDrained()
	}
}

// readResponse takes a packet of a READ's data.
func (q *QP) readResponse(now clock.Time, p *rocev2.Packet, info *rocev2.OpcodeInfo) Drop {
	r := &q.req
	psn := p.BTH.PSN
	if !q.acknowledgeBefore(psn) {
		return q.unlessFailed(DropGap)
	}
	w := r.queue.at(r.head)
	rel := ahead(psn, w.first)
	if w.opcode != ib.OpRead || !q.readFits(w, rel, p, info) {
		r.retry.badResp = true
		return DropBadResponse
	}
	if info.Headers.Has(rocev2.HasAETH) {
		r.credit.update(&p.AETH)
	}
	if len(p.Payload) > 0 {
		f := q.cfg.Memory.Scatter(q.cfg.PD, r.queue.list(r.head, w), uint64(rel)<<q.mtuShift, p.Payload)
		if f == ib.FaultNotPresent {
			return q.dropResult(w, uint64(rel)<<q.mtuShift, len(p.Payload))
		}
		if f != ib.FaultNone {
			q.failHead(ib.StatusLocProtErr, ib.VendorFault|uint32(f))
			return DropNone
		}
	}
	if rel+1 == r.chunkEnd(w, rel) && r.nxt != psn && ahead(r.nxt, w.first) > rel {
		r.rd--
	}
	r.una = psn.Next()
	if rel+1 == w.psns {
		r.posUna = w.end()
		q.completeHead()
	} else {
		r.posUna = q.position(w, rel+1)
	}
	return DropNone
}

// chunkEnd returns the PSN number behind the READ request that owns PSN number rel.
func (r *requester) chunkEnd(w *sendWQE, rel uint32) uint32 {
	if w.psns <= r.chunk {
		return w.psns
	}
	return min(rel-rel%r.chunk+r.chunk, w.psns)
}

// readFits checks a response's opcode and length against its place in the READ. After the READ was asked for again from
// the middle, the answers to both requests are taken, and there Linux calls the one packet of a replay LAST.
func (q *QP) readFits(w *sendWQE, rel uint32, p *rocev2.Packet, info *rocev2.OpcodeInfo) bool {
	if info.Headers.Has(rocev2.HasAETH) && !p.AETH.Syndrome.IsACK() {
		return false
	}
	end := q.req.chunkEnd(w, rel)
	if last := rel+1 == end; info.Last != last && (last || w.flags&flagResumed == 0 || q.store == nil) {
		return false
	}
	first := rel == 0 || (w.psns > q.req.chunk && rel%q.req.chunk == 0)
	if info.First != first && (first || w.flags&flagResumed == 0) {
		return false
	}
	want := min(w.length-rel<<q.mtuShift, uint32(q.mtu))
	return len(p.Payload) == int(want)
}

// atomicResponse takes the result of an atomic.
func (q *QP) atomicResponse(now clock.Time, p *rocev2.Packet) Drop {
	r := &q.req
	psn := p.BTH.PSN
	if !q.acknowledgeBefore(psn) {
		return q.unlessFailed(DropGap)
	}
	w := r.queue.at(r.head)
	if !w.opcode.Is(ib.OpAtomic) || !p.AETH.Syndrome.IsACK() {
		r.retry.badResp = true
		return DropBadResponse
	}
	r.credit.update(&p.AETH)
	binary.NativeEndian.PutUint64(q.word[:], p.AtomicAck.Original)
	f := q.cfg.Memory.Scatter(q.cfg.PD, r.queue.list(r.head, w), 0, q.word[:])
	if f == ib.FaultNotPresent {
		return q.dropResult(w, 0, len(q.word))
	}
	if f != ib.FaultNone {
		q.failHead(ib.StatusLocProtErr, ib.VendorFault|uint32(f))
		return DropNone
	}
	if r.nxt != psn && ahead(r.nxt, w.first) > 0 {
		r.rd--
	}
	r.una, r.posUna = psn.Next(), w.end()
	q.completeHead()
	return DropNone
}

func (q *QP) unlessFailed(d Drop) Drop {
	if q.state == ib.StateErr {
		return DropNone
	}
	return d
}
