package qp

import (
	"net/netip"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// Place returns where the payloads of packets with opcode op go, from the
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
func (h *Halves) Place(src netip.Addr, op rocev2.Opcode, psn rocev2.PSN, mtu, ahead int) (memreg.View, []byte) {
	if !h.connects(src, mtu) {
		return memreg.View{}, nil
	}
	var v memreg.View
	switch state := h.c.State; {
	case state != ib.StateRTR && state != ib.StateRTS && state != ib.StateSQD:
	case op == rocev2.RCReadResponseMiddle && state != ib.StateRTR:
		v = h.req.Middle(psn, ahead)
	case op == rocev2.RCWriteMiddle:
		v = h.resp.Place(op, psn, ahead)
	}
	b := v.Target(0, v.Len())
	if b == nil {
		v.Release()
		v = memreg.View{}
	}
	return v, b
}

// Middle returns where the payloads of a run of packets go that have arrived: n
// packets in the middle of the message under way, of size bytes of payload
// each, from src, whose headers differ from b in the PSN alone, one more with
// each. It returns nothing if they are not that, or not all alike here, and
// else pins the view. That may be too short for all, or longer.
//
// HandleRun may then be given as many packets of them as have been copied
// there.
func (h *Halves) Middle(src netip.Addr, b *rocev2.BTH, size, n int) memreg.View {
	if !h.connects(src, size) || b.DestQPN != h.c.QPN || b.AckReq ||
		b.PKey&0x7fff != rocev2.DefaultPKey&0x7fff {
		return memreg.View{}
	}
	switch state := h.c.State; {
	case state != ib.StateRTR && state != ib.StateRTS && state != ib.StateSQD:
	case b.Opcode == rocev2.RCReadResponseMiddle && state != ib.StateRTR:
		return h.req.Middle(b.PSN, 0)
	case b.Opcode == rocev2.RCWriteMiddle, b.Opcode == rocev2.RCSendMiddle:
		return h.resp.Middle(b.Opcode, b.PSN, n)
	}
	return memreg.View{}
}

// connects reports whether this is RC, with that peer and path MTU.
func (h *Halves) connects(src netip.Addr, mtu int) bool {
	return h.typ == ib.RC && src == h.c.Peer && mtu == h.c.MTU
}

// run takes a run, see QP.HandleRun.
func (h *Halves) run(now clock.Time, op rocev2.Opcode, n int) int {
	if op == rocev2.RCReadResponseMiddle {
		n = h.req.HandleRun(now, n)
	} else {
		h.resp.HandleRun(n)
	}
	h.c.Stats.Run(n, h.c.MTU)
	return n
}
