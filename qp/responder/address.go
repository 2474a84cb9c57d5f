package responder

import (
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/rocev2"
)

// Linux (6.12) sends a FLUSH or an ATOMIC WRITE again with address 0. One that
// came before, and was dropped because of a gap or put off, has told the
// address, so that is remembered. Of one that was lost there is none.

// addresses are those of the last few that were dropped. It takes memory with
// the first; the zero value has none.
type addresses struct{ *lastAddresses }

type lastAddresses struct {
	of   [8]droppedAddress
	next uint8
}

type droppedAddress struct {
	psn    rocev2.PSN
	opcode rocev2.Opcode
	reth   rocev2.RETH
}

// remember keeps the address of a request that was dropped and is sent again.
func (a *addresses) remember(p *rocev2.Packet, d conn.Drop) {
	switch d {
	case conn.DropOutOfOrder, conn.DropRdAtomic, conn.DropNotPresent, conn.DropBusy:
	default:
		return
	}
	if p.RETH.VA == 0 {
		return
	}
	if a.lastAddresses == nil {
		a.lastAddresses = new(lastAddresses)
	}
	a.of[a.next%uint8(len(a.of))] = droppedAddress{psn: p.BTH.PSN, opcode: p.BTH.Opcode, reth: p.RETH}
	a.next++
}

// recall gives a request with address 0 the one that it had before, if it is
// the same otherwise, and expected now.
func (a *addresses) recall(p *rocev2.Packet, expected rocev2.PSN) {
	if a.lastAddresses == nil || p.BTH.PSN != expected {
		return
	}
	for _, d := range a.of {
		if d.psn == p.BTH.PSN && d.opcode == p.BTH.Opcode && d.reth.RKey == p.RETH.RKey && d.reth.Length == p.RETH.Length && d.reth.VA != 0 {
			p.RETH.VA = d.reth.VA
		}
	}
}

// forget forgets them.
func (a *addresses) forget() { a.lastAddresses = nil }
