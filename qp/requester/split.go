package requester

import (
	"time"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/queue"
)

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

// add takes a WRITE that the peer has executed. What touches the memory before
// it extends that.
func (a *accepted) add(w *queue.Send) {
	begin, end := w.Remote, w.Remote+uint64(w.Length)
	if a.key != w.RKey || begin > a.end || end < a.begin {
		*a = accepted{begin: begin, end: end, key: w.RKey}
		return
	}
	a.begin, a.end = min(a.begin, begin), max(a.end, end)
}

// has reports whether a WRITE lies inside.
func (a *accepted) has(w *queue.Send) bool {
	return a.key == w.RKey && w.Remote >= a.begin && w.Remote <= a.end && uint64(w.Length) <= a.end-w.Remote
}

// split decides whether a request that is about to start is split, of which
// PSNs is set.
func (r *work) split(w *queue.Send) {
	if w.PSNs > 1 && w.Opcode == ib.OpWrite && r.c.Pool != nil && w.Length <= splitBytes && r.accepted.has(w) {
		w.Flags |= queue.Split
	}
}

// wrote takes note of a WRITE of several packets that has completed, or of a
// SEND that has ended a key of the peer.
func (r *work) wrote(w *queue.Send) {
	switch {
	case w.Opcode == ib.OpSendInv && w.Arg == r.accepted.key:
		r.accepted = accepted{}
	case w.Opcode == ib.OpWrite && r.c.Pool != nil:
		r.accepted.add(w)
	}
}

// pair is how many packets each READ request of a split READ asks for.
const pair = 2

// leastPair is how many bytes of a pair are worth a request of their own.
const leastPair = 4 << 10

// readRate is at what rate READs must be able to go on however long the way is,
// in bytes a nanosecond: 24 Gb/s.
const readRate = 3

// splitRead is split for a READ that would be one request otherwise. No more
// pairs are in flight than MaxRdAtomic. That must be enough: as much as the
// longest request asks for, and what passes in a round trip.
func (r *sender) splitRead(w *queue.Send) {
	if w.PSNs <= pair || w.PSNs > r.chunk || !w.Is(ib.OpReads) || r.c.Pool == nil || !r.rtt.known {
		return
	}
	bytes := pair * r.c.MTU
	inFlight := int(r.c.Attr.MaxRdAtomic) * bytes
	if bytes >= leastPair && inFlight>>r.c.Shift >= int(r.chunk) && time.Duration(inFlight/readRate) >= r.rtt.minRTT.duration() {
		w.Flags |= queue.Split
	}
}

// longer is how many times as long as others the requests of a long READ are.
const longer = 4

// mostLonger is how many longer requests a READ goes in, at the most. They
// remain that long when something is lost meanwhile, so READs of more go as
// they always did.
const mostLonger = 16

// nearby is a round trip to a peer from which long answers are asked for. To
// others they gain nothing. It may be one in which answers waited in queues.
const nearby = time.Millisecond

// lengthenRead has a READ go in fewer requests, so that fewer runs end with the
// first and the last packets of answers. Two of the requests must fit into the
// window, which they do as long as it is whole: what is lost makes it smaller.
// And they must fit into what the other queue pairs to that peer leave of its
// socket buffer.
func (r *sender) lengthenRead(w *queue.Send) {
	if !r.long || w.PSNs <= r.chunk || !w.Is(ib.OpReads) || r.c.Pool == nil || r.c.CC.Limit.Burst > 0 ||
		!r.rtt.known || r.rtt.minRTT.duration() > nearby {
		return
	}
	psns := longer * r.chunk
	free := uint64(max(r.allowance, 0)) + r.posNxt - r.posUna
	bytes := uint64(psns) * uint64(r.packet())
	if w.PSNs <= mostLonger*psns && psns <= r.c.CC.Limit.PSNs/2 && bytes <= min(free, uint64(r.c.CC.Limit.Bytes))/2 {
		w.Flags |= queue.Long
	}
}
