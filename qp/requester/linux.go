package requester

import (
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/queue"
)

// spoilsReads reports whether the peer, after this request, might refuse to
// repeat the READs before it. Linux (rxe, 6.12) answers one that is repeated
// from its first PSN with remote access error, if the last request with a RETH
// was empty. So toward a peer that is not native such a request waits, as with
// a fence.
func (r *sender) spoilsReads(w *queue.Send) bool {
	return r.c.Pool == nil && w.Length == 0 && w.Is(ib.OpRemote) && (w.Opcode != ib.OpFlush || w.Arg == 0)
}
