package agent

import (
	"math"

	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// Agent is the communication manager of an address. It is not safe for
// concurrent use. It takes apart what arrives, finds the connection and decides
// by its state; its parts do the rest.
type Agent struct {
	cfg   Config
	stats Stats

	table     table     // connections, by all that a message says of them
	gate      gate      // bounds requests of peers that are not yet connections
	out       outbox    // MADs that wait for Send
	life      lifecycle // moves connections on, and ends them: timers, events
	listeners listeners
	expected  expected // requests for services that get a listener soon
	greeting  greeting // answers requests without the program
	resolver  resolver // SIDR
}

// New makes an agent.
func New(cfg Config) *Agent {
	cfg.fill()
	a := &Agent{cfg: cfg, listeners: listeners{}}
	transaction := uint64(cfg.Random()) << 32
	a.table = makeTable(&a.cfg, &a.stats)
	a.gate = makeGate(cfg.Random, &a.cfg, &a.stats)
	a.out = outbox{guid: cfg.GUID, identity: cfg.Identity, room: cfg.Replies, budget: budget{rate: cfg.Answers}, stats: &a.stats}
	a.life = lifecycle{cfg: &a.cfg, stats: &a.stats, table: &a.table, gate: &a.gate, out: &a.out, transaction: transaction}
	a.greeting = greeting{cfg: &a.cfg, stats: &a.stats, cache: candidateCache{cfg: &a.cfg}, sieve: &a.gate.sieve,
		table: &a.table, out: &a.out, life: &a.life}
	a.resolver = resolver{cfg: &a.cfg, stats: &a.stats, table: &a.table, gate: &a.gate, out: &a.out, life: &a.life,
		listeners: a.listeners, expected: &a.expected}
	return a
}

// Stats returns the counters.
func (a *Agent) Stats() Stats {
	s := a.stats
	s.Connections, s.Timers = len(a.table.conns), len(a.life.timers)
	s.HalfOpen += a.greeting.cache.all.Len()
	return s
}

// Receive takes a MAD from the network. What is wrong is dropped, or rejected,
// and counted. b is the caller's again afterwards.
func (a *Agent) Receive(now clock.Time, path Path, b []byte) {
	a.stats.Received++
	a.out.now = now
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
		a.resolver.receiveREQ(now, &path, b)
	case mad.AttrSIDRREP:
		a.resolver.receiveREP(now, &path, b)
	default:
		a.stats.Unsupported++
	}
}

// Deadline returns when Advance must be called, or the end of time.
func (a *Agent) Deadline() clock.Time {
	at := clock.Time(math.MaxInt64)
	if t, ok := a.greeting.cache.deadline(); ok {
		at = t
	}
	if len(a.life.timers) > 0 {
		at = min(at, a.life.timers[0].deadline)
	}
	return a.expected.deadline(at)
}

// Advance does what is due at now.
func (a *Agent) Advance(now clock.Time) {
	a.greeting.attend(now)
	a.answerHeld(now)
	for len(a.life.timers) > 0 && a.life.timers[0].deadline <= now {
		a.life.fire(now, a.life.timers[0])
	}
}

// Event returns the next event, and false if there is none.
func (a *Agent) Event() (Event, bool) { return a.life.events.pop() }

// Send writes the next MAD to send to buf, which must have room for 256 bytes,
// and returns its path; false if there is none.
func (a *Agent) Send(buf []byte) (Path, bool) { return a.out.next(buf) }

// State returns the state of a connection; StateIdle for an unknown ID.
func (a *Agent) State(id ID) State {
	if c := a.table.conns[mad.CommID(id)]; c != nil && !c.released {
		return c.state
	}
	return StateIdle
}

// Unanswered reports whether nothing at all has come back for a request of this
// side, which still goes again.
func (a *Agent) Unanswered(id ID) bool {
	c, err := a.table.own(id)
	return err == nil && !c.heard && (c.state == StateREQSent || c.state == StateSIDRSent)
}

// Parting reports whether an ID that was released waits for an RTU.
func (a *Agent) Parting() bool {
	for _, c := range a.table.conns {
		if c.released && c.state == StateREPSent {
			return true
		}
	}
	return false
}
