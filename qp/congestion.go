package qp

import (
	"net/netip"
	"time"

	"github.com/gosoftroce/rocev2/clock"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
)

// notice is the receiving side of congestion notification (IBTA A17.9): it tells the peer that its packets meet a queue.
type notice struct {
	due  bool       // a CNP is to be sent
	next clock.Time // and no other before
}

// cnpInterval is the least time between two notifications to one peer queue pair, as adapters have it.
const cnpInterval = 50 * time.Microsecond

// HandleMarked is HandlePacket for a packet that the network has marked with Congestion Experienced (RFC 3168). If the packet
// carries data of this connection, the peer is sent a notification (CNP) with the next PollTransmit, before everything else,
// at most one in 50 µs. The data of a READ is on its way because this side asked for it, so for that the own send window,
// which bounds what is asked for, gives way too.
func (q *QP) HandleMarked(now clock.Time, src netip.Addr, p *rocev2.Packet) Drop {
	d := q.HandlePacket(now, src, p)
	switch {
	case d >= DropState && d <= DropQPN, q.state == ib.StateErr:
		return d // not of this connection
	case len(p.Payload) == 0:
		return d // there would be no fewer of them
	}
	q.stats.ECNMarked++
	if info, _ := p.BTH.Opcode.Info(); info.Role == rocev2.RoleResponse {
		q.easeWindow()
	}
	if now >= q.notice.next {
		q.notice = notice{due: true, next: now.Add(cnpInterval)}
	}
	return d
}

// pollNotice writes the CNP: a BTH with BECN and 16 reserved bytes. PSN and AckReq are 0, for it belongs to no message.
func (q *QP) pollNotice(buf []byte) int {
	q.notice.due = false
	q.stats.CNPsSent++
	p := rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.CNP, PKey: rocev2.DefaultPKey, BECN: true, DestQPN: q.attr.DestQPN}}
	return len(p.AppendHeaders(buf[:0]))
}

// handleNotice takes a CNP.
func (q *QP) handleNotice() Drop {
	if q.state != ib.StateRTS && q.state != ib.StateSQD {
		return DropState
	}
	q.stats.CNPsReceived++
	q.easeWindow()
	return DropNone
}

// easeWindow makes the window smaller for a queue on the path of what is in flight.
func (q *QP) easeWindow() {
	r := &q.req
	if r.window.congested(q.packet(), r.posUna, r.posNxt) {
		q.stats.WindowCuts++
	}
}
