package requester

import (
	"github.com/gosoftroce/rocev2/clock"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/rocev2"
)

// handleNAK takes a negative acknowledgement (IBTA 9.7.5.2.1), whose PSN is in
// flight. It acknowledges the requests before that PSN.
func (r *Requester) handleNAK(now clock.Time, p *rocev2.Packet) conn.Drop {
	s, psn := p.AETH.Syndrome, p.BTH.PSN
	if !s.IsNAK() && !s.IsRNR() {
		r.retry.badResp = true
		return conn.DropBadResponse
	}
	if r.rnr.waiting && psn == r.una && (s == rocev2.NAKSequence || s.IsRNR()) {
		// From the packets behind the one that met no receive.
		r.countNAK(s)
		return conn.DropStale
	}
	r.countNAK(s)
	from, pos := r.una, r.posUna
	reached := r.acknowledgeBefore(psn)
	r.progress(now, from, pos)
	switch {
	case r.c.Failed():
		return conn.DropNone
	case !reached && !s.IsRNR() && s != rocev2.NAKSequence && r.inHead(psn):
		r.failHead(nakStatus(s), ib.VendorNAK|uint32(s)) // of a READ, overtaking its responses
	case !reached && s == rocev2.NAKSequence && mayBeLate(&r.recovery, now):
		r.sel.asked, r.sel.askedFor = true, psn
		return conn.DropStale
	case !reached:
		// A READ or an atomic before it has no response: an implied NAK
		// (IBTA 9.7.6.1). A fatal NAK is lost by this, but its request
		// is sent again as well.
		r.restart(now, false)
		return conn.DropGap
	case s == rocev2.NAKSequence && r.tells && r.nxt == r.max:
		r.nakHole(now)
	case s == rocev2.NAKSequence && awaitsSelective(&r.recovery, now):
	case s == rocev2.NAKSequence:
		r.restart(now, true)
	case s.IsRNR():
		r.waitRNR(now, s)
	default:
		r.failHead(nakStatus(s), ib.VendorNAK|uint32(s))
	}
	return conn.DropNone
}

// countNAK counts a NAK under its code.
func (r *Requester) countNAK(s rocev2.Syndrome) {
	st := r.c.Stats.Rare()
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

// nakStatus returns the completion status of a request that was refused for
// good (IBTA 11.6.2).
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
