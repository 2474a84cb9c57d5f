package engine

import (
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/transport"
)

// receiver hands packets that have arrived to the queue pairs that they are
// for. A queue pair that then has something to send comes to its turn.
type receiver struct {
	*shared
	holds   holds
	groups  groups
	placing placing

	// What follows is of one batch.
	packet    rocev2.Packet // the one that is dispatched
	arrival   qp.Arrival    // how it came
	misrouted []transport.RxPacket
	grouped   []transport.RxPacket // those that are for groups
}

// receive handles a batch: the runs that were placed, and then the packets.
func (in *receiver) receive(now clock.Time, r *Ready, packets []transport.RxPacket, placed []transport.PlacedRun) {
	in.placing.n = 0
	in.misrouted, in.grouped = in.misrouted[:0], in.grouped[:0]
	if len(placed) > 0 {
		in.takePlaced(now, r, placed)
	}
	r.Packets += len(packets)
	for i := 0; i < len(packets); {
		done, alone := 0, 1
		if inMiddle(packets[i].Data) {
			done, alone = in.takeRun(now, r, packets[i:])
		}
		i += done
		for ; alone > 0; alone-- {
			in.dispatch(now, r, &packets[i])
			i++
		}
	}
	r.Misrouted, r.Multicast = in.misrouted, in.grouped
}

// loopBack handles the packets that passed inside the engine. What they call
// for comes with the next Fill: nothing is nested.
func (in *receiver) loopBack(now clock.Time, r *Ready, b *loopback) {
	in.misrouted = in.misrouted[:0]
	for i := range b.all {
		in.dispatch(now, r, b.packet(i))
	}
	r.LoopPackets, r.LoopBytes, r.Misrouted = len(b.all), b.off, in.misrouted
	in.counters.LoopPackets += uint64(r.LoopPackets)
	in.counters.LoopBytes += uint64(r.LoopBytes)
	b.reset()
}

// dispatch finds the receiver of a packet: the queue pair that its BTH names,
// or those of the group that it was sent to (IBTA 9.6). It is the only place
// that does.
func (in *receiver) dispatch(now clock.Time, r *Ready, d *transport.RxPacket) {
	if err := in.packet.Parse(d.Data); err != nil {
		if d.ICRC == transport.ICRCSealed { // which no packet in clear looks like
			in.counters.Device[DropSecurity]++
		} else {
			in.counters.malformed(err)
		}
		return
	}
	if d.ICRC.Refuses() {
		in.counters.Device[DropBadICRC]++
		return
	}
	qpn := in.packet.BTH.DestQPN
	if d.Dst.IsMulticast() && qpn != rocev2.MulticastQPN { // where only what is for the group belongs
		in.counters.Device[DropGroup]++
		return
	}
	if q := in.table.get(qpn); q != nil {
		if !q.held || !in.holds.keep(&in.packet, d) {
			in.deliver(now, r, d, q)
		}
		return
	}
	if qpn == rocev2.MulticastQPN {
		in.multicast(now, r, d)
		return
	}
	if !in.cfg.owns(qpn) {
		in.misrouted = append(in.misrouted, *d)
		return
	}
	if in.holds.keep(&in.packet, d) {
		return
	}
	in.counters.Device[DropUnknownQP]++
	r.Urgent = in.finals.answer(&in.packet.BTH, d) || r.Urgent
}

// deliver hands the packet that was parsed to one of its receivers, and reports
// whether that has used it.
func (in *receiver) deliver(now clock.Time, r *Ready, d *transport.RxPacket, q *QP) bool {
	if !q.fromPeer(d) {
		why := DropSourcePort
		if !q.takes(d.SPI) {
			why = DropSecurity
		}
		in.counters.Device[why]++
		return false
	}
	if d.SPI != 0 && q.security != SecuritySealed {
		q.RequireSealed()
	}
	var kept uint64
	if !q.portVerified {
		kept = qp.Reordered(q.core)
	}
	a := &in.arrival
	a.Packet, a.Src, a.Dst = &in.packet, d.Src, d.Dst
	a.TrafficClass, a.HopLimit, a.FlowLabel, a.IPID = d.TrafficClass, d.HopLimit, d.FlowLabel, d.IPID
	in.counters.Payload += uint64(len(in.packet.Payload))
	reason := q.core.HandlePacket(now, a)
	if in.cfg.Class != nil {
		in.finals.notice(q)
	}
	info, _ := in.packet.BTH.Opcode.Info()
	r.Taken = r.Taken || reason == qp.DropNone
	if reason != qp.DropNone {
		in.counters.QP[reason]++
		switch reason {
		case qp.DropNotPresent:
			q.tell(in.sink)
		case qp.DropState:
			r.Urgent = in.finals.answer(&in.packet.BTH, d) || r.Urgent
		}
	} else if !q.portVerified && info.Role != rocev2.RoleNotify && qp.Reordered(q.core) == kept {
		q.verifyPort(&in.cfg, d)
	}
	if !q.core.Reliable() {
		q.tell(in.sink)
		if q.core.Notices().Due() { // a CNP; nothing else ever follows from a packet
			r.Urgent = true
			in.turns.push(q)
		}
		return reason == qp.DropNone
	}
	in.handled(r, q, info.Role == rocev2.RoleRequest)
	return reason == qp.DropNone
}

// handled does what follows when a reliable queue pair was given something: it
// comes to its turn. If that would only show that it has nothing to send, the
// turn is a quiet one.
func (in *receiver) handled(r *Ready, q *QP, request bool) {
	is := q.core.Ready()
	r.Requests = r.Requests || request
	r.Urgent = r.Urgent || is.Owes == qp.OwesAnswers
	q.count(is.InFlight, is.Silent) // it has its turn in any case
	in.turns.push(q)
	q.quiet = !is.Sends && !is.Raised
}
