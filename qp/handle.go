package qp

import (
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/cc"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/qp/datagram"
	"github.com/gosoftroce/rocev2/qp/responder"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// HandlePacket takes a packet for this queue pair. The packet and its payload
// are only used during the call. What does not belong here is dropped and
// counted under the reason that is returned.
//
// If the network has marked the packet (Arrival.Marked), and it carries data of
// this connection, the peer is sent a congestion notification (CNP, IBTA A17.9)
// with the next Poll, before everything else, at most one in
// Config.NotifyInterval. The data of a READ is on its way because this side
// asked for it, so for that the own congestion control, which bounds what is
// asked for, gives way too.
func (q *QP) HandlePacket(now clock.Time, a *Arrival) Drop {
	d := q.handle(now, a)
	if q.conn.Failed() {
		q.flush()
	}
	if a.Marked() {
		q.marked(now, a.Packet, d)
	} else if q.notices.flags&noticeHeld != 0 {
		q.unhold(now)
	}
	q.conn.Stats.Result(d)
	return d
}

// handle hands a packet to the half that it is for.
func (q *QP) handle(now clock.Time, a *Arrival) Drop {
	p := a.Packet
	q.conn.Stats.RxPackets++
	q.conn.Stats.RxBytes += uint64(len(p.Payload))
	if q.conn.State < ib.StateRTR {
		return DropState
	}
	info, known := p.BTH.Opcode.Info()
	if !known || info.Service != q.service && info.Service != rocev2.ServiceCNP &&
		(info.Operation != rocev2.OpSelectiveAck || q.conn.Pool == nil || q.req == nil) { // which a native peer may send
		return DropService
	}
	if q.service == rocev2.ServiceUD {
		return q.handleDatagram(a, info)
	}
	if p.BTH.DestQPN != q.conn.QPN {
		return DropQPN
	}
	if a.Src != q.peer && a.Src.Unmap().WithZone("") != q.peer {
		return DropPeer
	}
	if q.req != nil {
		q.req.Heard(now)
	}
	if p.BTH.PKey&0x7fff != rocev2.DefaultPKey&0x7fff {
		return DropPKey
	}
	if q.uc != nil {
		return q.handleUC(a, info)
	}
	sends := q.req != nil && (q.conn.State == ib.StateRTS || q.conn.State == ib.StateSQD)
	switch {
	case info.Role == rocev2.RoleRequest && q.resp == nil: // to an XRC initiator
		return DropService
	case info.Role == rocev2.RoleResponse && q.req == nil: // to an XRC target
		return DropService
	case info.Role == rocev2.RoleRequest:
		return q.resp.HandleRequest(now, a, info)
	case info.Role == rocev2.RoleResponse && sends:
		return q.req.HandleResponse(now, p, info)
	case info.Role == rocev2.RoleNotify && sends:
		q.conn.Stats.Rare().CNPsReceived++
		q.req.Marked(now, cc.Notified)
		return DropNone
	case info.Role == rocev2.RoleNotify && q.resp != nil && !q.conn.Failed(): // it sends nothing but the answers to READs
		q.conn.Stats.Rare().CNPsReceived++
		q.conn.Marked(now, &cc.Flight{}, cc.Notified)
		return DropNone
	}
	return DropState
}

// handleUC hands a packet of the peer to the half that it is for. A congestion
// notification is counted: nothing is in flight that could become less.
func (q *QP) handleUC(a *Arrival, info *rocev2.OpcodeInfo) Drop {
	switch {
	case q.conn.Failed():
		return DropState
	case info.Role == rocev2.RoleNotify:
		q.conn.Stats.Rare().CNPsReceived++
		return DropNone
	}
	return q.uc.HandleRequest(a, info)
}

// handleDatagram hands a datagram from any sender to the receiving half. It may
// be for a group that the queue pair is in (IBTA 10.5.2).
func (q *QP) handleDatagram(a *Arrival, info *rocev2.OpcodeInfo) Drop {
	h := &a.Packet.BTH
	switch {
	case h.DestQPN != q.conn.QPN && h.DestQPN != rocev2.MulticastQPN:
		return DropQPN
	case info.Role != rocev2.RoleRequest: // a CNP: it does not say whose datagrams it is about
		return DropService
	case h.PKey&0x7fff != rocev2.DefaultPKey&0x7fff:
		return DropPKey
	case q.conn.Failed():
		return DropState
	}
	if ud, ok := q.recv.(*datagram.UDReceiver); ok {
		return ud.HandleRequest(a, info)
	}
	return DropState
}

// HandleTimeout does what is due at now; without anything due it does nothing.
// Poll may then have something to send.
func (q *QP) HandleTimeout(now clock.Time) {
	q.conn.Advance(now)
	q.recv.HandleTimeout(now)
	q.send.HandleTimeout(now)
	q.flush()
}

// Deadline returns when HandleTimeout wants to be called, and then Poll, and
// whether at all.
func (q *QP) Deadline() (clock.Time, bool) {
	at, armed := q.send.Deadline()
	if t, ok := q.recv.Deadline(); ok && (!armed || t < at) {
		return t, true
	}
	return at, armed
}

// Poll writes packets until there are limit.Packets, nothing to send, no room,
// or no bytes left. Congestion notifications come before answers, and those
// before requests.
func (q *QP) Poll(now clock.Time, limit Limit, w Writer) (p Polled) {
	out := conn.NewOutput(w, limit.Packets)
	if q.notices.flags&noticeDue != 0 {
		if buf := out.Room(); buf != nil {
			out.CommitNotice(q.PollNotice(buf))
		}
	}
	if q.dgram != nil {
		q.dgram.Poll(now, &out)
		q.polled(&out, &p)
		return p
	}
	yields, done := false, false
	var owed responder.Owed
	if q.resp != nil {
		owed = q.resp.Owes()
		yields = q.resp.Yields() && now >= q.conn.CC.Limit.NotBefore
	}
	if owed != responder.Nothing {
		if owed != responder.AckMayWait {
			owed = q.resp.Poll(now, true, &out)
		}
		done = !limit.AckFirst && lead(q, now, limit, owed, &out, &p)
		owed = q.resp.Poll(now, limit.DelayAck, &out)
	}
	q.led = q.led && q.resp.Waiting()
	if !done && requests(q) {
		var bytes int
		bytes, p.Blocked = q.req.Poll(now, limit.Bytes-p.Bytes, &out)
		p.Bytes += bytes
		if q.conn.Failed() && q.resp != nil { // a fault on this side; what was received is acknowledged all the same
			q.flush()
			owed = q.resp.Poll(now, false, &out)
		}
	}
	if yields { // and the requests have had their turn
		q.resp.Resume()
		owed = q.resp.Poll(now, limit.DelayAck, &out)
	}
	p.AckDelayed = limit.DelayAck && owed == responder.AckMayWait
	q.polled(&out, &p)
	return p
}

// requests reports whether requests may be sent.
func requests(q *QP) bool {
	return q.req != nil && (q.conn.State == ib.StateRTS || q.conn.State == ib.StateSQD)
}

// leadCost is what a packet costs at most that goes before an acknowledgement.
const leadCost = 1 << 10

// lead has a small packet of a request go before a lone acknowledgement. That
// is the shorter one of the two, so both can leave, and arrive, as one
// segmented datagram: there only the last one may be shorter. It reports
// whether there was no request to send.
func lead(q *QP, now clock.Time, limit Limit, owed responder.Owed, out *conn.Output, p *Polled) (none bool) {
	if q.led || owed == responder.Nothing || owed == responder.Answers || !requests(q) || q.req.NextCost() > leadCost {
		return false
	}
	before := out.Packets
	rest := out.Only(min(out.Left(), 1))
	p.Bytes, p.Blocked = q.req.Poll(now, limit.Bytes, out)
	out.Only(out.Left() + rest)
	q.led = out.Packets > before
	if q.conn.Failed() {
		q.flush()
	}
	return !q.led
}

// polled ends a Poll that has written out. It fills p in place: to copy what
// was just written in parts stalls.
func (q *QP) polled(out *conn.Output, p *Polled) {
	q.flush()
	q.conn.Stats.TxPackets += uint64(out.Packets)
	p.Packets, p.Full = out.Packets, out.Full
	p.InFlight, p.Silent = q.InFlight()
	p.Raised = q.conn.Events != 0
	if at, ok := q.Deadline(); ok {
		p.Deadline = max(at, 1)
	}
}

// Ready returns how a queue pair stands after an input other than Poll.
func (q *QP) Ready() (r Ready) {
	r.InFlight, r.Silent = q.InFlight()
	r.Raised = q.conn.Events != 0
	r.Answers = q.notices.flags&noticeDue != 0 || q.recv.Pressing()
	r.Sends = r.Answers || q.resp != nil && (q.resp.Waiting() || q.resp.Yields()) ||
		q.conn.State != ib.StateRTS || q.req == nil || !q.req.Idle()
	return r
}

// PollFinal writes what the peer must be told before the queue pair is taken
// away: the acknowledgement of what was executed, whether it was asked for or
// not, and the NAK that ended the connection. Call it until it returns 0. It
// drops all other answers.
func (q *QP) PollFinal(buf []byte) int {
	if q.resp == nil {
		return 0
	}
	n := q.resp.PollFinal(buf)
	if n > 0 {
		q.conn.Stats.TxPackets++
	}
	return n
}

// Receipt writes the acknowledgement of all that was executed, for a peer that
// asks again when q has gone: that of the PSNs from first up to last. It
// returns its length, 0 if there is nothing to say.
func Receipt(q *QP, buf []byte) (n int, first, last rocev2.PSN) {
	if q.resp == nil {
		return 0, 0, 0
	}
	n, first = q.resp.Receipt(buf)
	return n, first, q.resp.ExpectedPSN().Add(-1)
}

// Answering reports whether an answer other than a lone acknowledgement, or a
// congestion notification, waits to be sent.
func (q *QP) Answering() bool { return q.notices.Due() || q.recv.Pressing() }

// PollFetch returns the next memory that the queue pair needs fetched, each
// once. The driver calls Fetched with it afterwards, also when it could not be
// fetched: then the access shows what is wrong. Other work of the queue pair
// goes on meanwhile.
func (q *QP) PollFetch() (Fetch, bool) {
	if f, ok := q.send.Fetch(); ok {
		return f, true
	}
	f, ok := q.recv.Fetch()
	if !ok {
		q.conn.Events &^= conn.Fetching
	}
	return f, ok
}

// Fetched has what waited for f go on. It may come late, when nothing waits any
// more. Poll may then have something to send.
func (q *QP) Fetched(now clock.Time, f Fetch) {
	switch {
	case f.Persist:
		q.resp.Persisted(&f)
	case f.Need < conn.NeedMessage:
		q.send.Fetched(now, f.Need)
	default:
		q.recv.Fetched(f.Need)
	}
}
