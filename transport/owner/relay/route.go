package relay

import (
	"github.com/gosoftroce/rocev2/rdma/cm/agent"
	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// response is the bit of the method of a MAD that answers one (IBTA 13.4.5).
const response = 0x80

// deliver says where on this address a MAD goes, and follows the connection
// that it is about.
func (r *Relay) deliver(now clock.Time, from Source, b []byte) Verdict {
	var h mad.Header
	if h.Parse(b) != nil || h.BaseVersion != 1 {
		return drop(Malformed)
	}
	if h.Class != mad.ClassCM {
		if h.Method&response == 0 {
			return drop(Unsupported)
		}
		return r.pass(now, r.leases[h.TransactionID&(Slots-1)], false)
	}
	if h.Check() != nil || h.Attribute == mad.AttrLAP || h.Attribute == mad.AttrAPR {
		return drop(Unsupported)
	}
	m := read(&h, b)
	switch m.attribute {
	case mad.AttrREQ:
		return r.request(now, from, b)
	case mad.AttrSIDRREQ:
		var q mad.SIDRREQ
		if q.Parse(b) != nil {
			return drop(Malformed)
		}
		return r.passRequest(now, from, r.services.asked(now, uint64(q.ServiceID)), b)
	case mad.AttrSIDRREP:
		return r.pass(now, r.leases[slotOf(m.remote)], false)
	}
	return r.message(now, from, m, b)
}

// request finds the lease that serves a REQ, or has it already.
func (r *Relay) request(now clock.Time, from Source, b []byte) Verdict {
	var q mad.REQ
	if q.Parse(b) != nil || q.LocalID == 0 {
		return drop(Malformed)
	}
	if c := r.byRemote[remoteKey{from.Addr, q.LocalID}]; c != nil && c.guid == q.LocalGUID && c.qpn == q.LocalQPN {
		v := r.passRequest(now, from, c.lease, b)
		if v.Action == ToLease && c.state == requested {
			r.enter(c, requested)
		}
		return v
	}
	l := r.services.asked(now, uint64(q.ServiceID))
	v := r.passRequest(now, from, l, b)
	if v.Action != ToLease {
		return v
	}
	if old := r.byQPN[qpnKey{from.Addr, q.LocalGUID, q.LocalQPN}]; old != nil && old.lease != l {
		r.stale(old)
	}
	if l.asked.Len() >= l.limits.Requests {
		if l.asked.Front().state == requested {
			r.stats.Forgotten++
		}
		r.unheard(l.asked.Front())
	}
	if old := r.byRemote[remoteKey{from.Addr, q.LocalID}]; old != nil && old.state == requested {
		r.forget(old)
	}
	r.open(l, &conn{state: requested, remote: q.LocalID, peer: from.Addr, qpn: q.LocalQPN, guid: q.LocalGUID,
		transaction: q.TransactionID, class: q.Primary.TrafficClass, flowLabel: q.Primary.FlowLabel})
	return v
}

// stale ends a connection whose peer uses its queue pair for one of another
// lease: to the lease it is as if the peer had asked for the end.
func (r *Relay) stale(c *conn) {
	r.stats.Stale++
	n := note{slot: c.lease.slot, from: c.peer}
	m := mad.DREQ{TransactionID: uint64(r.cfg.Random())<<32 | uint64(r.cfg.Random()), LocalID: c.remote, RemoteID: c.local, RemoteQPN: c.own}
	m.AppendTo(n.mad[:0])
	r.ready = append(r.ready, n)
	r.enter(c, closing)
}

// passRequest passes on the request of a stranger, which the relay's own agent
// gets where no lease serves it.
func (r *Relay) passRequest(now clock.Time, from Source, l *lease, b []byte) Verdict {
	if l == nil {
		return r.take(now, from, b)
	}
	if !l.requests.take(now, l.limits.MADs) {
		l.drops++
		return drop(TooMany)
	}
	l.toLease++
	return Verdict{Action: ToLease, Slot: l.slot}
}

// pass passes on what answers a lease. What is about a connection that is known
// has a meter of its own, so that it passes in a flood.
func (r *Relay) pass(now clock.Time, l *lease, known bool) Verdict {
	if l == nil {
		return drop(NoLease)
	}
	m := &l.strange
	if known {
		m = &l.in
	}
	if !m.take(now, l.limits.MADs) {
		l.drops++
		return drop(TooMany)
	}
	l.toLease++
	return Verdict{Action: ToLease, Slot: l.slot}
}

// take gives a MAD to the relay's own agent.
func (r *Relay) take(now clock.Time, from Source, b []byte) Verdict {
	r.agent.Receive(now, agent.Path{Local: r.addr, Remote: from.Addr, TrafficClass: from.TrafficClass, FlowLabel: from.FlowLabel}, b)
	return Verdict{Action: Taken}
}

// message finds the receiver of what is about a connection.
func (r *Relay) message(now clock.Time, from Source, m message, b []byte) Verdict {
	if m.remote == 0 { // the sender does not know the ID here
		c := r.byRemote[remoteKey{from.Addr, m.local}]
		if m.attribute != mad.AttrREJ || c == nil {
			return drop(Unexpected)
		}
		v := r.pass(now, c.lease, true)
		if v.Action == ToLease && (c.state == requested || c.state == replied) {
			r.forget(c)
		}
		return v
	}
	c := r.fitting(from.Addr, m.remote, m.local)
	if c == nil {
		if p := r.parting.of[partKey{from.Addr, m.remote, m.local}]; p != nil {
			return r.reply(now, from, p, m, b)
		}
	}
	l := r.leases[slotOf(m.remote)]
	if l == nil {
		return r.take(now, from, b)
	}
	v := r.pass(now, l, c != nil)
	if v.Action == ToLease && c != nil {
		r.heard(c, m, b)
	}
	return v
}

// heard follows what the peer of a connection says.
func (r *Relay) heard(c *conn, m message, b []byte) {
	switch m.attribute {
	case mad.AttrREP:
		var rep mad.REP
		if c.state != asking || rep.Parse(b) != nil {
			return
		}
		c.remote, c.qpn, c.guid = rep.LocalID, rep.LocalQPN, rep.LocalGUID
		r.enter(c, answered)
	case mad.AttrRTU:
		if c.state == replied {
			r.enter(c, established)
		}
	case mad.AttrREJ:
		r.forget(c)
	case mad.AttrDREQ:
		var q mad.DREQ
		if q.Parse(b) == nil && c.state != asking && (q.RemoteQPN == c.own || c.own == 0) {
			r.enter(c, closing)
		}
	case mad.AttrDREP:
		if c.state == closing {
			r.forget(c)
		}
	case mad.AttrMRA:
		if c.state != established {
			r.enter(c, c.state)
		}
	}
}

// follow follows what a lease sends, and says why it must not.
func (r *Relay) follow(l *lease, to Source, b []byte) Reason {
	var h mad.Header
	if h.Parse(b) != nil || h.BaseVersion != 1 {
		return Malformed
	}
	if h.Class != mad.ClassCM {
		if h.Method&response == 0 && int(h.TransactionID&(Slots-1)) != l.slot {
			return WrongID
		}
		return None
	}
	if h.Check() != nil || h.Attribute == mad.AttrLAP || h.Attribute == mad.AttrAPR {
		return Unsupported
	}
	m := read(&h, b)
	named := m.local != 0 && slotOf(m.local) == l.slot
	switch m.attribute {
	case mad.AttrSIDRREP:
		return None
	case mad.AttrREJ:
		if m.local != 0 && !named {
			return WrongID
		}
		r.refused(l, to, m)
		return None
	}
	if !named {
		return WrongID
	}
	switch m.attribute {
	case mad.AttrREQ:
		return r.asks(l, to, b)
	case mad.AttrREP:
		return r.replies(l, to, b)
	default:
		r.says(to, m)
	}
	return None
}

// asks follows the REQ of a lease.
func (r *Relay) asks(l *lease, to Source, b []byte) Reason {
	var q mad.REQ
	if q.Parse(b) != nil {
		return Malformed
	}
	if c := r.byLocal[q.LocalID]; c != nil {
		if c.state == asking && c.peer == to.Addr {
			r.enter(c, asking)
		}
		return None
	}
	if l.conns-l.asked.Len() >= l.limits.Connections {
		return NoRoom
	}
	r.open(l, &conn{state: asking, local: q.LocalID, peer: to.Addr, own: q.LocalQPN, guid: q.LocalGUID,
		transaction: q.TransactionID, class: q.Primary.TrafficClass, flowLabel: q.Primary.FlowLabel})
	return None
}

// replies follows the REP of a lease.
func (r *Relay) replies(l *lease, to Source, b []byte) Reason {
	var rep mad.REP
	if rep.Parse(b) != nil {
		return Malformed
	}
	c := r.byRemote[remoteKey{to.Addr, rep.RemoteID}]
	if c == nil || c.lease != l || c.state != requested && c.state != replied {
		return None // it is followed no more, or is there already
	}
	if c.state == requested && l.conns-l.asked.Len() >= l.limits.Connections {
		return NoRoom
	}
	if other := r.byLocal[rep.LocalID]; other != nil && other != c {
		return None // an ID that the lease has in use already
	}
	c.own = rep.LocalQPN
	r.refer(c, rep.LocalID)
	r.enter(c, replied)
	return None
}

// refused follows the REJ of a lease. One with an ID that is not followed may
// be of an earlier request of the peer with the same ID, and ends no other.
func (r *Relay) refused(l *lease, to Source, m message) {
	c := r.byLocal[m.local]
	if c == nil || c.remote != m.remote && c.remote != 0 {
		c = r.byRemote[remoteKey{to.Addr, m.remote}]
		if c != nil && c.state != requested {
			return
		}
	}
	if c != nil && c.lease == l && c.peer == to.Addr {
		r.forget(c)
	}
}

// says follows what else a lease says of a connection.
func (r *Relay) says(to Source, m message) {
	c := r.fitting(to.Addr, m.local, m.remote)
	if c == nil {
		return
	}
	switch {
	case m.attribute == mad.AttrRTU && c.state == answered:
		r.enter(c, established)
	case m.attribute == mad.AttrDREQ && c.state != asking:
		r.enter(c, closing)
	case m.attribute == mad.AttrDREP && c.state == closing:
		r.forget(c)
	case m.attribute == mad.AttrMRA && c.state != established:
		r.enter(c, c.state)
	}
}
