package agent

import (
	"encoding/binary"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// greet answers a request for a listener that has a Greeter. hash identifies
// it. It reports false for one that the program is to be asked about.
func greet(a *Agent, now clock.Time, path *Path, l *listener, m *mad.REQ, b []byte) (done bool) {
	hash, source := a.sieve.hash(path, m.LocalGUID, m.LocalID), a.sieve.hash(path, 0, 0)
	c := a.cache.byHash[hash]
	if c != nil && c.listener != l {
		dismiss(a, c)
		c = nil
	}
	if c != nil {
		a.stats.Duplicates++
		if a.budget.forAgain(now, source) {
			replyTo(a, path, c, m)
		}
		return true
	}
	late := a.strangers >= a.room/2 // the answers do not leave as quickly as requests come
	if (late || !a.budget.forFirst(now, source)) && !(a.sieve.returns(now, hash) && a.budget.forAgain(now, source)) {
		a.stats.Overloaded++
		return true
	}
	rep, rej := l.greeter(path, m)
	switch {
	case rep == nil && rej == nil:
		return false
	case rep == nil:
		a.stats.Refused++
		rej.TransactionID, rej.RemoteID, rej.Message = m.TransactionID, m.LocalID, mad.StageREQ
		a.answerAnyway(path, rej)
		return true
	}
	c = &candidate{listener: l, addresses: addressesOf(path), remote: m.LocalID, qpn: a.cfg.Hold(), hash: hash, at: now, ece: rep.ECE,
		flowLabel: m.Primary.FlowLabel & 0xfffff, class: m.Primary.TrafficClass}
	if c.qpn == 0 {
		a.stats.Overloaded++
		return true
	}
	path.FlowLabel, path.TrafficClass = c.flowLabel, c.class
	c.local, c.psn = a.newID(), rocev2.PSN(a.cfg.Random())&rocev2.PSNMask
	copy(c.req[:], b)
	if gone := a.cache.enter(c, source); gone != nil {
		a.stats.Evicted++
		a.sieve.expects(now, gone.hash)
		a.cfg.Release(gone.qpn)
	}
	reply(a, path, c, rep)
	return true
}

// reply sends the REP of a candidate.
func reply(a *Agent, path *Path, c *candidate, rep *mad.REP) {
	var h mad.Header
	_ = h.Parse(c.req[:]) // it has parsed
	rep.TransactionID, rep.LocalID, rep.RemoteID, rep.LocalGUID = h.TransactionID, c.local, c.remote, a.cfg.GUID
	rep.LocalQPN, rep.StartingPSN, rep.ECE = c.qpn, c.psn, c.ece
	a.answerAnyway(path, rep)
}

// replyTo sends it once more.
func replyTo(a *Agent, path *Path, c *candidate, m *mad.REQ) {
	if rep, _ := c.listener.greeter(path, m); rep != nil {
		reply(a, path, c, rep)
	}
}

// dismiss forgets a candidate.
func dismiss(a *Agent, c *candidate) {
	a.cache.leave(c)
	a.cfg.Release(c.qpn)
}

// attend does what is due with the candidates.
func attend(a *Agent, now clock.Time) {
	for c, turn := a.cache.due(now); c != nil; c, turn = a.cache.due(now) {
		var m mad.REQ
		_ = m.Parse(c.req[:]) // it has parsed
		path := c.path()
		switch {
		case turn == len(repeats) || c.listener.greeter == nil:
			dismiss(a, c)
		case a.cfg.Heard != nil && a.cfg.Heard(c.qpn, path.Remote, c.psn):
			welcome(a, now, c)
		case turn == 0:
		case a.cache.all.n <= fewCandidates || a.budget.forOwn(now, a.sieve.hash(&path, 0, 0)):
			a.stats.Resent++
			replyTo(a, &path, c, &m)
		}
	}
}

// welcome makes a connection of a candidate that has shown that it is there,
// unless too many wait for the program: then it stays one. Where the listener
// has ended, or greets no more, the peer is rejected.
func welcome(a *Agent, now clock.Time, c *candidate) {
	var m mad.REQ
	_ = m.Parse(c.req[:]) // it has parsed
	path := c.path()
	l := c.listener
	if l.greeter == nil {
		dismiss(a, c)
		a.refuse(&path, m.TransactionID, c.local, c.remote, mad.StageOther, mad.ReasonConsumer, nil)
		return
	}
	if l.ready >= l.backlog {
		a.stats.Overloaded++
		return
	}
	if p := a.peers[c.addresses]; p != nil {
		old := a.byQPN[key{m.LocalGUID, p.number, uint32(m.LocalQPN)}]
		if old != nil && a.stale(now, old) {
			dismiss(a, c)
			a.refuse(&path, m.TransactionID, c.local, c.remote, mad.StageOther, mad.ReasonStale, nil)
			return
		}
	}
	a.cache.leave(c)
	made := a.enter(&path, StateEstablished, c.local)
	made.remote, made.remoteQPN, made.guid, made.transaction = m.LocalID, m.LocalQPN, m.LocalGUID, m.TransactionID
	made.localQPN, made.ackTimeout, made.maxRetries = c.qpn, m.Primary.AckTimeout, m.MaxRetries
	a.index(made)
	a.learn(made)
	made.setup = &setup{listener: l, ready: true}
	l.ready++
	req := m
	req.Private = cloned(m.Private)
	a.tell(made, Event{Kind: EventRequest, Request: &req, QPN: c.qpn, PSN: c.psn, ECE: c.ece})
}

// withdrawn handles a REJ that is about a candidate, and reports whether it is.
func withdrawn(a *Agent, path *Path, m *mad.REJ) bool {
	c := a.cache.of(path, m.RemoteID, m.LocalID)
	if c == nil && m.Reason == mad.ReasonTimeout && m.RemoteID == 0 && len(m.ARI) >= 8 {
		guid := mad.GUID(binary.BigEndian.Uint64(m.ARI))
		c = a.cache.byHash[a.sieve.hash(path, guid, m.LocalID)]
	}
	if c == nil {
		return false
	}
	dismiss(a, c)
	return true
}
