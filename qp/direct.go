package qp

import (
	"net/netip"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/rocev2"
)

// Place returns where q has the payloads of packets with opcode op go, from the
// one with PSN psn on: memory that the message under way writes in any case.
// All are packets in the middle of that message, of the path MTU, from src.
// Before psn, ahead packets have been received that were not given to
// HandlePacket yet. It returns no memory if it does not know, and else pins the
// view.
//
// HandlePacket may then be given a packet whose payload lies there. Nothing is
// copied then.
//
// That is a WRITE or the answer to a READ, whose ranges are known. Only the
// last packet of a SEND says how long it is: payloads of the next message could
// come to lie in its receive, after its end.
func Place(q *QP, src netip.Addr, op rocev2.Opcode, psn rocev2.PSN, mtu, ahead int) (memreg.View, []byte) {
	if q.typ != ib.RC || src != q.peer || mtu != q.conn.MTU {
		return memreg.View{}, nil
	}
	var v memreg.View
	switch state := q.conn.State; {
	case state != ib.StateRTR && state != ib.StateRTS && state != ib.StateSQD:
	case op == rocev2.RCReadResponseMiddle && state != ib.StateRTR:
		v = q.req.Middle(psn, ahead)
	case op == rocev2.RCWriteMiddle:
		v = q.resp.Place(op, psn, ahead)
	}
	b := v.Target(0, v.Len())
	if b == nil {
		v.Release()
		v = memreg.View{}
	}
	return v, b
}

// Domain returns the protection domain of q: nil for an XRC target, which
// reaches memory of several.
func Domain(q *QP) *memreg.PD {
	if q.typ == ib.XRCTarget {
		return nil
	}
	return q.conn.PD
}
