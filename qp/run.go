package qp

import (
	"net/netip"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// Middle returns where the payloads of a run of packets go that have arrived: n
// packets in the middle of the message under way, of size bytes of payload
// each, from src, whose headers differ from h in the PSN alone, one more with
// each. It returns nothing if they are not that, or not all alike to q, and
// else pins the view. That may be too short for all, or longer.
//
// HandleRun may then be given as many packets of them as have been copied
// there.
func Middle(q *QP, src netip.Addr, h *rocev2.BTH, size, n int) memreg.View {
	if q.typ != ib.RC || src != q.peer || size != q.conn.MTU || h.DestQPN != q.conn.QPN || h.AckReq ||
		h.PKey&0x7fff != rocev2.DefaultPKey&0x7fff {
		return memreg.View{}
	}
	switch state := q.conn.State; {
	case state != ib.StateRTR && state != ib.StateRTS && state != ib.StateSQD:
	case h.Opcode == rocev2.RCReadResponseMiddle && state != ib.StateRTR:
		return q.req.Middle(h.PSN, 0)
	case h.Opcode == rocev2.RCWriteMiddle, h.Opcode == rocev2.RCSendMiddle:
		return q.resp.Middle(h.Opcode, h.PSN, n)
	}
	return memreg.View{}
}

// HandleRun takes a run of n packets whose payloads lie where Middle has said.
// What it does is what HandlePacket does with one packet after the other. It
// returns how many there were until the connection has failed.
func HandleRun(q *QP, now clock.Time, op rocev2.Opcode, n int) int {
	q.req.Heard(now)
	if q.notices.flags&noticeHeld != 0 {
		q.unhold(now)
	}
	if op == rocev2.RCReadResponseMiddle {
		n = q.req.HandleRun(now, n)
	} else {
		q.resp.HandleRun(n)
	}
	q.conn.Stats.Run(n, q.conn.MTU)
	if q.conn.Failed() {
		q.flush()
	}
	return n
}
