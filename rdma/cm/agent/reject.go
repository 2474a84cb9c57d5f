package agent

import (
	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// Reject refuses a request, or the peer's reply, and ends the ID. ari has at
// most mad.ARILen bytes, private mad.REJPrivateLen.
func (a *Agent) Reject(now clock.Time, id ID, reason mad.Reason, ari, private []byte) error {
	c, err := a.table.own(id)
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
	a.out.sendREJ(c, stage, reason, ari, private)
	a.life.remove(c)
	return nil
}

// Ignore ends a request that the program has not answered, without a word to
// the peer. If the request comes again it is a new one, and has a claim.
func (a *Agent) Ignore(now clock.Time, id ID) error {
	c, err := a.table.own(id)
	switch {
	case err != nil:
		return err
	case c.state != StateREQReceived && c.state != StateSIDRReceived:
		return &StateError{"ignore", c.state}
	}
	a.gate.expect(now, c)
	a.life.remove(c)
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
	if a.greeting.withdrawn(path, &m) {
		return
	}
	c := a.table.rejected(path, &m)
	if c == nil {
		return
	}
	if c.detached {
		a.stats.Unexpected++
		return
	}
	if c.state == StateREQSent && m.Reason == mad.ReasonInvalidServiceID && a.life.timers.askLater(now, c) {
		return
	}
	e := Event{Kind: EventRejected, Reason: m.Reason, ARI: cloned(m.ARI), Private: cloned(m.Private)}
	switch c.state {
	case StateREQSent, StateREPReceived, StateREQReceived, StateREPSent:
		a.life.finish(c, e)
	case StateEstablished, StateDREQSent, StateDREQReceived:
		e.Kind = EventDisconnected
		a.life.timewait(now, c, e)
	default:
		a.stats.Unexpected++
	}
}
