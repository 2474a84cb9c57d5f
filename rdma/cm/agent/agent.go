package agent

import (
	"math"

	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// Agent is the communication manager of an address. It is not safe for
// concurrent use.
type Agent struct {
	table
	gate
	outbox
	cache candidateCache
	listeners
	expected
	cfg     Config
	timers  timers
	answers answers
	events  queue[Event]
	stats   Stats
	// transaction is the upper half of transaction IDs.
	transaction uint64
}

// listeners are those who take requests, by service.
type listeners map[mad.ServiceID]*listener

type listener struct {
	backlog int
	waiting int // requests that the program has not answered
	ready   int // connections of candidates that the program has not taken
	greeter Greeter
	crowd   crowd
	// requests are those that wait to be taken and have come once, claims
	// those that have come again, and taken those that the program has in
	// hand, oldest first.
	requests, claims, taken list
}

// New makes an agent.
func New(cfg Config) *Agent {
	cfg.fill()
	a := &Agent{
		cfg:         cfg,
		listeners:   map[mad.ServiceID]*listener{},
		transaction: uint64(cfg.Random()) << 32,
	}
	a.table = makeTable(&a.cfg, &a.stats)
	a.gate = makeGate(cfg.Random, &a.cfg, &a.stats)
	a.cache.cfg = &a.cfg
	a.outbox = outbox{guid: cfg.GUID, identity: cfg.Identity, room: cfg.Replies, budget: budget{rate: cfg.Answers}, stats: &a.stats}
	return a
}

// Listen takes requests for a service: REQs or SIDR_REQs. At most backlog of
// them wait for the program; 0 is Config.Backlog. The error is ErrListening.
func (a *Agent) Listen(service mad.ServiceID, backlog int) error {
	if a.listeners[service] != nil {
		return ErrListening
	}
	if backlog <= 0 {
		backlog = a.cfg.Backlog
	}
	a.arrived(a.now, service)
	a.listeners[service] = &listener{backlog: backlog, requests: list{of: inAll}, claims: list{of: inAll}, taken: list{of: inAll}}
	return nil
}

// Take says that the program has a request in hand. It does not have to, but a
// request that is not taken is the first to make room for others.
func (a *Agent) Take(id ID) {
	if c, err := a.own(id); err == nil {
		a.take(c)
	}
}

// Claimant returns the request that the program should take first where many
// wait: the oldest of those that have come again. An honest peer sends its
// request again, and the many of a flood come once. It reports false if there
// is none.
func (ls listeners) Claimant(service mad.ServiceID) (ID, bool) {
	l := ls[service]
	if l == nil || l.claims.first == nil {
		return 0, false
	}
	return ID(l.claims.first.local), true
}

// Unlisten takes no more requests for a service. Those that wait for the
// program are still its own to answer. Peers that a Greeter has accepted, and
// that have not answered that, are rejected when they do.
func (ls listeners) Unlisten(service mad.ServiceID) {
	if l := ls[service]; l != nil {
		l.greeter = nil
	}
	delete(ls, service)
}

// Stats returns the counters.
func (a *Agent) Stats() Stats {
	s := a.stats
	s.Connections, s.Timers = len(a.conns), len(a.timers)
	s.HalfOpen += a.cache.all.n
	return s
}

// Receive takes a MAD from the network. What is wrong is dropped, or rejected,
// and counted. b is the caller's again afterwards.
func (a *Agent) Receive(now clock.Time, path Path, b []byte) {
	a.stats.Received++
	a.now = now
	var h mad.Header
	if h.Parse(b) != nil || h.Check() != nil {
		a.stats.Malformed++
		return
	}
	path.HopLimit = hopLimit
	path.TrafficClass &^= 3 // the network may have marked it (RFC 3168)
	switch h.Attribute {
	case mad.AttrREQ:
		a.receiveREQ(now, &path, b)
	case mad.AttrMRA:
		a.receiveMRA(now, &path, b)
	case mad.AttrREJ:
		a.receiveREJ(now, &path, b)
	case mad.AttrREP:
		a.receiveREP(now, &path, b)
	case mad.AttrRTU:
		a.receiveRTU(now, &path, b)
	case mad.AttrDREQ:
		a.receiveDREQ(now, &path, b)
	case mad.AttrDREP:
		a.receiveDREP(now, &path, b)
	case mad.AttrSIDRREQ:
		a.receiveSIDRREQ(now, &path, b)
	case mad.AttrSIDRREP:
		a.receiveSIDRREP(now, &path, b)
	default:
		a.stats.Unsupported++
	}
}

// Deadline returns when Advance must be called, or the end of time.
func (a *Agent) Deadline() clock.Time {
	at := clock.Time(math.MaxInt64)
	if t, ok := a.cache.deadline(); ok {
		at = t
	}
	if len(a.timers) > 0 {
		at = min(at, a.timers[0].deadline)
	}
	return a.expected.deadline(at)
}

// Advance does what is due at now.
func (a *Agent) Advance(now clock.Time) {
	attend(a, now)
	answerHeld(a, now)
	for len(a.timers) > 0 && a.timers[0].deadline <= now {
		a.fire(now, a.timers[0])
	}
}

// fire handles the timer of c: it starts it again, stops it, or ends c.
func (a *Agent) fire(now clock.Time, c *conn) {
	switch c.state {
	case StateREQReceived, StateSIDRReceived: // the peer has given up long ago
		a.finish(c, Event{Kind: EventUnreachable})
		return
	case StateTimewait:
		a.finish(c, Event{Kind: EventTimewaitExit})
		return
	}
	if c.state == StateREPSent && c.released {
		a.sendREJ(c, mad.StageOther, mad.ReasonConsumer, nil, nil)
		a.remove(c)
		return
	}
	if a.timers.askAgain(now, c) || a.timers.again(now, c) {
		a.stats.Resent++
		a.resend(c)
		return
	}
	switch c.state {
	case StateREQSent:
		a.sendREJ(c, mad.StageREQ, mad.ReasonTimeout, a.guidBytes(), nil)
	case StateREPSent:
		a.sendREJ(c, mad.StageREP, mad.ReasonTimeout, a.guidBytes(), nil)
	case StateDREQSent:
		a.timewait(now, c, Event{Kind: EventDisconnected, TimedOut: true})
		return
	}
	a.finish(c, Event{Kind: EventUnreachable})
}

// tell queues an event of c, unless the program does not know c any more.
func (a *Agent) tell(c *conn, e Event) {
	if c.released {
		return
	}
	e.ID, e.Path = ID(c.local), c.path()
	a.events.push(e)
}

// remove ends a connection. Nothing refers to it afterwards.
func (a *Agent) remove(c *conn) {
	a.timers.stop(c)
	a.closeSetup(c)
	a.table.remove(c)
}

// finish queues a final event and ends c.
func (a *Agent) finish(c *conn, e Event) {
	a.tell(c, e)
	a.remove(c)
}

// Event returns the next event, and false if there is none.
func (a *Agent) Event() (Event, bool) { return a.events.pop() }
