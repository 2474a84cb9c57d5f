package agent

import (
	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// Reject refuses a request, or the peer's reply, and ends the ID. ari has at
// most mad.ARILen bytes, private mad.REJPrivateLen.
func (a *Agent) Reject(now clock.Time, id ID, reason mad.Reason, ari, private []byte) error {
	c, err := a.own(id)
	if err != nil {
		return err
	}
	if len(ari) > mad.ARILen || len(private) > mad.REJPrivateLen {
		return errTooLong
	}
	var stage mad.Stage
	switch c.state {
	case StateREQReceived:
		stage = mad.StageREQ
	case StateREPReceived:
		stage = mad.StageREP
	case StateREPSent:
		stage = mad.StageOther
	default:
		return &StateError{"reject", c.state}
	}
	a.sendREJ(c, stage, reason, ari, private)
	a.remove(c)
	return nil
}

// Ignore ends a request that the program has not answered, without a word to
// the peer. If the request comes again it is a new one, and has a claim.
func (a *Agent) Ignore(now clock.Time, id ID) error {
	c, err := a.own(id)
	switch {
	case err != nil:
		return err
	case c.state != StateREQReceived && c.state != StateSIDRReceived:
		return &StateError{"ignore", c.state}
	}
	a.expect(now, c)
	a.remove(c)
	return nil
}

// receiveREJ finds the connection as Linux does: for a timeout by the GUID of
// the side that gives up, for a REQ by this side's ID, and else by both IDs.
func (a *Agent) receiveREJ(now clock.Time, path *Path, b []byte) {
	var m mad.REJ
	if m.Parse(b) != nil {
		a.stats.Malformed++
		return
	}
	if withdrawn(a, path, &m) {
		return
	}
	c := a.rejected(path, &m)
	if c == nil {
		return
	}
	if c.state == StateREQSent && m.Reason == mad.ReasonInvalidServiceID && a.timers.askLater(now, c) {
		return
	}
	e := Event{Kind: EventRejected, Reason: m.Reason, ARI: cloned(m.ARI), Private: cloned(m.Private)}
	switch c.state {
	case StateREQSent, StateREPReceived, StateREQReceived, StateREPSent:
		a.finish(c, e)
	case StateEstablished, StateDREQSent, StateDREQReceived:
		e.Kind = EventDisconnected
		a.timewait(now, c, e)
	default:
		a.stats.Unexpected++
	}
}

// stale handles a connection whose peer uses its queue pair for another, and
// reports whether that one must be rejected: the peer has forgotten this one
// (IBTA 12.9.8.3). A connection that is at its end anyway does not stand in the
// way.
func (a *Agent) stale(now clock.Time, c *conn) bool {
	switch c.state {
	case StateEstablished:
		a.startDisconnect(now, c, nil)
	case StateREPReceived, StateREQReceived, StateREPSent:
		a.finish(c, Event{Kind: EventRejected, Reason: mad.ReasonStale, Own: true})
	default:
		a.forget(c)
		return false
	}
	a.stats.Stale++
	return true
}
