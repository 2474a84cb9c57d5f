package responder

import (
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/rocev2"
)

// Linux (6.12) sends a FLUSH or an ATOMIC WRITE again with address 0. One that
// came before, and was dropped because of a gap or put off, has told the
// address, so that is remembered. Of one that was lost nobody knows.

// addresses are those of the last few that were dropped.
type addresses struct {
	of   [8]droppedAddress
	next uint8
}

type droppedAddress struct {
	psn    rocev2.PSN
	opcode rocev2.Opcode
	reth   rocev2.RETH
}

// rememberAddress keeps the address of a request that was dropped and is sent
// again.
func (r *Responder) rememberAddress(p *rocev2.Packet, d conn.Drop) {
	switch d {
	case conn.DropOutOfOrder, conn.DropRdAtomic, conn.DropNotPresent, conn.DropBusy:
	default:
		return
	}
	if p.RETH.VA == 0 {
		return
	}
	if r.addresses == nil {
		r.addresses = &addresses{}
	}
	a := r.addresses
	a.of[a.next%uint8(len(a.of))] = droppedAddress{psn: p.BTH.PSN, opcode: p.BTH.Opcode, reth: p.RETH}
	a.next++
}

// recallAddress gives a request with address 0 the one that it had before, if
// it is the same otherwise, and expected now.
func (r *Responder) recallAddress(p *rocev2.Packet) {
	if r.addresses == nil || p.BTH.PSN != r.epsn {
		return
	}
	for _, a := range r.addresses.of {
		if a.psn == p.BTH.PSN && a.opcode == p.BTH.Opcode && a.reth.RKey == p.RETH.RKey && a.reth.Length == p.RETH.Length && a.reth.VA != 0 {
			p.RETH.VA = a.reth.VA
		}
	}
}
