package responder

import (
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/rocev2"
)

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
