package qp

import (
	"github.com/gosoftroce/rocev2/clock"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
)

// handleNAK takes a negative acknowledgement, whose PSN is in flight.
func (q *QP) handleNAK(now clock.Time, p *rocev2.Packet) Drop {
	r := &q.req
	s, psn := p.AETH.Syndrome, p.BTH.PSN
	if !s.IsNAK() && !s.IsRNR() {
		r.retry.badResp = true
		return DropBadResponse
	}
	if r.rnr.waiting && psn == r.una && (s == rocev2.NAKSequence || s.IsRNR()) {
		// Echoes of the packets behind the one that met no receive.
		q.countNAK(s)
		return DropStale
	}
	q.countNAK(s)
	from, pos := r.una, r.posUna
	reached := q.acknowledgeBefore(psn)
	q.settle(now, from, pos)
	switch {
	case q.state == ib.StateErr:
		return DropNone
	case !reached && !s.IsRNR() && s != rocev2.NAKSequence && q.inHead(psn):
		q.failHead(nakStatus(s), ib.VendorNAK|uint32(s)) // of a READ, overtaking its responses
	case !reached:
		// A READ or an atomic before it has not been answered: that comes first. A fatal NAK is lost by this, but its
		// request is sent again as well.
		q.restart(false)
		return DropGap
	case s == rocev2.NAKSequence:
		q.restart(true)
	case s.IsRNR():
		q.waitRNR(now, s)
	default:
		q.failHead(nakStatus(s), ib.VendorNAK|uint32(s))
	}
	return DropNone
}

// inHead reports whether a PSN belongs to the oldest request.
func (q *QP) inHead(psn rocev2.PSN) bool {
	w := q.req.queue.at(q.req.head)
	return ahead(psn, w.first) < w.psns
}

func (q *QP) countNAK(s rocev2.Syndrome) {
	st := &q.stats
	switch {
	case s.IsRNR():
		st.RNRReceived++
	case s == rocev2.NAKSequence:
		st.NAKSeqReceived++
	case s == rocev2.NAKInvalidRequest:
		st.NAKInvalidReceived++
	case s == rocev2.NAKRemoteAccess:
		st.NAKAccessReceived++
	case s == rocev2.NAKRemoteOperational:
		st.NAKOpReceived++
	default:
		st.NAKOtherReceived++
	}
}

// nakStatus is the completion status of a request that was refused for good.
func nakStatus(s rocev2.Syndrome) ib.Status {
	switch s {
	case rocev2.NAKInvalidRequest:
		return ib.StatusRemInvReqErr
	case rocev2.NAKRemoteAccess:
		return ib.StatusRemAccessErr
	case rocev2.NAKInvalidRD:
		return ib.StatusRemInvRDReqErr
	}
	return ib.StatusRemOpErr
}

// waitRNR waits as long as the peer asks, then goes on with the request that met no receive. The peer is alive, so the
// count for lost packets is reloaded.
func (q *QP) waitRNR(now clock.Time, s rocev2.Syndrome) {
	r := &q.req
	if !r.rnr.nak(now, rocev2.RNRDelay(s.Code())) {
		q.failHead(ib.StatusRNRRetryExcErr, ib.VendorNAK|uint32(s))
		return
	}
	q.stats.RNRWaits++
	r.retry.reset()
	r.rewind()
}

// restart goes back to the oldest unacknowledged PSN without a timeout, until there is progress or a timeout only once:
// more signs of the same loss follow it. Those that may also tell that the packet was sent again and lost again are taken a
// few times, at no cost, so that echoes cannot use up the retries.
func (q *QP) restart(again bool) {
	r := &q.req
	n := r.retry.restarts
	switch {
	case q.state == ib.StateErr || r.rnr.waiting || r.paging:
		return
	case n == 0:
		if !r.retry.spend() {
			q.failHead(r.retry.exhausted(), 0)
			return
		}
	case !again || n >= maxRestarts || r.nxt == r.una || r.repair.left > 0:
		return
	}
	r.retry.restarts++
	q.stats.Restarts++
	if q.repair(repairRun) {
		r.rtt.lossy()
		return
	}
	if !r.window.recovering(r.posUna) {
		q.cutWindow(r.window.flown(r.posUna))
	}
	r.rewind()
}

// handleGap takes a response behind a READ or an atomic whose response was lost. While the requests are sent again the rest
// of the first answers still arrives, in PSN order; when the response that showed the gap, or an earlier one, comes once
// more, the repeated answers have begun and their first is lost as well. Acknowledgements tell nothing here, for each
// duplicate may cause one; nor does anything after a response that does not fit, which would not when repeated.
func (q *QP) handleGap(psn rocev2.PSN, info *rocev2.OpcodeInfo) {
	r := &q.req.retry
	if info.Operation == rocev2.OpAcknowledge {
		q.restart(false)
		return
	}
	again := r.gapped && !psn.After(r.gap) && !r.badResp
	if again || !r.gapped {
		r.gapped, r.gap = true, psn
	}
	q.restart(again)
}

// probe goes back before the local ACK timeout, without cost, when the peer has been silent for much longer than it
// usually takes: the last packets were lost, and nothing follows them that would show it.
func (q *QP) probe(now clock.Time) {
	r := &q.req
	q.ask(now)
	r.rtt.backOff()
	q.stats.Probes++
	if r.rtt.attempts == 1 && q.repair(probeRun) {
		r.rtt.arm(now)
		return
	}
	q.goBack()
	r.retry.kept = true
}

// ask takes note, before anything is sent again because of silence, of what there will be to take back if that is spurious.
func (q *QP) ask(now clock.Time) {
	r := &q.req
	if !r.rtt.asked {
		r.window.remember()
		r.resent = q.stats.Retransmits
	}
	r.rtt.ask(now)
}

// takeBack takes back what was done because of silence: the peer was only late.
func (q *QP) takeBack() {
	q.req.window.restore()
	q.stats.Spurious += q.stats.Retransmits - q.req.resent
}

// answeredTwice takes a response to what has completed. If one packet was sent again because of silence, and now both have
// their answer, then nothing had been lost.
func (q *QP) answeredTwice(now clock.Time, psn rocev2.PSN) {
	r := &q.req
	if psn.Next() == r.una && q.stats.Retransmits == r.resent+1 {
		r.rtt.echo(now)
		q.stats.Spurious++
	}
}

// goBack goes back because of silence, which says more of the path than a packet that is missing: the window is cut even
// if it was for the same loss.
func (q *QP) goBack() {
	q.cutWindow(q.req.window.size)
	q.req.rewind()
}

// cutWindow halves the window, from size.
func (q *QP) cutWindow(size int) {
	q.req.window.cut(size, q.packet(), q.req.posNxt)
	q.stats.WindowCuts++
}
