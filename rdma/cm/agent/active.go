package agent

import (
	"time"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// defaultResponse is the code of the response timeouts that Linux uses: 4.3 s.
const defaultResponse = 20

// replyService is the code of the time that an MRA asks for a REP: 1.1 s. The
// program has no more to do than to move its queue pair on. If the RTU after
// the MRA is lost, the peer should not wait long.
const replyService = 18

// lifetimes is what Linux adds to a response timeout: a packet to the peer and
// one back.
const lifetimes = 512 * time.Millisecond

// Connect asks a peer for a connection. What comes of it is an event: Reply,
// Rejected or Unreachable. The error wraps ErrParameter.
func (a *Agent) Connect(now clock.Time, r *ConnectRequest) (ID, error) {
	m := r.REQ
	switch {
	case !validPath(&r.Path):
		return 0, errAddresses
	case len(m.Private) > mad.REQPrivateLen:
		return 0, errTooLong
	case m.PathMTU < 1 || m.PathMTU > 5:
		return 0, errPathMTU
	case m.Primary.AckTimeout&31 == 0:
		return 0, errAckTimeout
	}
	c := a.table.add(&r.Path, StateREQSent)
	c.transaction = a.life.transaction | uint64(c.local)
	c.localQPN = m.LocalQPN
	or(&m.PKey, rocev2.DefaultPKey)
	or(&m.RemoteResponseTimeout, defaultResponse)
	or(&m.LocalResponseTimeout, defaultResponse)
	or(&m.MaxRetries, 15)
	m.TransactionID, m.LocalID, m.LocalGUID = c.transaction, c.local, a.cfg.GUID
	p := &m.Primary
	p.LocalGID, p.RemoteGID = c.peer.local, c.peer.remote
	or(&p.LocalLID, 0xffff)
	or(&p.RemoteLID, 0xffff)
	or(&p.TrafficClass, r.Path.TrafficClass)
	or(&p.FlowLabel, r.Path.FlowLabel)
	or(&p.HopLimit, hopLimit)
	c.ackTimeout, c.maxRetries = p.AckTimeout, m.MaxRetries
	longest := r.MaxTimeout
	or(&longest, mad.Timeout(m.RemoteResponseTimeout)+lifetimes)
	first := r.FirstTimeout
	or(&first, a.cfg.FirstTimeout)
	a.out.keep(c, &m)
	c.setPatience(r.Patience)
	a.life.timers.pace(now, c, first, longest, m.MaxRetries)
	return ID(c.local), nil
}

func validPath(p *Path) bool {
	local, remote := p.Local.Unmap(), p.Remote.Unmap()
	return local.IsValid() && remote.IsValid() && local.Is4() == remote.Is4()
}

// receiveREP takes the answer to a REQ.
func (a *Agent) receiveREP(now clock.Time, path *Path, b []byte) {
	var m mad.REP
	if m.Parse(b) != nil {
		a.stats.Malformed++
		return
	}
	c := a.table.conns[m.RemoteID]
	if c == nil {
		// The peer waits for an RTU that will not come.
		a.stats.Unexpected++
		a.out.refuse(path, m.TransactionID, m.RemoteID, m.LocalID, mad.StageREP, mad.ReasonInvalidCommID, nil)
		return
	}
	if !a.table.from(c, path) {
		return
	}
	if c.state == StateREQSent {
		a.takeREP(now, c, &m)
		return
	}
	if c.remote != m.LocalID {
		a.stats.Unexpected++
		return
	}
	if !a.out.again() {
		return
	}
	switch c.state {
	case StateREPReceived:
		a.out.send(c, &mad.MRA{
			TransactionID: c.transaction, LocalID: c.local, RemoteID: c.remote,
			Message: mad.StageREP, ServiceTimeout: replyService,
		})
	case StateEstablished: // the RTU was lost
		a.out.resend(c)
	}
}

func (a *Agent) takeREP(now clock.Time, c *conn, m *mad.REP) {
	c.remote, c.remoteQPN, c.guid = m.LocalID, m.LocalQPN, m.LocalGUID
	c.message = nil
	a.life.timers.stop(c)
	if old := a.table.byQPN[key{c.guid, c.peer.number, uint32(c.remoteQPN)}]; old != nil && a.life.stale(now, old) {
		a.out.sendREJ(c, mad.StageREP, mad.ReasonStale, nil, nil)
		a.life.finish(c, Event{Kind: EventRejected, Reason: mad.ReasonStale, Own: true})
		return
	}
	a.table.learn(c)
	a.table.setState(c, StateREPReceived)
	rep := *m
	rep.Private = cloned(m.Private)
	a.life.tell(c, Event{Kind: EventReply, Reply: &rep})
}

// Ready says to the peer that its REP has arrived, and that this side can
// receive.
func (a *Agent) Ready(now clock.Time, id ID, private []byte) error {
	c, err := a.table.own(id)
	switch {
	case err != nil:
		return err
	case c.state != StateREPReceived:
		return &StateError{"send RTU", c.state}
	case len(private) > mad.RTUPrivateLen:
		return errTooLong
	}
	a.table.setState(c, StateEstablished)
	m := mad.RTU{TransactionID: c.transaction, LocalID: c.local, RemoteID: c.remote, Private: private}
	if len(private) > 0 {
		a.out.keep(c, &m)
	} else {
		a.out.send(c, &m)
	}
	return nil
}

// receiveMRA takes the word of the peer that its answer takes longer. It counts
// once for each transmission, so that it cannot put off the end for ever.
func (a *Agent) receiveMRA(now clock.Time, path *Path, b []byte) {
	var m mad.MRA
	if m.Parse(b) != nil {
		a.stats.Malformed++
		return
	}
	c := a.table.extendable(path, &m)
	if c == nil {
		return
	}
	if c.extended || c.released { // one that was released waits a moment, whatever the peer says
		a.stats.Unexpected++
		return
	}
	c.extended, c.heard = true, true
	wait := min(mad.Timeout(m.ServiceTimeout)+time.Duration(c.interval)*time.Microsecond, a.cfg.MaxService)
	a.life.timers.set(c, max(c.deadline, now.Add(wait)))
}
