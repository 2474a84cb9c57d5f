package qp

import (
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// Lost tells q that the packet with a PSN will not arrive, because a switch has
// told the host so (packet trimming): a request of q that its peer lacks, or
// (response) a response to a READ that q waits for. It is sent, or asked for,
// again at once, and counts as a loss for congestion control. What is not in
// flight, or known to be lost already, does nothing; and neither does anything
// towards a peer that keeps nothing after a gap, as that sends a NAK itself.
func Lost(q *QP, now clock.Time, psn rocev2.PSN, response bool) {
	if q.halves.req == nil || !q.halves.sends() {
		return
	}
	q.halves.req.Lost(now, psn, response)
	q.flush()
}
