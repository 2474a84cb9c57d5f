package qp

import (
	"net/netip"

	"github.com/gosoftroce/rocev2/clock"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
)

// HandlePacket takes a packet for this queue pair that came from src. The packet and its payload are only used during the
// call. What does not belong here is dropped and counted under the reason that is returned.
func (q *QP) HandlePacket(now clock.Time, src netip.Addr, p *rocev2.Packet) Drop {
	d := q.handlePacket(now, src, p)
	q.stats.Drops[d]++
	return d
}

func (q *QP) handlePacket(now clock.Time, src netip.Addr, p *rocev2.Packet) Drop {
	q.stats.RxPackets++
	q.stats.RxBytes += uint64(len(p.Payload))
	if q.state < ib.StateRTR {
		return DropState
	}
	info, known := p.BTH.Opcode.Info()
	if !known || info.Service != q.cfg.Service && info.Service != rocev2.ServiceCNP {
		return DropService
	}
	if p.BTH.DestQPN != q.cfg.QPN {
		return DropQPN
	}
	if src != q.peer && src.Unmap().WithZone("") != q.peer {
		return DropPeer
	}
	q.req.rtt.pauses.heard = now
	if p.BTH.PKey&0x7fff != rocev2.DefaultPKey&0x7fff {
		return DropPKey
	}
	switch {
	case info.Role == rocev2.RoleRequest && q.state != ib.StateErr:
		return q.handleRequest(now, p, info)
	case info.Role == rocev2.RoleRequest:
		return q.repeatFatal(p)
	case info.Role == rocev2.RoleResponse && (q.state == ib.StateRTS || q.state == ib.StateSQD):
		return q.handleResponse(now, p, info)
	case info.Role == rocev2.RoleNotify:
		return q.handleNotice()
	}
	return DropState
}

// HandleTimeout does what is due at now; without anything due it does nothing.
func (q *QP) HandleTimeout(now clock.Time) {
	r := &q.req
	q.expireKept(now)
	if r.rnr.expired(now) {
		return // the next PollTransmit goes on from where rewind has put the cursor
	}
	if r.retry.armed && q.waitsForPayload() {
		r.retry.stop()
		return
	}
	if r.retry.armed && r.rtt.expired(now, r.retry.deadline) {
		if !r.rtt.postpone(now) {
			q.probe(now)
		}
		return
	}
	if r.retry.expired(now) {
		q.stats.Timeouts++
		if !r.retry.spend() {
			q.failHead(r.retry.exhausted(), 0)
			return
		}
		q.ask(now)
		q.goBack()
	}
}

// PollTimeout returns when HandleTimeout wants to be called, and whether at all.
func (q *QP) PollTimeout() (clock.Time, bool) {
	r := &q.req
	at, armed := r.rnr.deadline, r.rnr.waiting
	if !armed {
		at, armed = r.rtt.earlier(r.retry.deadline), r.retry.armed
	}
	if t, ok := q.keptDeadline(); ok && (!armed || t < at) {
		return t, true
	}
	return at, armed
}

// PollTransmit writes the next packet, BTH to pad without the ICRC, to buf, and returns its length: 0 if there is nothing to
// send now. Congestion notifications come before answers, and those before requests. The capacity of buf must be at least
// rocev2.MaxPacketLen.
func (q *QP) PollTransmit(now clock.Time, buf []byte) int {
	if q.notice.due {
		q.stats.TxPackets++
		return q.pollNotice(buf)
	}
	if q.resp.out.head != q.resp.out.tail && !q.AckDelayed() {
		if n := q.pollResponse(buf); n > 0 {
			q.stats.TxPackets++
			return n
		}
	}
	if q.state == ib.StateRTS || q.state == ib.StateSQD {
		n := q.pollRequest(now, buf)
		if n == 0 && q.state == ib.StateErr { // a fault on this side; what was received is acknowledged all the same
			n = q.pollResponse(buf)
		}
		if n > 0 {
			q.stats.TxPackets++
			return n
		}
	}
	return 0
}

// DelayAcks has a lone acknowledgement wait while it is on, for a driver that polls again in a moment: so a request that
// the program posts in answer goes first. All other answers go as ever, and acknowledgements with them.
func (q *QP) DelayAcks(on bool) { q.resp.delay = on }

// Answering reports whether an answer other than a lone acknowledgement, or a congestion notification, waits to be sent.
func (q *QP) Answering() bool {
	r := &q.resp.out
	n := r.tail - r.head
	return q.notice.due || n > 1 || n == 1 && r.at(r.head).kind != responseAck
}

// AckDelayed reports whether an acknowledgement waits because of DelayAcks.
func (q *QP) AckDelayed() bool {
	r := &q.resp
	return r.delay && r.out.tail-r.out.head == 1 && r.out.at(r.out.head).kind == responseAck
}
