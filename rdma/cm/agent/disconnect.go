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
	c, err := a.table.own(id)
	switch {
	case err != nil:
		return err
	case len(private) > mad.DREQPrivateLen:
		return errTooLong
	case c.state == StateDREQReceived:
		a.life.confirm(now, c, private)
	case c.state == StateEstablished:
		a.life.startDisconnect(now, c, private)
	case c.state == StateDREQSent, c.state == StateTimewait:
	default:
		return &StateError{"disconnect", c.state}
	}
	return nil
}

// Confirm answers the DREQ of the peer with a DREP, whose private data has at
// most mad.DREPPrivateLen bytes. The event Disconnected follows at once.
func (a *Agent) Confirm(now clock.Time, id ID, private []byte) error {
	c, err := a.table.own(id)
	switch {
	case err != nil:
		return err
	case c.state != StateDREQReceived:
		return &StateError{"send DREP", c.state}
	case len(private) > mad.DREPPrivateLen:
		return errTooLong
	}
	a.life.confirm(now, c, private)
	return nil
}

func (a *Agent) receiveDREQ(now clock.Time, path *Path, b []byte) {
	var m mad.DREQ
	if m.Parse(b) != nil {
		a.stats.Malformed++
		return
	}
	if c := a.table.conns[m.RemoteID]; c == nil || c.remote != m.LocalID {
		// A DREQ for what has ended is answered too (IBTA 12.9.8.3).
		if c := a.greeting.cache.of(path, m.RemoteID, m.LocalID); c != nil {
			a.greeting.dismiss(c)
		} else {
			a.stats.Unexpected++
		}
		a.out.answer(path, &mad.DREP{TransactionID: m.TransactionID, LocalID: m.RemoteID, RemoteID: m.LocalID})
		return
	}
	c := a.table.pair(path, m.RemoteID, m.LocalID)
	if c == nil {
		return
	}
	if m.RemoteQPN != c.localQPN || c.detached {
		a.stats.Unexpected++
		return
	}
	switch c.state {
	case StateEstablished, StateREPSent, StateREPReceived:
		a.life.timers.stop(c)
		a.gate.closeSetup(c)
		c.message = nil
		c.transaction = m.TransactionID
		a.table.setState(c, StateDREQReceived)
		if c.released {
			a.life.confirm(now, c, nil)
			return
		}
		a.life.tell(c, Event{Kind: EventDisconnectRequested, Private: cloned(m.Private)})
	case StateDREQSent: // both want it
		a.out.send(c, &mad.DREP{TransactionID: m.TransactionID, LocalID: c.local, RemoteID: c.remote})
		c.transaction, c.granted = m.TransactionID, true
		a.life.timewait(now, c, Event{Kind: EventDisconnected, Private: cloned(m.Private)})
	case StateTimewait: // the DREP was lost
		if a.out.again() {
			a.out.resend(c)
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
	c := a.table.pair(path, m.RemoteID, m.LocalID)
	if c == nil {
		return
	}
	if c.state != StateDREQSent {
		a.stats.Duplicates++
		return
	}
	a.life.timewait(now, c, Event{Kind: EventDisconnected, Private: cloned(m.Private)})
}

// partWait is how long Release waits for the RTU of a peer that was accepted.
const partWait = 500 * time.Millisecond

// Release ends an ID in any state, and says to the peer what the state demands.
// The DREQ of an established connection goes again until it is answered. Where
// this side has sent a REP, Release waits a moment for the RTU: a peer that
// hears of the end before it has sent that takes a REJ for a rejection, and
// ignores a DREQ (Linux). No event comes any more. An unknown ID is no error.
func (a *Agent) Release(now clock.Time, id ID) {
	c, err := a.table.own(id)
	if err != nil {
		return
	}
	c.released = true
	switch c.state {
	case StateEstablished:
		if c.detached {
			break
		}
		a.life.startDisconnect(now, c, nil)
		return
	case StateDREQReceived:
		a.life.confirm(now, c, nil)
		return
	case StateDREQSent, StateTimewait:
		return
	case StateREQSent:
		a.out.sendREJ(c, mad.StageREQ, mad.ReasonTimeout, a.out.guidBytes(), nil)
	case StateREPReceived:
		a.out.sendREJ(c, mad.StageREP, mad.ReasonConsumer, nil, nil)
	case StateREQReceived:
		a.out.sendREJ(c, mad.StageREQ, mad.ReasonConsumer, nil, nil)
	case StateREPSent:
		a.life.timers.set(c, now.Add(partWait))
		return
	case StateSIDRReceived:
		a.out.sendSIDRREP(c, &mad.SIDRREP{Status: mad.SIDRRejected})
	}
	a.life.remove(c)
}

// Leave is the last call of a program that ends. It sends once more the DREQs
// and DREPs whose loss could not be repaired later: the peer would wait, a
// Linux that asked for the end up to 98 s. Requests that wait for a listener
// are refused.
func (a *Agent) Leave() {
	clear(a.expected.until)
	a.answerHeld(a.out.now)
	for _, id := range slices.Sorted(maps.Keys(a.table.conns)) { // each run in the same order
		c := a.table.conns[id]
		switch {
		case c.state == StateDREQSent || c.state == StateTimewait && c.granted:
			a.out.resend(c)
		case c.state == StateREPSent && c.released:
			a.out.sendREJ(c, mad.StageOther, mad.ReasonConsumer, nil, nil)
			a.life.remove(c)
		}
	}
}
