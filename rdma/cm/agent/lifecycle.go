package agent

import (
	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// lifecycle does what ends, or moves on, a connection, whichever message, timer
// or call of the program is the cause. It knows no listeners and parses
// nothing.
type lifecycle struct {
	cfg    *Config
	stats  *Stats
	table  *table
	gate   *gate
	out    *outbox
	timers timers
	events queue[Event]
	// transaction is the upper half of transaction IDs.
	transaction uint64
}

// tell queues an event of c, unless the program does not know c any more.
func (lc *lifecycle) tell(c *conn, e Event) {
	if c.released {
		return
	}
	e.ID, e.Path = ID(c.local), c.path()
	lc.events.push(e)
}

// makeRoom decides whether another request of a peer is taken. If an older one
// has to go for it, it goes without a word: if its peer is honest, its request
// comes again, and then it has a claim.
func (lc *lifecycle) makeRoom(now clock.Time, l *listener, p *peer, hash uint64) verdict {
	v := lc.gate.admit(now, l, p, hash)
	if !v.ok {
		lc.stats.Overloaded++
	} else if v.victim != nil {
		lc.stats.Evicted++
		lc.gate.expect(now, v.victim)
		lc.finish(v.victim, Event{Kind: EventUnreachable})
	}
	return v
}

func (lc *lifecycle) establish(c *conn) {
	lc.timers.stop(c)
	lc.gate.closeSetup(c)
	c.message = nil
	lc.table.setState(c, StateEstablished)
}

// obstacle returns why a request of a peer that has something here cannot be:
// its queue pair is part of a connection, or its control connection has one; or
// 0.
func (lc *lifecycle) obstacle(now clock.Time, p *peer, m *mad.REQ) mad.Reason {
	old := lc.table.byQPN[key{m.LocalGUID, p.number, uint32(m.LocalQPN)}]
	switch {
	case old != nil && lc.stale(now, old):
		return mad.ReasonStale
	case p.control != 0:
		return mad.ReasonNoResources
	}
	return 0
}

// stale handles a connection whose peer uses its queue pair for another, and
// reports whether that one must be rejected: the peer has forgotten this one
// (IBTA 12.9.8.3). A connection that is at its end anyway does not stand in the
// way.
func (lc *lifecycle) stale(now clock.Time, c *conn) bool {
	switch c.state {
	case StateEstablished:
		lc.startDisconnect(now, c, nil)
	case StateREPReceived, StateREQReceived, StateREPSent:
		lc.finish(c, Event{Kind: EventRejected, Reason: mad.ReasonStale, Own: true})
	default:
		lc.table.forget(c)
		return false
	}
	lc.stats.Stale++
	return true
}

func (lc *lifecycle) startDisconnect(now clock.Time, c *conn, private []byte) {
	lc.gate.closeSetup(c) // of one that the program has not taken
	lc.table.setState(c, StateDREQSent)
	c.transaction = lc.transaction | uint64(c.local)
	m := mad.DREQ{
		TransactionID: c.transaction, LocalID: c.local, RemoteID: c.remote, RemoteQPN: c.remoteQPN, Private: private,
	}
	if len(private) > 0 {
		lc.out.keep(c, &m)
	} else {
		c.message = nil
		lc.out.send(c, &m)
	}
	lc.timers.pace(now, c, lc.cfg.FirstTimeout, lc.cfg.MaxTimeout, c.maxRetries)
}

// confirm sends the DREP and keeps its private data for duplicates of the DREQ.
func (lc *lifecycle) confirm(now clock.Time, c *conn, private []byte) {
	m := mad.DREP{TransactionID: c.transaction, LocalID: c.local, RemoteID: c.remote, Private: private}
	c.message, c.granted = nil, true
	if len(private) > 0 {
		lc.out.keep(c, &m)
	} else {
		lc.out.send(c, &m)
	}
	lc.timewait(now, c, Event{Kind: EventDisconnected})
}

// timewait keeps c until no packet of it can be in the network any more (IBTA
// 12.9.8.4), and tells the program e. The message of c, if any, is the DREP.
func (lc *lifecycle) timewait(now clock.Time, c *conn, e Event) {
	if c.state != StateDREQReceived {
		c.message = nil
	}
	lc.tell(c, e)
	lc.timers.stop(c)
	lc.gate.closeSetup(c)
	lc.table.forget(c)
	if lc.stats.Timewait >= lc.cfg.Timewaits {
		lc.finish(c, Event{Kind: EventTimewaitExit})
		return
	}
	lc.table.setState(c, StateTimewait)
	lc.timers.set(c, now.Add(min(mad.Timeout(c.ackTimeout), lc.cfg.MaxTimewait)))
}

// fire handles the timer of c: it starts it again, stops it, or ends c.
func (lc *lifecycle) fire(now clock.Time, c *conn) {
	switch c.state {
	case StateREQReceived, StateSIDRReceived: // the peer has given up long ago
		lc.finish(c, Event{Kind: EventUnreachable})
		return
	case StateTimewait:
		lc.finish(c, Event{Kind: EventTimewaitExit})
		return
	}
	if c.state == StateREPSent && c.released {
		lc.out.sendREJ(c, mad.StageOther, mad.ReasonConsumer, nil, nil)
		lc.remove(c)
		return
	}
	if lc.timers.askAgain(now, c) || lc.timers.again(now, c) {
		lc.stats.Resent++
		lc.out.resend(c)
		return
	}
	switch c.state {
	case StateREQSent:
		lc.out.sendREJ(c, mad.StageREQ, mad.ReasonTimeout, lc.out.guidBytes(), nil)
	case StateREPSent:
		lc.out.sendREJ(c, mad.StageREP, mad.ReasonTimeout, lc.out.guidBytes(), nil)
	case StateDREQSent:
		lc.timewait(now, c, Event{Kind: EventDisconnected, TimedOut: true})
		return
	}
	lc.finish(c, Event{Kind: EventUnreachable})
}

// finish queues a final event and ends c.
func (lc *lifecycle) finish(c *conn, e Event) {
	lc.tell(c, e)
	lc.remove(c)
}

// remove ends a connection. Nothing refers to it afterwards.
func (lc *lifecycle) remove(c *conn) {
	lc.timers.stop(c)
	lc.gate.closeSetup(c)
	lc.table.remove(c)
}
