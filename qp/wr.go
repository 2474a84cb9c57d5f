package qp

import "github.com/gosoftroce/rocev2/ib"

// RecvWQE is a receive that a RecvSource hands over.
type RecvWQE struct {
	ID uint64
	// SGList has room for Config.MaxRecvSGE entries. A source appends to SGList[:0].
	SGList []ib.SGE
}

// RecvSource is where the responder gets receives from when it is not the queue pair's own queue: a shared receive queue
// or a ring of somebody else's. What it hands over belongs to the queue pair and will be completed.
type RecvSource interface {
	// NextRecv fills w with the next receive. It returns false if there is none, which makes the peer wait and retry.
	NextRecv(w *RecvWQE) bool
}

// CompletionSink takes the completions of a send or a receive queue. It must not call back into the queue pair.
type CompletionSink interface {
	// Complete copies c, which is only valid during the call. False means overflow: the completion is lost and the
	// queue pair goes to ERR.
	Complete(c *ib.WC) bool
}
