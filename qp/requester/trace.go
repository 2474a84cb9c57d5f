package requester

import (
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/cc"
	"github.com/gosoftroce/rocev2/qp/trace"
)

// lossNames are the reasons of a trace for losses.
var lossNames = [...]trace.Why{
	cc.Repaired: trace.Gap, cc.RepairedRow: trace.Row, cc.Selective: trace.Selective,
	cc.GoBack: trace.GoBack, cc.Timeout: trace.Silence,
}

// event says that n packets were sent, of which rq is the first, and has what
// all but their PSNs have in common.
func (rq *request) event(n int, why trace.Why, inFlight uint64) trace.Event {
	e := trace.Event{Kind: trace.Sent, Why: why, PSN: rq.psn, Packets: n, Flow: trace.Flow{InFlight: inFlight}}
	if rq.w.Kind&ib.OpCarries != 0 {
		e.Bytes = int(rq.n) * n
	}
	return e
}
