package requester

import (
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/queue"
)

// The first packet of a WRITE is longer than the others by its RETH. A run of
// segmentation offload has packets of one length, so a WRITE that is sent whole
// ends two runs, however short it is. What a run costs does not depend on its
// length, so WRITEs of a few packets were slower than those of one.
//
// Between native peers such a WRITE is split: it goes as WRITE ONLY messages of
// one packet each, all of one length, so that those of many WRITEs fill a run.
// To the program it is one request all the same.

// splitBytes bounds what is split: two runs of 64 KiB. In a longer WRITE one
// run more hardly counts, and each RETH takes 16 bytes of the wire.
const splitBytes = 128 << 10

// accepted is the memory of the peer in which it has taken a WRITE that was
// sent whole. The peer checks the whole range of a message before it writes
// anything (IBTA 9.7.4.1.5), and of a split WRITE it sees a part at a time. So
// only inside of this memory a WRITE is split: none that is refused for its
// range leaves a part of its data there.
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

// wrote takes note of a WRITE of several packets that has completed.
func (r *work) wrote(w *queue.Send) {
	if w.Opcode == ib.OpWrite && r.c.Pool != nil {
		r.accepted.add(w)
	}
}
