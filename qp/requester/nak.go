package requester

import (
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/rocev2"
)

// nak takes a negative acknowledgement (IBTA 9.7.5.2.1), whose PSN is in
// flight. It acknowledges the requests before that PSN.
func (x *response) nak() conn.Drop {
	s, rec, c := x.s, x.rec, x.c
	psn, code := x.p.BTH.PSN, x.p.AETH.Syndrome
	if !code.IsNAK() && !code.IsRNR() {
		return x.misfit()
	}
	x.countNAK()
	waits := code == rocev2.NAKSequence || code.IsRNR()
	if rec.rnr.waiting && psn == s.una && waits {
		return conn.DropStale // from the packets after the one that met no receive
	}
	from, pos := s.una, s.posUna
	reached := s.acknowledgeBefore(psn)
	rec.progress(x.now, from, pos)
	switch {
	case c.Failed():
	case !reached && !waits && s.inHead(psn): // of a READ, overtaking its responses
		x.refused()
	case !reached && code == rocev2.NAKSequence && rec.nakAhead(x.now, psn):
		return conn.DropStale
	case !reached:
		// A READ or an atomic before it has no response: an implied NAK
		// (IBTA 9.7.6.1). A fatal NAK is lost by this, but its request
		// is sent again as well.
		rec.restart(x.now, false)
		return conn.DropGap
	case code == rocev2.NAKSequence:
		rec.sequenceNAK(x.now)
	case code.IsRNR():
		rec.waitRNR(x.now, code)
	default:
		x.refused()
	}
	return conn.DropNone
}

// refused fails the oldest request, which the peer has refused for good (IBTA
// 11.6.2).
func (x *response) refused() {
	s := x.s
	code, status := x.p.AETH.Syndrome, ib.StatusRemOpErr
	switch code {
	case rocev2.NAKInvalidRequest:
		status = ib.StatusRemInvReqErr
	case rocev2.NAKRemoteAccess:
		status = ib.StatusRemAccessErr
	case rocev2.NAKInvalidRD:
		status = ib.StatusRemInvRDReqErr
	}
	s.failHead(status, ib.VendorNAK|uint32(code))
}

// countNAK counts a NAK under its code.
func (x *response) countNAK() {
	c := x.c
	st := c.Stats.Rare()
	switch code := x.p.AETH.Syndrome; {
	case code.IsRNR():
		st.RNRReceived++
	case code == rocev2.NAKSequence:
		st.NAKSeqReceived++
	case code == rocev2.NAKInvalidRequest:
		st.NAKInvalidReceived++
	case code == rocev2.NAKRemoteAccess:
		st.NAKAccessReceived++
	case code == rocev2.NAKRemoteOperational:
		st.NAKOpReceived++
	default:
		st.NAKOtherReceived++
	}
}
