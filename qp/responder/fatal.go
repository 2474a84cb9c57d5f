package responder

import (
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/rocev2"
)

// fatalNAK is why the connection ended (IBTA 9.7.5.2). A peer that asks again,
// for the request that was refused or for one that has no answer because of it,
// gets the NAK again: otherwise it would learn nothing but a timeout.
type fatalNAK struct {
	first    rocev2.PSN // of the first request without an answer
	refused  rocev2.PSN // of the request that was refused
	last     rocev2.PSN // that was told of: what comes after it is of the same attempt
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

// repeatFatal takes a request in ERR: a peer that has not got the NAK asks
// again.
func (a *answers) repeatFatal(p *rocev2.Packet) conn.Drop {
	f, psn := a.fatal, p.BTH.PSN
	if f == nil || f.left == 0 || psn.After(a.epsn) || a.queue.full() {
		return conn.DropState
	}
	if psn.Ahead(f.first) > a.epsn.Ahead(f.first) {
		// Before that: only a READ or an atomic whose answer was lost
		// keeps the peer from asking for the others.
		e, index := a.res.find(psn)
		switch {
		case e == nil || e.opcode != p.BTH.Opcode:
			return conn.DropState
		case e.kind != resourceRead:
			a.queue.push(response{kind: e.replay(), res: index, psn: psn, msn: a.msn})
		default:
			a.queue.nak(rocev2.NAKRemoteOperational, psn, a.msn)
		}
		f.left--
		return conn.DropDuplicate
	}
	if psn.Ahead(f.first) > f.last.Ahead(f.first) {
		return conn.DropState
	}
	if a.queue.nak(f.code(psn), psn, a.msn) {
		f.last = psn
		f.left--
	}
	return conn.DropDuplicate
}

// end ends the connection because of the request that begins at refused. No
// READ is answered any more, and nothing after one. The peer is told in any
// case, or if it waits for the answer to a READ: with the NAK for the first
// request without an answer.
func (a *answers) end(refused rocev2.PSN, s rocev2.Syndrome, always bool) {
	f := &fatalNAK{first: a.epsn, refused: refused, last: a.epsn, syndrome: s, left: fatalRepeats}
	a.fatal = f
	e, cut := a.queue.dropReads()
	if cut {
		f.first, f.last = a.of(&e).first, e.psn
	}
	if cut || always {
		a.queue.nak(f.code(f.last), f.last, a.msn)
	}
}
