package qp

import (
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/conn"
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
	q.flush()
	if a.Marked() {
		q.notices.marked(&q.halves, now, a.Packet, d)
	} else {
		q.notices.unmarked(q.halves.req, now)
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
	if !known || info.Service != q.halves.service && info.Service != rocev2.ServiceCNP &&
		(info.Operation != rocev2.OpSelectiveAck || q.conn.Pool == nil || q.halves.req == nil) { // which a native peer may send
		return DropService
	}
	if q.halves.service == rocev2.ServiceUD {
		return q.dgram.HandleDatagram(a, info)
	}
	if p.BTH.DestQPN != q.conn.QPN {
		return DropQPN
	}
	if a.Src != q.conn.Peer && a.Src.Unmap().WithZone("") != q.conn.Peer {
		return DropPeer
	}
	if q.halves.req != nil {
		q.halves.req.Heard(now)
	}
	if p.BTH.PKey&0x7fff != rocev2.DefaultPKey&0x7fff {
		return DropPKey
	}
	if q.dgram != nil {
		return q.dgram.HandleRequest(a, info)
	}
	return q.halves.handle(now, a, info)
}

// HandleRun takes a run of n packets whose payloads lie where Halves.Middle has
// said. What it does is what HandlePacket does with one packet after the other.
// It returns how many there were until the connection has failed.
func (q *QP) HandleRun(now clock.Time, op rocev2.Opcode, n int) int {
	q.halves.req.Heard(now)
	q.notices.unmarked(q.halves.req, now)
	n = q.halves.run(now, op, n)
	q.flush()
	return n
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
	if q.notices.Due() {
		if buf := out.Room(); buf != nil {
			out.Commit(q.PollNotice(buf), nil, conn.NoticePacket)
		}
	}
	if q.dgram != nil {
		q.dgram.Send.Poll(now, &out)
	} else {
		q.halves.poll(now, limit, &out, &p)
	}
	q.flush()
	q.conn.Stats.TxPackets += uint64(out.Packets)
	p.Packets, p.Full = out.Packets, out.Full
	p.InFlight, p.Silent = q.halves.inFlight()
	p.Raised = q.conn.Events != 0
	if at, ok := q.Deadline(); ok {
		p.Deadline = max(at, 1)
	}
	return p
}

// Ready returns how a queue pair stands after an input other than Poll.
func (q *QP) Ready() (r Ready) {
	r.InFlight, r.Silent = q.halves.inFlight()
	r.Raised = q.conn.Events != 0
	if r.Owes = OwesAnswers; !q.notices.Due() {
		r.Owes = q.recv.Owes()
	}
	r.Sends = r.Owes == OwesAnswers || !q.halves.idle()
	return r
}

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
		q.halves.resp.Persisted(&f)
	case f.Need < conn.NeedMessage:
		q.send.Fetched(now, f.Need)
	default:
		q.recv.Fetched(f.Need)
	}
}
