package requester

import (
	"time"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/cc"
	"github.com/gosoftroce/rocev2/qp/queue"
	"github.com/gosoftroce/rocev2/qp/trace"
	"github.com/gosoftroce/rocev2/rocev2"
)

// request is a request packet to be (IBTA 9.7.2): PSNs and bytes of the message
// from number rel and byte off on.
type request struct {
	w    *queue.Send
	i    uint32 // of w in the ring
	psn  rocev2.PSN
	rel  uint32
	off  uint32
	psns uint32 // PSNs that it takes: for a READ, one for each packet of the response (IBTA 9.7.3)
	n    uint32 // bytes that it carries or asks for
	cost uint64
	ack  bool      // AckReq
	why  trace.Why // it goes again while sending goes on where it was, if it does
}

// ends reports whether it is the last packet of the message.
func (rq *request) ends() bool { return rq.rel+rq.psns == rq.w.PSNs }

// limit has the request for a READ ask for psns responses only.
func (rq *request) limit(psns uint32, shift uint8) { rq.psns, rq.n = psns, psns<<shift }

// stopAt cuts the request for a READ, which begins at una, off after the first
// response that is here already, which is asked for again so that it shows if
// those before it are lost once more.
func (rq *request) stopAt(kept queue.Reorder, una rocev2.PSN, shift uint8) {
	k := kept.Lowest()
	if rq.w.Kind&ib.OpReads == 0 || k == nil {
		return
	}
	if info, _ := k.BTH.Opcode.Info(); info.Operation != rocev2.OpReadResponse {
		return
	}
	if n := k.BTH.PSN.Ahead(una) + 1; n < rq.psns {
		rq.limit(n, shift)
	}
}

// cut makes rq, which is empty, the request packet from psn on, of the request
// with index i. (It is filled in place, here and elsewhere: to copy what was
// just written in smaller parts stalls the processor.)
func (s *stream) cut(rq *request, i uint32, psn rocev2.PSN) {
	w := s.ring.At(i)
	rq.w, rq.i, rq.psn, rq.rel, rq.psns = w, i, psn, psn.Ahead(w.First), 1
	rq.off = rq.rel << s.c.Shift
	rq.n = w.Length - rq.off
	if w.Kind&ib.OpReads != 0 {
		end := s.chunk.end(w, rq.rel)
		rq.psns = end - rq.rel
		if end < w.PSNs {
			rq.n = rq.psns << s.c.Shift
		}
	} else {
		rq.n = min(rq.n, uint32(s.c.MTU))
	}
	rq.cost = uint64(rq.n) + uint64(rq.psns)*cc.PacketOverhead
}

// chunk is how many packets a READ request asks for.
type chunk uint32

// maxChunk bounds a READ request to 2^22 packets, so that PSN comparisons hold
// whatever the message length.
const maxChunk = 1 << 22

// of returns how many packets each request of w asks for.
func (c chunk) of(w *queue.Send) uint32 {
	switch {
	case w.Flags&queue.Split != 0:
		return min(pair, uint32(c))
	case w.Flags&queue.Long != 0:
		return longer * uint32(c)
	}
	return uint32(c)
}

// end returns the PSN number after the READ request that owns PSN number rel.
func (c chunk) end(w *queue.Send, rel uint32) uint32 {
	n := c.of(w)
	if w.PSNs <= n {
		return w.PSNs
	}
	return min(rel-rel%n+n, w.PSNs)
}

// place reports whether PSN number rel is the first of a READ request, and the
// last.
func (c chunk) place(w *queue.Send, rel uint32) (first, last bool) {
	n, at := c.of(w), rel
	if at >= n { // a division is slow
		at %= n
	}
	return at == 0, at+1 == n || rel+1 == w.PSNs
}

// messages returns how many messages a request is to the peer, which counts
// them in its MSN (IBTA 9.7.7): a READ may be several, see Config.ReadChunk,
// and a WRITE, see turn.shape.
func (c chunk) messages(w *queue.Send) uint32 {
	switch {
	case w.PSNs <= 1:
	case w.Kind&ib.OpReads != 0:
		n := c.of(w)
		return (w.PSNs + n - 1) / n
	case w.Flags&queue.Split != 0:
		return w.PSNs
	}
	return 1
}

// The first packet of a WRITE is longer than the others by its RETH. A run of
// segmentation offload has packets of one length, so a WRITE that is sent whole
// ends two runs, however short it is. What a run costs does not depend on its
// length, so WRITEs of a few packets were slower than those of one.
//
// The answer to a READ has an AETH in its first packet and in its last, to the
// same effect: its packets are of one length only if they are no more than two.
//
// Between native peers such requests are split. A WRITE goes as WRITE ONLY
// messages of one packet each, and a READ as READs of two packets. So all
// packets are of one length, and those of many requests fill a run. To the
// program each is one request all the same.

// splitBytes bounds what is split: two runs of 64 KiB. In a longer WRITE one
// run more hardly counts, and each RETH takes 16 bytes of the wire.
const splitBytes = 128 << 10

// accepted is the memory of the peer in which it has taken a WRITE that was
// sent whole. The peer checks the whole range of a message before it writes
// anything (IBTA 9.7.4.1.5), and of a split WRITE it sees a part at a time. So
// only inside of this memory a WRITE is split: none that is refused for its
// range leaves a part of its data there. The key may get other memory: after a
// SEND of this side that ends it nothing is known any more. A peer that ends it
// alone, and makes it stand for less memory without a word, may find a part of
// a WRITE there, inside of what it then stands for.
type accepted struct {
	begin, end uint64
	key        uint32
}

// completed takes a WRITE of several packets that the peer has executed, where
// it is native, or a SEND that has ended a key of the peer. What touches the
// memory before it extends that.
func (a *accepted) completed(w *queue.Send, native bool) {
	switch {
	case w.Opcode == ib.OpSendInv && w.Arg == a.key:
		*a = accepted{}
	case w.Opcode == ib.OpWrite && native:
		begin, end := w.Remote, w.Remote+uint64(w.Length)
		if a.key != w.RKey || begin > a.end || end < a.begin {
			*a = accepted{begin: begin, end: end, key: w.RKey}
			return
		}
		a.begin, a.end = min(a.begin, begin), max(a.end, end)
	}
}

// has reports whether a WRITE lies inside.
func (a *accepted) has(w *queue.Send) bool {
	return a.key == w.RKey && w.Remote >= a.begin && w.Remote <= a.end && uint64(w.Length) <= a.end-w.Remote
}

// pair is how many packets each READ request of a split READ asks for.
const pair = 2

// leastPair is how many bytes of a pair are worth a request of their own.
const leastPair = 4 << 10

// readRate is at what rate READs must be able to go on however long the way is,
// in bytes a nanosecond: 24 Gb/s.
const readRate = 3

// longer is how many times as long as others the requests of a long READ are.
const longer = 4

// mostLonger is how many longer requests a READ goes in, at most. They remain
// that long when something is lost meanwhile, so READs of more go as they
// always did.
const mostLonger = 16

// nearby is a round trip to a peer from which long answers are asked for. To
// others they gain nothing. It may be one in which answers waited in queues.
const nearby = time.Millisecond

// shape decides how a request of several packets goes, of which nothing was
// sent yet: split, in longer requests, or as it is, 0.
func (t *turn) shape(w *queue.Send, psns uint32) uint8 {
	s, rec, c := t.s, t.rec, t.c
	switch {
	case c.Pool == nil:
	case w.Opcode == ib.OpWrite:
		if w.Length <= splitBytes && s.accepted.has(w) {
			return queue.Split
		}
	case w.Kind&ib.OpReads == 0 || !rec.rtt.known:
	case psns <= uint32(s.chunk):
		// No more pairs are in flight than MaxRdAtomic. That must be
		// enough: as much as the longest request asks for, and what
		// passes in a round trip.
		bytes := pair * c.MTU
		inFlight := int(c.Attr.MaxRdAtomic) * bytes
		if psns > pair && bytes >= leastPair && inFlight>>c.Shift >= int(s.chunk) &&
			time.Duration(inFlight/readRate) >= time.Duration(rec.rtt.minRTT) {
			return queue.Split
		}
	case s.longReads && s.chunk <= maxChunk/(longer*mostLonger) && t.lengthens(psns):
		return queue.Long
	}
	return 0
}

// lengthens reports whether a READ of psns packets goes in fewer requests,
// so that fewer runs end with the first and the last packets of answers. Two of
// the requests must fit into the window, which they do as long as it is whole:
// what is lost makes it smaller. And they must fit into what the other queue
// pairs to that peer leave of its socket buffer.
func (t *turn) lengthens(psns uint32) bool {
	s, rec, c := t.s, t.rec, t.c
	l := &c.CC.Limit
	if l.Burst > 0 || time.Duration(rec.rtt.minRTT) > nearby {
		return false
	}
	long := longer * uint32(s.chunk)
	free := uint64(max(t.left, 0)) + s.posNxt - s.posUna
	bytes := uint64(long) * uint64(fullPacket(c))
	return psns <= mostLonger*long && long <= l.PSNs/2 && bytes <= min(free, uint64(l.Bytes))/2
}
