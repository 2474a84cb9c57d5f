package agent

import (
	"net/netip"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// parts are those of an agent below its messages: nothing here is received.
type parts struct {
	cfg   Config
	stats Stats
	table table
	gate  gate
	out   outbox
	life  lifecycle
}

func newParts() *parts {
	next := uint32(0)
	p := &parts{cfg: Config{Random: func() uint32 { next++; return next }}}
	p.cfg.fill()
	p.table = makeTable(&p.cfg, &p.stats)
	p.gate = makeGate(p.cfg.Random, &p.cfg, &p.stats)
	p.out = outbox{room: 2, budget: budget{rate: p.cfg.Answers}, stats: &p.stats}
	p.life = lifecycle{cfg: &p.cfg, stats: &p.stats, table: &p.table, gate: &p.gate, out: &p.out}
	return p
}

var partsPath = Path{Local: netip.MustParseAddr("10.0.0.1"), Remote: netip.MustParseAddr("10.0.0.2")}

// connection makes one that is established, with a known peer.
func (p *parts) connection() *conn {
	c := p.table.add(&partsPath, StateREPReceived)
	c.remote, c.remoteQPN, c.guid, c.maxRetries, c.ackTimeout = 7, 77, 777, 2, 14
	p.table.learn(c)
	p.life.establish(c)
	return c
}

// sent returns the attributes of what waits for Send.
func (p *parts) sent() (list []mad.Attribute) {
	var b [mad.Len]byte
	for _, ok := p.out.next(b[:]); ok; _, ok = p.out.next(b[:]) {
		var h mad.Header
		if h.Parse(b[:]) == nil {
			list = append(list, h.Attribute)
		}
	}
	return list
}

// A connection is found by each thing that a message says of it, and by none
// when it is removed. Its number of a peer is free then.
func TestTableFindsAndForgets(t *testing.T) {
	t.Parallel()
	p := newParts()
	c := p.connection()
	p.table.index(c)
	local := c.local
	other := partsPath
	other.Remote = netip.MustParseAddr("10.0.0.3")
	if p.table.pair(&partsPath, local, 7) != c || p.table.byQPN[key{777, c.peer.number, 77}] != c || p.table.byID[key{777, c.peer.number, 7}] != c {
		t.Error("the connection is not found")
	}
	if p.table.pair(&partsPath, local, 8) != nil || p.table.pair(&other, local, 7) != nil || p.stats.Unexpected != 1 || p.stats.WrongAddress != 1 {
		t.Errorf("another peer finds it: %+v", p.stats)
	}
	p.table.remove(c)
	if n := len(p.table.conns) + len(p.table.byID) + len(p.table.byQPN) + len(p.table.peers); n != 0 {
		t.Errorf("%d entries are left", n)
	}
}

// A DREQ without an answer goes again as often as the connection says. Then
// timewait follows, and after it nothing is left.
func TestLifecycleOfADisconnect(t *testing.T) {
	t.Parallel()
	p := newParts()
	c := p.connection()
	now := clock.Time(time.Second)
	p.life.startDisconnect(now, c, nil)
	for len(p.life.timers) > 0 {
		now = p.life.timers[0].deadline
		p.life.fire(now, p.life.timers[0])
	}
	if got := p.sent(); len(got) != 3 || got[0] != mad.AttrDREQ || got[2] != mad.AttrDREQ {
		t.Errorf("sent: %v", got)
	}
	for _, want := range []EventKind{EventDisconnected, EventTimewaitExit} {
		if e, _ := p.life.events.pop(); e.Kind != want || e.Path.Remote != partsPath.Remote {
			t.Errorf("event %v, want %v", e.Kind, want)
		}
	}
	if p.stats.Timewait != 0 || len(p.table.conns) != 0 {
		t.Errorf("%d connections are left: %+v", len(p.table.conns), p.stats)
	}
}

// A peer that uses its queue pair for another connection has forgotten the one
// that is established: that is disconnected. One in timewait is in no one's
// way.
func TestLifecycleOfAStaleConnection(t *testing.T) {
	t.Parallel()
	p := newParts()
	c := p.connection()
	if !p.life.stale(0, c) || c.state != StateDREQSent || p.stats.Stale != 1 {
		t.Errorf("state %v, %+v", c.state, p.stats)
	}
	p.life.timewait(0, c, Event{Kind: EventDisconnected})
	if p.life.stale(0, c) {
		t.Error("a connection in timewait is stale")
	}
	c.released = true
	p.life.events = queue[Event]{}
	p.life.finish(c, Event{Kind: EventTimewaitExit})
	if e, ok := p.life.events.pop(); ok {
		t.Errorf("the program is told %v of an ID that it has released", e.Kind)
	}
}

// Answers to peers that have no connection have a bound of their own: what a
// connection sends is never refused for them.
func TestOutboxBoundsStrangers(t *testing.T) {
	t.Parallel()
	p := newParts()
	for range 5 {
		p.out.refuse(&partsPath, 1, 2, 3, mad.StageREQ, mad.ReasonInvalidServiceID, nil)
	}
	p.out.send(p.connection(), &mad.RTU{})
	if got := p.sent(); len(got) != 3 || p.stats.Unanswered != 3 || p.out.strangers != 0 {
		t.Errorf("%v is sent, %d are not", got, p.stats.Unanswered)
	}
	p.out.refuse(&partsPath, 1, 2, 3, mad.StageREQ, mad.ReasonInvalidServiceID, nil)
	if got := p.sent(); len(got) != 1 {
		t.Errorf("%v is sent when there is room again", got)
	}
}

// A resolver asks, and takes the answer of the peer that it has asked only.
func TestResolverTakesTheAnswerOfItsPeer(t *testing.T) {
	t.Parallel()
	p := newParts()
	r := resolver{cfg: &p.cfg, stats: &p.stats, table: &p.table, gate: &p.gate, out: &p.out, life: &p.life, expected: &expected{}}
	id, err := r.resolve(0, &SIDRRequest{Path: partsPath, ServiceID: 5})
	if err != nil || len(p.sent()) != 1 {
		t.Fatalf("no question: %v", err)
	}
	answer := (&mad.SIDRREP{RequestID: mad.CommID(id), ServiceID: 5, QPN: 9}).AppendTo(nil)
	other := partsPath
	other.Remote = netip.MustParseAddr("10.0.0.3")
	r.receiveREP(0, &other, answer)
	if _, ok := p.life.events.pop(); ok {
		t.Error("another peer answers")
	}
	r.receiveREP(0, &partsPath, answer)
	if e, _ := p.life.events.pop(); e.Kind != EventSIDRReply || e.SIDRReply.QPN != 9 || len(p.table.conns) != 0 {
		t.Errorf("event %+v", e)
	}
}
