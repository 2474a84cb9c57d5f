package responder

import (
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/rocev2"
)

// fatalNAK is why the connection ended (IBTA 9.7.5.2). A peer that asks again,
// for the request that was refused or for one that has no answer because of it,
// gets the NAK again: otherwise it would learn nothing but a timeout.
type fatalNAK struct {
	first    rocev2.PSN // of the first request without an answer
	refused  rocev2.PSN // of the request that was refused
	last     rocev2.PSN // that was told of: what comes behind it is of the same attempt
	syndrome rocev2.Syndrome
	left     uint8 // repetitions
}

const fatalRepeats = 8

// code returns the NAK that a request gets: one before the refused one was
// right, but there is no answer to it any more.
func (f *fatalNAK) code(psn rocev2.PSN) rocev2.Syndrome {
	if psn.Ahead(f.first) < f.refused.Ahead(f.first) {
		return rocev2.NAKRemoteOperational
	}
	return f.syndrome
}

// RepeatFatal takes a request in ERR: a peer that has not got the NAK asks
// again.
func (r *answerer) RepeatFatal(p *rocev2.Packet) conn.Drop {
	f, psn := &r.fatal, p.BTH.PSN
	if f.left == 0 || psn.After(r.epsn) || r.out.full() {
		return conn.DropState
	}
	if psn.Ahead(f.first) > r.epsn.Ahead(f.first) {
		// Before that: only a READ or an atomic whose answer was lost
		// keeps the peer from asking for the others.
		e, index := r.res.find(psn)
		switch {
		case e == nil || e.opcode != p.BTH.Opcode:
			return conn.DropState
		case e.kind != resourceRead:
			r.out.push(response{kind: e.answer(), res: index, psn: psn, msn: r.msn})
		default:
			r.out.nak(rocev2.NAKRemoteOperational, psn, r.msn)
		}
		f.left--
		return conn.DropDuplicate
	}
	if psn.Ahead(f.first) > f.last.Ahead(f.first) {
		return conn.DropState
	}
	if r.out.nak(f.code(psn), psn, r.msn) {
		f.last = psn
		f.left--
	}
	return conn.DropDuplicate
}

// refuse ends the connection because of the expected packet: NAK, completion of
// the receive in hand, event, ERR.
func (r *answerer) refuse(s rocev2.Syndrome, status ib.Status, f ib.Fault) conn.Drop {
	r.refuseFrom(r.epsn, s, status, f)
	return conn.DropInvalid
}

// endAnswers prepares the responder for ERR: no READ is answered any more, and
// nothing behind one. It reports whether there was one, and that the peer must
// be told.
func (r *answerer) endAnswers(refused rocev2.PSN, s rocev2.Syndrome) bool {
	r.fatal = fatalNAK{first: r.epsn, refused: refused, last: r.epsn, syndrome: s, left: fatalRepeats}
	e, cut := r.out.dropReads()
	if cut {
		r.fatal.first, r.fatal.last = r.res.at(e.res).first, e.psn
	}
	return cut
}

// tellFatal sends the NAK for the first request without an answer.
func (r *answerer) tellFatal() { r.out.nak(r.fatal.code(r.fatal.last), r.fatal.last, r.msn) }

// refuseFrom ends the connection because of the request that begins at psn.
func (r *answerer) refuseFrom(psn rocev2.PSN, s rocev2.Syndrome, status ib.Status, f ib.Fault) {
	r.endAnswers(psn, s)
	r.tellFatal()
	switch s {
	case rocev2.NAKRemoteAccess:
		r.c.Events.Raise(ib.EventQPAccessError)
	case rocev2.NAKInvalidRequest:
		r.c.Events.Raise(ib.EventQPRequestError)
	default:
		if !r.receives.Held {
			r.c.Events.Raise(ib.EventQPFatal)
		}
	}
	if r.receives.Held {
		r.receives.Fail(status, conn.VendorErr(f))
	}
	r.c.Fail(conn.EndRefused)
}

// refuseFault refuses a request for its remote key or memory.
func (r *answerer) refuseFault(f ib.Fault) conn.Drop {
	s, status := faultNAK(f)
	return r.refuse(s, status, f)
}

// faultNAK returns the NAK for a fault, and the status of the receive in hand.
func faultNAK(f ib.Fault) (rocev2.Syndrome, ib.Status) {
	switch f {
	case ib.FaultMisaligned:
		return rocev2.NAKInvalidRequest, ib.StatusRemInvReqErr
	case ib.FaultMemory:
		return rocev2.NAKRemoteOperational, ib.StatusRemOpErr
	}
	return rocev2.NAKRemoteAccess, ib.StatusRemAccessErr
}
