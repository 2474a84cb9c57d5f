package agent

import (
	"time"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// receiveREQ takes a request, in the order of Linux: is it a duplicate, is a
// connection stale, is there a listener, is it in order; and then, is there
// room.
func (a *Agent) receiveREQ(now clock.Time, path *Path, b []byte) {
	var m mad.REQ
	if m.Parse(b) != nil || m.LocalID == 0 {
		a.stats.Malformed++
		return
	}
	p := a.table.peers[addressesOf(path)]
	if p != nil {
		if c := a.table.byID[key{m.LocalGUID, p.number, uint32(m.LocalID)}]; c != nil {
			a.duplicateREQ(now, c)
			return
		}
		if reason := a.life.obstacle(now, p, &m); reason != 0 {
			a.out.refuse(path, m.TransactionID, 0, m.LocalID, mad.StageREQ, reason, nil)
			return
		}
	}
	l := a.listeners[m.ServiceID]
	if l == nil && a.expected.hold(now, path, m.ServiceID, m.LocalID, false, b) {
		return
	}
	if l == nil {
		a.out.refuseService(path, &m, a.cfg.Refusal)
		return
	}
	if reason, ari := check(path, &m); reason != 0 {
		a.out.refuse(path, m.TransactionID, 0, m.LocalID, mad.StageREQ, reason, ari)
		return
	}
	if l.greeter != nil {
		way, req := *path, m // what is refused is not copied
		if a.greeting.greet(now, &way, l, &req, b) {
			return
		}
	}
	v := a.life.makeRoom(now, l, p, a.gate.sieve.hash(path, m.LocalGUID, m.LocalID))
	if !v.ok {
		return
	}
	path.FlowLabel, path.TrafficClass = m.Primary.FlowLabel, m.Primary.TrafficClass
	c := a.table.add(path, StateREQReceived)
	c.remote, c.remoteQPN, c.guid, c.transaction = m.LocalID, m.LocalQPN, m.LocalGUID, m.TransactionID
	c.ackTimeout, c.maxRetries = m.Primary.AckTimeout, m.MaxRetries
	c.maxInterval = uint32(min(mad.Timeout(m.LocalResponseTimeout), a.cfg.MaxTimeout) / time.Microsecond)
	a.table.index(c)
	a.table.learn(c)
	a.gate.openSetup(c, l, v)
	a.life.timers.set(c, now.Add(a.cfg.RequestLife))
	req := m // what is refused is not copied
	req.Private = cloned(m.Private)
	a.life.tell(c, Event{Kind: EventRequest, Request: &req})
}

// check returns why a request cannot be met, and what the REJ says of it; or 0.
func check(path *Path, m *mad.REQ) (mad.Reason, []byte) {
	switch {
	case m.Transport == mad.TransportRD:
		return mad.ReasonInvalidTransport, nil
	case m.LocalQPN <= rocev2.GSIQPN || m.LocalQPN == rocev2.MulticastQPN:
		return mad.ReasonUnsupported, nil
	case m.Primary.LocalGID != path.Remote.Unmap() || m.Primary.RemoteGID != path.Local.Unmap() || m.PKey&0x7fff != 0x7fff:
		gid := path.Local.As16()
		return mad.ReasonInvalidGID, gid[:]
	case m.Alternate.LocalLID != 0: // RoCE does not migrate paths
		gid := path.Local.As16()
		return mad.ReasonInvalidAltGID, gid[:]
	case m.PathMTU < 1 || m.PathMTU > 5:
		return mad.ReasonInvalidMTU, []byte{5}
	}
	return 0, nil
}

// duplicateREQ answers a request that has come before.
func (a *Agent) duplicateREQ(now clock.Time, c *conn) {
	if c.state == StateREQReceived { // the program has it in hand
		a.gate.repeated(c)
		a.life.timers.set(c, now.Add(a.cfg.RequestLife))
	}
	if !a.out.again() {
		return
	}
	switch c.state {
	case StateREQReceived:
		c.acked = true
		a.out.send(c, &mad.MRA{
			TransactionID: c.transaction, LocalID: c.local, RemoteID: c.remote,
			Message: mad.StageREQ, ServiceTimeout: a.cfg.ServiceTimeout,
		})
	case StateREPSent: // the REP was lost, or is late
		a.out.resend(c)
	case StateTimewait: // a late copy must not make a connection
		a.out.sendREJ(c, mad.StageREQ, mad.ReasonStale, nil, nil)
	}
}

// Accept answers a request with a REP. It fills in the transaction ID, both
// communication IDs and the CA GUID. What comes of it is an event: Established,
// Rejected, Unreachable or DisconnectRequested.
func (a *Agent) Accept(now clock.Time, id ID, rep *mad.REP) error {
	c, err := a.table.own(id)
	switch {
	case err != nil:
		return err
	case c.state != StateREQReceived:
		return &StateError{"accept", c.state}
	case len(rep.Private) > mad.REPPrivateLen:
		return errTooLong
	}
	m := *rep
	m.TransactionID, m.LocalID, m.RemoteID, m.LocalGUID = c.transaction, c.local, c.remote, a.cfg.GUID
	c.localQPN = m.LocalQPN
	a.table.setState(c, StateREPSent)
	a.gate.answered(c)
	a.out.keep(c, &m)
	a.life.timers.pace(now, c, a.cfg.FirstTimeout, time.Duration(c.maxInterval)*time.Microsecond, c.maxRetries)
	return nil
}

func (a *Agent) receiveRTU(now clock.Time, path *Path, b []byte) {
	var m mad.RTU
	if m.Parse(b) != nil {
		a.stats.Malformed++
		return
	}
	if c := a.greeting.cache.of(path, m.RemoteID, m.LocalID); c != nil {
		a.greeting.welcome(now, c)
		return
	}
	if a.table.conns[m.RemoteID] == nil {
		// The peer takes the connection for established.
		a.stats.Unexpected++
		a.out.refuse(path, m.TransactionID, m.RemoteID, m.LocalID, mad.StageOther, mad.ReasonInvalidCommID, nil)
		return
	}
	c := a.table.pair(path, m.RemoteID, m.LocalID)
	if c == nil {
		return
	}
	if c.state != StateREPSent {
		a.stats.Duplicates++
		return
	}
	a.life.establish(c)
	if c.released {
		a.life.startDisconnect(now, c, nil)
		return
	}
	a.life.tell(c, Event{Kind: EventEstablished, Private: cloned(m.Private)})
}

// Communicated says that data has come from the peer over the queue pair of a
// connection: it is established, though the RTU is late (IBTA 12.9.7.2). It
// does nothing in other states than "REP sent".
func (a *Agent) Communicated(id ID) {
	if c, err := a.table.own(id); err == nil && c.state == StateREPSent {
		a.life.establish(c)
		a.life.tell(c, Event{Kind: EventEstablished})
	}
}
