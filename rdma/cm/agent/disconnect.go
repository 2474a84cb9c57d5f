package agent

import (
	"maps"
	"slices"
	"time"

	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// Disconnect ends a connection: by a DREQ, or by the DREP if the peer asked for
// it. private has at most mad.DREQPrivateLen bytes. The event Disconnected
// follows, at once in the second case. It does nothing where the agent has sent
// a DREQ already, because the peer has forgotten the connection, and in
// timewait.
func (a *Agent) Disconnect(now clock.Time, id ID, private []byte) error {
	c, err := a.own(id)
	switch {
	case err != nil:
		return err
	case len(private) > mad.DREQPrivateLen:
		return errTooLong
	case c.state == StateDREQReceived:
		a.confirm(now, c, private)
	case c.state == StateEstablished:
		a.startDisconnect(now, c, private)
	case c.state == StateDREQSent, c.state == StateTimewait:
	default:
		return &StateError{"disconnect", c.state}
	}
	return nil
}

// Confirm answers the DREQ of the peer with a DREP, whose private data has at
// most mad.DREPPrivateLen bytes. The event Disconnected follows at once.
func (a *Agent) Confirm(now clock.Time, id ID, private []byte) error {
	c, err := a.own(id)
	switch {
	case err != nil:
		return err
	case c.state != StateDREQReceived:
		return &StateError{"send DREP", c.state}
	case len(private) > mad.DREPPrivateLen:
		return errTooLong
	}
	a.confirm(now, c, private)
	return nil
}

func (a *Agent) startDisconnect(now clock.Time, c *conn, private []byte) {
	a.closeSetup(c) // of one that the program has not taken
	a.setState(c, StateDREQSent)
	c.transaction = a.transaction | uint64(c.local)
	m := mad.DREQ{
		TransactionID: c.transaction, LocalID: c.local, RemoteID: c.remote, RemoteQPN: c.remoteQPN, Private: private,
	}
	if len(private) > 0 {
		a.keep(c, &m)
	} else {
		c.message = nil
		a.send(c, &m)
	}
	a.timers.pace(now, c, a.cfg.FirstTimeout, a.cfg.MaxTimeout, c.maxRetries)
}

// confirm sends the DREP and keeps its private data for duplicates of the DREQ.
func (a *Agent) confirm(now clock.Time, c *conn, private []byte) {
	m := mad.DREP{TransactionID: c.transaction, LocalID: c.local, RemoteID: c.remote, Private: private}
	c.message, c.granted = nil, true
	if len(private) > 0 {
		a.keep(c, &m)
	} else {
		a.send(c, &m)
	}
	a.timewait(now, c, Event{Kind: EventDisconnected})
}

// timewait keeps c until no packet of it can be in the network any more (IBTA
// 12.9.8.4), and tells the program e. The message of c, if any, is the DREP.
func (a *Agent) timewait(now clock.Time, c *conn, e Event) {
	if c.state != StateDREQReceived {
		c.message = nil
	}
	a.tell(c, e)
	a.timers.stop(c)
	a.closeSetup(c)
	a.forget(c)
	if a.stats.Timewait >= a.cfg.Timewaits {
		a.finish(c, Event{Kind: EventTimewaitExit})
		return
	}
	a.setState(c, StateTimewait)
	a.timers.set(c, now.Add(min(mad.Timeout(c.ackTimeout), a.cfg.MaxTimewait)))
}

func (a *Agent) receiveDREQ(now clock.Time, path *Path, b []byte) {
	var m mad.DREQ
	if m.Parse(b) != nil {
		a.stats.Malformed++
		return
	}
	if c := a.conns[m.RemoteID]; c == nil || c.remote != m.LocalID {
		// A DREQ for what has ended is answered too (IBTA 12.9.8.3).
		if c := a.cache.of(path, m.RemoteID, m.LocalID); c != nil {
			dismiss(a, c)
		} else {
			a.stats.Unexpected++
		}
		a.answer(path, &mad.DREP{TransactionID: m.TransactionID, LocalID: m.RemoteID, RemoteID: m.LocalID})
		return
	}
	c := a.pair(path, m.RemoteID, m.LocalID)
	if c == nil {
		return
	}
	if m.RemoteQPN != c.localQPN {
		a.stats.Unexpected++
		return
	}
	switch c.state {
	case StateEstablished, StateREPSent, StateREPReceived:
		a.timers.stop(c)
		a.closeSetup(c)
		c.message = nil
		c.transaction = m.TransactionID
		a.setState(c, StateDREQReceived)
		if c.released {
			a.confirm(now, c, nil)
			return
		}
		a.tell(c, Event{Kind: EventDisconnectRequested, Private: cloned(m.Private)})
	case StateDREQSent: // both want it
		a.send(c, &mad.DREP{TransactionID: m.TransactionID, LocalID: c.local, RemoteID: c.remote})
		c.transaction, c.granted = m.TransactionID, true
		a.timewait(now, c, Event{Kind: EventDisconnected, Private: cloned(m.Private)})
	case StateTimewait: // the DREP was lost
		if a.again() {
			a.resend(c)
		}
	case StateDREQReceived: // the program has it in hand
		a.stats.Duplicates++
	default:
		a.stats.Unexpected++
	}
}

func (a *Agent) receiveDREP(now clock.Time, path *Path, b []byte) {
	var m mad.DREP
	if m.Parse(b) != nil {
		a.stats.Malformed++
		return
	}
	c := a.pair(path, m.RemoteID, m.LocalID)
	if c == nil {
		return
	}
	if c.state != StateDREQSent {
		a.stats.Duplicates++
		return
	}
	a.timewait(now, c, Event{Kind: EventDisconnected, Private: cloned(m.Private)})
}

// partWait is how long Release waits for the RTU of a peer that was accepted.
const partWait = 500 * time.Millisecond

// Release ends an ID in any state, and says to the peer what the state demands.
// The DREQ of an established connection goes again until it is answered. Where
// this side has sent a REP, Release waits a moment for the RTU: a peer that
// hears of the end before it has sent that takes a REJ for a rejection, and
// ignores a DREQ (Linux). No event comes any more. An unknown ID is no error.
func (a *Agent) Release(now clock.Time, id ID) {
	c, err := a.own(id)
	if err != nil {
		return
	}
	c.released = true
	switch c.state {
	case StateEstablished:
		a.startDisconnect(now, c, nil)
		return
	case StateDREQReceived:
		a.confirm(now, c, nil)
		return
	case StateDREQSent, StateTimewait:
		return
	case StateREQSent:
		a.sendREJ(c, mad.StageREQ, mad.ReasonTimeout, a.guidBytes(), nil)
	case StateREPReceived:
		a.sendREJ(c, mad.StageREP, mad.ReasonConsumer, nil, nil)
	case StateREQReceived:
		a.sendREJ(c, mad.StageREQ, mad.ReasonConsumer, nil, nil)
	case StateREPSent:
		a.timers.set(c, now.Add(partWait))
		return
	case StateSIDRReceived:
		a.sendSIDRREP(c, &mad.SIDRREP{Status: mad.SIDRRejected})
	}
	a.remove(c)
}

// Leave is the last call of a program that ends. It sends once more the DREQs
// and DREPs whose loss could not be repaired later: the peer would wait, a
// Linux that asked for the end up to 98 s. Requests that wait for a listener
// are refused.
func (a *Agent) Leave() {
	clear(a.until)
	answerHeld(a, a.now)
	for _, id := range slices.Sorted(maps.Keys(a.conns)) { // each run in the same order
		c := a.conns[id]
		switch {
		case c.state == StateDREQSent || c.state == StateTimewait && c.granted:
			a.resend(c)
		case c.state == StateREPSent && c.released:
			a.sendREJ(c, mad.StageOther, mad.ReasonConsumer, nil, nil)
			a.remove(c)
		}
	}
}
