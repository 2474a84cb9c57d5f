package relay

import (
	"math"
	"net/netip"
	"time"

	"github.com/gosoftroce/rocev2/internal/list"
	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/rocev2/mad"
)

const (
	// partTurns is how often a peer that does not answer is told.
	partTurns = 4
	// partPause is the time between two peers: more are not told at once
	// than their hosts can take.
	partPause = 50 * time.Microsecond
)

// partWaits is how long a DREP is waited for after each turn.
var partWaits = [partTurns]time.Duration{250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second}

// parting has the connections of leases that have gone, whose peers are being
// told. Each list is in the order of time, because all wait as long after one
// turn.
type parting struct {
	of    map[partKey]*conn
	turns [partTurns + 1]list.List[conn] // by how often they were told
}

// partKey finds one by what its peer says.
type partKey struct {
	peer          netip.Addr
	local, remote mad.CommID
}

// part has the peer of a connection told that it has ended.
func (r *Relay) part(c *conn) {
	p := &r.parting
	k := c.partKey()
	if p.of[k] != nil {
		return
	}
	if len(p.of) >= r.cfg.Farewells {
		for i := partTurns; i >= 0; i-- {
			if oldest := p.turns[i].Front(); oldest != nil {
				p.leave(oldest)
				break
			}
		}
	}
	p.of[k] = c
	c.lease, c.turn, c.at = nil, 0, r.now
	if last := p.turns[0].Back(); last != nil {
		c.at = max(r.now, last.at.Add(partPause))
	}
	c.joinList(&p.turns[0])
	r.stats.Farewells++
}

func (c *conn) partKey() partKey { return partKey{c.peer, c.local, c.remote} }

func (p *parting) leave(c *conn) {
	delete(p.of, c.partKey())
	c.leaveList()
}

func (p *parting) deadline() clock.Time {
	at := clock.Time(math.MaxInt64)
	for i := range p.turns {
		if c := p.turns[i].Front(); c != nil {
			at = min(at, c.at)
		}
	}
	return at
}

// tellNext writes what the next peer is told, if it is time for one.
func (r *Relay) tellNext(b []byte) (Datagram, bool) {
	p := &r.parting
	for c := p.turns[partTurns].Front(); c != nil && c.at <= r.now; c = p.turns[partTurns].Front() {
		p.leave(c)
		r.stats.Unanswered++
	}
	for i := range partTurns {
		c := p.turns[i].Front()
		if c == nil || c.at > r.now {
			continue
		}
		c.farewell().AppendTo(b[:0])
		if c.ends() {
			c.leaveList()
			c.at = r.now.Add(partWaits[i])
			c.turn++
			c.joinList(&p.turns[c.turn])
		} else {
			p.leave(c) // a REJ has no answer
		}
		return Datagram{Slot: Network, Addr: c.peer, TrafficClass: c.class &^ 3, HopLimit: hopLimit, FlowLabel: c.flowLabel}, true
	}
	return Datagram{}, false
}

const hopLimit = 64

// ends reports whether the peer takes a DREQ: it has the connection, or may
// have it, because only the RTU is missing. A peer without the REP asks again,
// and learns then that it is not served.
func (c *conn) ends() bool {
	return (c.state == replied || c.state == established || c.state == closing) && c.qpn != 0
}

// farewell is what the peer is told: what the lease would have said (IBTA
// 12.9.8, 12.6.7).
func (c *conn) farewell() mad.Message {
	if c.ends() {
		return &mad.DREQ{TransactionID: c.transaction, LocalID: c.local, RemoteID: c.remote, RemoteQPN: c.qpn}
	}
	m := &mad.REJ{TransactionID: c.transaction, LocalID: c.local, RemoteID: c.remote, Message: mad.StageOther, Reason: mad.ReasonConsumer}
	switch c.state {
	case asking:
		m.Message, m.Reason, m.ARI = mad.StageREQ, mad.ReasonTimeout, be.AppendUint64(nil, uint64(c.guid))
	case answered:
		m.Message = mad.StageREP
	case requested: // that it is not served is what a peer may wait to change
		m.Message, m.Reason = mad.StageREQ, mad.ReasonInvalidServiceID
	}
	return m
}

// reply takes what a peer says of a connection whose lease has gone.
func (r *Relay) reply(now clock.Time, from Source, c *conn, m message, b []byte) Verdict {
	switch m.attribute {
	case mad.AttrDREP, mad.AttrREJ:
		r.parting.leave(c)
		return Verdict{Action: Taken}
	case mad.AttrDREQ:
		r.parting.leave(c)
	}
	return r.take(now, from, b)
}
