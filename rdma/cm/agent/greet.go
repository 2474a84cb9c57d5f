package agent

import (
	"encoding/binary"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// greeting answers requests for listeners that have a Greeter, and makes a
// connection of a candidate when its peer has shown that it gets the answers.
type greeting struct {
	cfg   *Config
	stats *Stats
	cache candidateCache
	sieve *sieve // the gate's
	table *table
	out   *outbox
	life  *lifecycle
}

// greet answers a request for a listener that has a Greeter. hash identifies
// it. It reports false for one that the program is to be asked about.
func (g *greeting) greet(now clock.Time, path *Path, l *listener, m *mad.REQ, b []byte) (done bool) {
	hash, source := g.sieve.hash(path, m.LocalGUID, m.LocalID), g.sieve.hash(path, 0, 0)
	c := g.cache.byHash[hash]
	if c != nil && c.listener != l {
		g.dismiss(c)
		c = nil
	}
	if c != nil {
		g.stats.Duplicates++
		if g.out.budget.forAgain(now, source) {
			g.replyTo(path, c, m)
		}
		return true
	}
	late := g.out.strangers >= g.out.room/2 // the answers do not leave as quickly as requests come
	if (late || !g.out.budget.forFirst(now, source)) && !(g.sieve.returns(now, hash) && g.out.budget.forAgain(now, source)) {
		g.stats.Overloaded++
		return true
	}
	rep, rej := l.greeter(path, m)
	switch {
	case rep == nil && rej == nil:
		return false
	case rep == nil:
		g.stats.Refused++
		rej.TransactionID, rej.RemoteID, rej.Message = m.TransactionID, m.LocalID, mad.StageREQ
		g.out.answerAnyway(path, rej)
		return true
	}
	c = &candidate{listener: l, addresses: addressesOf(path), remote: m.LocalID, qpn: g.cfg.Hold(), hash: hash, at: now, ece: rep.ECE,
		flowLabel: m.Primary.FlowLabel & 0xfffff, class: m.Primary.TrafficClass}
	if c.qpn == 0 {
		g.stats.Overloaded++
		return true
	}
	path.FlowLabel, path.TrafficClass = c.flowLabel, c.class
	c.local, c.psn = g.table.newID(), rocev2.PSN(g.cfg.Random())&rocev2.PSNMask
	copy(c.req[:], b)
	if gone := g.cache.enter(c, source); gone != nil {
		g.stats.Evicted++
		g.sieve.expects(now, gone.hash)
		g.cfg.Release(gone.qpn)
	}
	g.reply(path, c, rep)
	return true
}

// reply sends the REP of a candidate.
func (g *greeting) reply(path *Path, c *candidate, rep *mad.REP) {
	var h mad.Header
	_ = h.Parse(c.req[:]) // it has parsed
	rep.TransactionID, rep.LocalID, rep.RemoteID, rep.LocalGUID = h.TransactionID, c.local, c.remote, g.cfg.GUID
	rep.LocalQPN, rep.StartingPSN, rep.ECE = c.qpn, c.psn, c.ece
	g.out.answerAnyway(path, rep)
}

// replyTo sends it once more.
func (g *greeting) replyTo(path *Path, c *candidate, m *mad.REQ) {
	if rep, _ := c.listener.greeter(path, m); rep != nil {
		g.reply(path, c, rep)
	}
}

// dismiss forgets a candidate.
func (g *greeting) dismiss(c *candidate) {
	g.cache.leave(c)
	g.cfg.Release(c.qpn)
}

// attend does what is due with the candidates.
func (g *greeting) attend(now clock.Time) {
	for c, turn := g.cache.due(now); c != nil; c, turn = g.cache.due(now) {
		var m mad.REQ
		_ = m.Parse(c.req[:]) // it has parsed
		path := c.path()
		switch {
		case turn == len(turns) || c.listener.greeter == nil:
			g.dismiss(c)
		case g.cfg.Heard != nil && g.cfg.Heard(c.qpn, path.Remote, c.psn):
			g.welcome(now, c)
		case !turns[turn].asks:
		case g.cache.all.Len() <= fewCandidates || g.out.budget.forOwn(now, g.sieve.hash(&path, 0, 0)):
			g.stats.Resent++
			g.replyTo(&path, c, &m)
		}
	}
}

// welcome makes a connection of a candidate that has shown that it is there,
// unless too many wait for the program: then it stays one. Where the listener
// has ended, or greets no more, the peer is rejected.
func (g *greeting) welcome(now clock.Time, c *candidate) {
	var m mad.REQ
	_ = m.Parse(c.req[:]) // it has parsed
	path := c.path()
	l := c.listener
	if l.greeter == nil {
		g.dismiss(c)
		g.out.refuse(&path, m.TransactionID, c.local, c.remote, mad.StageOther, mad.ReasonConsumer, nil)
		return
	}
	if l.ready >= l.backlog {
		g.stats.Overloaded++
		return
	}
	if p := g.table.peers[c.addresses]; p != nil {
		if reason := g.life.obstacle(now, p, &m); reason != 0 {
			g.dismiss(c)
			g.out.refuse(&path, m.TransactionID, c.local, c.remote, mad.StageOther, reason, nil)
			return
		}
	}
	g.cache.leave(c)
	made := g.table.enter(&path, StateEstablished, c.local)
	made.remote, made.remoteQPN, made.guid, made.transaction = m.LocalID, m.LocalQPN, m.LocalGUID, m.TransactionID
	made.localQPN, made.ackTimeout, made.maxRetries = c.qpn, m.Primary.AckTimeout, m.MaxRetries
	g.table.index(made)
	g.table.learn(made)
	made.setup = &setup{listener: l, ready: true}
	l.ready++
	req := m
	req.Private = cloned(m.Private)
	g.life.tell(made, Event{Kind: EventRequest, Request: &req, QPN: c.qpn, PSN: c.psn, ECE: c.ece})
}

// withdrawn handles a REJ that is about a candidate, and reports whether it is.
func (g *greeting) withdrawn(path *Path, m *mad.REJ) bool {
	c := g.cache.of(path, m.RemoteID, m.LocalID)
	if c == nil && m.Reason == mad.ReasonTimeout && m.RemoteID == 0 && len(m.ARI) >= 8 {
		guid := mad.GUID(binary.BigEndian.Uint64(m.ARI))
		c = g.cache.byHash[g.sieve.hash(path, guid, m.LocalID)]
	}
	if c == nil {
		return false
	}
	g.dismiss(c)
	return true
}
