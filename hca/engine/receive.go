package engine

import (
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/transport"
)

// Received is what a batch of packets was.
type Received struct {
	Packets  int
	Taken    bool // a queue pair has taken one of them
	Requests bool // there were requests
	Urgent   bool // something wants an answer that does not wait

	// Misrouted are packets that belong to other shards: a network may
	// coalesce packets to several queue pairs into one buffer, which
	// arrives where the first one belongs. They are valid as long as the
	// batch is, and until the next call of a method of the engine.
	Misrouted []transport.RxPacket

	// Multicast are packets for groups, which were handed to the queue
	// pairs of this shard, and may be for those of others. They are valid
	// as Misrouted is. A driver gives them to those shards, but none that
	// it has got from another shard. With one shard there are none.
	Multicast []transport.RxPacket
}

// Add adds what the runs of the same batch were.
func (r *Received) Add(runs *Received) {
	r.Packets += runs.Packets
	r.Taken = r.Taken || runs.Taken
	r.Requests = r.Requests || runs.Requests
	r.Urgent = r.Urgent || runs.Urgent
}

// Receive handles packets that have arrived (IBTA 9.6). What they call for goes
// with the next Fill.
func (e *Engine) Receive(now clock.Time, packets []transport.RxPacket) Received {
	e.placing.n = 0
	e.misrouted, e.grouped = e.misrouted[:0], e.grouped[:0]
	r := Received{Packets: len(packets)}
	for i := 0; i < len(packets); {
		done, alone := 0, 1
		if inMiddle(packets[i].Data) {
			done, alone = takeRun(e, now, &r, packets[i:])
		}
		i += done
		for ; alone > 0; alone-- {
			e.dispatch(now, &r, &packets[i])
			i++
		}
	}
	r.Misrouted, r.Multicast = e.misrouted, e.grouped
	return r
}

// dispatch finds the receiver of a packet: the queue pair that its BTH names,
// or those of the group that it was sent to (IBTA 9.6). It is the only place
// that does.
func (e *Engine) dispatch(now clock.Time, r *Received, d *transport.RxPacket) {
	if err := e.packet.Parse(d.Data); err != nil {
		e.counters.malformed(err)
		return
	}
	if d.ICRC == transport.ICRCBad {
		e.counters.Device[DropBadICRC]++
		return
	}
	qpn := e.packet.BTH.DestQPN
	if misaddressed(d, qpn) {
		e.counters.Device[DropGroup]++
		return
	}
	if q := e.table.get(qpn); q != nil {
		if !q.held || !e.holds.keep(&e.packet, d) {
			e.deliver(now, r, d, q)
		}
		return
	}
	if qpn == rocev2.MulticastQPN {
		e.multicast(now, r, d)
		return
	}
	if !e.cfg.owns(qpn) {
		e.misrouted = append(e.misrouted, *d)
		return
	}
	if e.holds.keep(&e.packet, d) {
		return
	}
	e.counters.Device[DropUnknownQP]++
	r.Urgent = e.answer(d) || r.Urgent
}

// deliver hands the packet that was parsed to one of its receivers, and reports
// whether that has used it.
func (e *Engine) deliver(now clock.Time, r *Received, d *transport.RxPacket, q *QP) bool {
	if !q.fromPeerPort(d) {
		e.counters.Device[DropSourcePort]++
		return false
	}
	var kept uint64
	if !q.portVerified {
		kept = qp.Reordered(q.core)
	}
	a := &e.arrival
	a.Packet, a.Src, a.Dst = &e.packet, d.Src, d.Dst
	a.TrafficClass, a.HopLimit, a.FlowLabel, a.IPID = d.TrafficClass, d.HopLimit, d.FlowLabel, d.IPID
	reason := q.core.HandlePacket(now, a)
	if e.cfg.Class != nil {
		takeNotice(e, q)
	}
	info, _ := e.packet.BTH.Opcode.Info()
	r.Taken = r.Taken || reason == qp.DropNone
	if reason != qp.DropNone {
		e.counters.QP[reason]++
		switch reason {
		case qp.DropNotPresent:
			q.tell(e.sink)
		case qp.DropState:
			r.Urgent = e.answer(d) || r.Urgent
		}
	} else if !q.portVerified && info.Role != rocev2.RoleNotify && qp.Reordered(q.core) == kept {
		q.verifyPort(&e.cfg, d)
	}
	if !q.core.Reliable() {
		q.tell(e.sink)
		if q.core.Answering() { // a CNP; nothing else ever follows from a packet
			r.Urgent = true
			e.turns.push(q)
		}
		return reason == qp.DropNone
	}
	handled(e, r, q, info.Role == rocev2.RoleRequest)
	return reason == qp.DropNone
}
