package agent

import (
	"math/bits"

	"github.com/gosoftroce/rocev2/internal/list"
	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// crowd remembers that a bound was reached. It ends when half of the room is
// free, so that a flood does not take every place as it becomes free.
type crowd bool

func (c *crowd) is(n, bound int) bool {
	if n >= bound {
		*c = true
	} else if n <= bound/2 {
		*c = false
	}
	return bool(*c)
}

// sieve tells requests that come again from those that come once. An honest
// peer that has no answer sends its request again, some time later; the many of
// a flood, from sources that do not exist, come once. It remembers the last
// requests by a hash, in a table of fixed size, like a SYN cache.
//
// A slot has a fingerprint of 16 bits, and when it was seen, in units of
// 2^24 ns (17 ms). A request may be in any of four.
type sieve struct {
	slots  []uint32
	secret [2]uint64
}

const (
	sieveSlots = 1 << 18 // at 50,000 requests a second, most are remembered for 5 s
	sieveUnit  = 24      // of time, as a shift
	soonest    = 6       // about 100 ms: before, it is a copy that the network made
	latest     = 3600    // about 60 s
)

// returns reports whether the request was seen before, and remembers it.
func (s *sieve) returns(now clock.Time, hash uint64) bool { return s.remember(now, now, hash) }

// remember is returns with another time to remember, which is before now.
func (s *sieve) remember(now, noted clock.Time, hash uint64) bool {
	if s.slots == nil {
		s.slots = make([]uint32, sieveSlots)
	}
	four := s.slots[hash%sieveSlots&^3:][:4]
	mark, at := uint32(hash>>48)|1, uint16(now>>sieveUnit) // a free slot has mark 0
	oldest := 0
	for i, v := range four {
		age := at - uint16(v)
		if v>>16 == mark && age <= latest {
			return age >= soonest
		}
		if age > at-uint16(four[oldest]) {
			oldest = i
		}
	}
	four[oldest] = mark<<16 | uint32(uint16(noted>>sieveUnit))
	return false
}

// seen is returns that remembers nothing.
func (s *sieve) seen(now clock.Time, hash uint64) bool {
	if s.slots == nil {
		return false
	}
	mark, at := uint32(hash>>48)|1, uint16(now>>sieveUnit)
	for _, v := range s.slots[hash%sieveSlots&^3:][:4] {
		if age := at - uint16(v); v>>16 == mark && age <= latest {
			return age >= soonest
		}
	}
	return false
}

// expects remembers a request so that it has come again whenever it comes.
func (s *sieve) expects(now clock.Time, hash uint64) {
	s.remember(now, now.Add(-soonest<<sieveUnit), hash)
}

// hash identifies a request by its source and its communication ID.
func (s *sieve) hash(p *Path, guid mad.GUID, id mad.CommID) uint64 {
	b := p.Remote.As16()
	h := s.secret[0]
	for _, w := range [...]uint64{bytesToWord(b[:8]), bytesToWord(b[8:]), uint64(guid), uint64(id) | uint64(p.Control)<<32} {
		hi, lo := bits.Mul64(h^w, s.secret[1]|1)
		h = hi ^ lo ^ 0x9e3779b97f4a7c15
	}
	hi, lo := bits.Mul64(h^s.secret[1], 0xbf58476d1ce4e5b9)
	return hi ^ lo
}

func bytesToWord(b []byte) uint64 {
	var w uint64
	for _, v := range b {
		w = w<<8 | uint64(v)
	}
	return w
}

// gate bounds the requests of peers that are not yet connections.
type gate struct {
	cfg        *Config
	stats      *Stats
	sieve      sieve
	crowd      crowd
	unanswered list.List[conn] // those that wait for their RTU
}

func makeGate(random func() uint32, cfg *Config, stats *Stats) gate {
	g := gate{cfg: cfg, stats: stats}
	for i := range g.sieve.secret {
		g.sieve.secret[i] = uint64(random())<<32 | uint64(random())
	}
	return g
}

// verdict is what becomes of a request.
type verdict struct {
	ok       bool
	returned bool  // it has come before, and found no room then
	victim   *conn // must make room for it, if not nil
}

// admit decides about another request of a peer. p is nil for a peer that has
// nothing here yet.
func (g *gate) admit(now clock.Time, l *listener, p *peer, hash uint64) verdict {
	crowded := l.crowd.is(l.waiting, l.backlog)
	crowded = g.crowd.is(g.stats.HalfOpen, g.cfg.HalfOpen) || crowded
	own := 0 // what waits of this peer
	mine := false
	if p != nil {
		mine = p.crowd.is(p.halfOpen, g.cfg.HalfOpenPerSource)
		own = p.waiting
	}
	if !crowded && !mine {
		return verdict{ok: true, returned: g.sieve.seen(now, hash)}
	}
	v := verdict{returned: g.sieve.returns(now, hash)}
	weak := l.weakest()
	greedy := weak != nil && weak.peer.waiting > 2*(own+1)
	// Where one source crowds a listener, the others need not come again.
	oneCrowds := greedy && weak.peer.waiting >= l.backlog/2 && !bool(g.crowd) && !mine
	if !v.returned && !oneCrowds {
		return v
	}
	excess := mine && p.halfOpen >= g.cfg.HalfOpenPerSource // one of its own must go
	switch {
	case excess && p.unanswered.Len() > 0 && l.waiting < l.backlog:
		v.victim = p.unanswered.Front()
	case l.waiting >= l.backlog || excess:
		if weak != nil && (!excess || weak.peer == p) && (greedy || !weak.setup.returned) {
			v.victim = weak
		}
	case g.stats.HalfOpen >= g.cfg.HalfOpen:
		v.victim = g.unanswered.Front()
	default:
		v.ok = true
		return v
	}
	v.ok = v.victim != nil
	return v
}

// expect has the gate take the request of c for one that comes again, when it
// does.
func (g *gate) expect(now clock.Time, c *conn) {
	path := c.path()
	g.sieve.expects(now, g.sieve.hash(&path, c.guid, c.remote))
}

// weakest returns, of the oldest requests that wait for the program, the one
// that has the least claim: it has come once, and its peer has many. One that
// the program has in hand has a claim before those that it has not seen. It
// returns nil if none waits.
func (l *listener) weakest() *conn {
	c := l.requests.Front()
	if c == nil {
		c = l.claims.Front()
	}
	if c == nil {
		c = l.taken.Front()
	}
	best := c
	for range 8 {
		if c == nil {
			break
		}
		if s, b := c.setup, best.setup; s.returned == b.returned && c.peer.waiting > best.peer.waiting || !s.returned && b.returned {
			best = c
		}
		c = c.setup.inAll.Next()
	}
	return best
}

// openSetup counts a half-open request, which waits for the program.
func (g *gate) openSetup(c *conn, l *listener, v verdict) {
	c.setup = &setup{listener: l, waiting: true, returned: v.returned}
	c.setup.inAll.Value, c.setup.ofSource.Value = c, c
	l.waiting++
	l.listOf(c).PushBack(&c.setup.inAll)
	c.peer.waiting++
	c.peer.halfOpen++
	g.stats.HalfOpen++
}

// answered moves a half-open request on: it waits for its RTU.
func (g *gate) answered(c *conn) {
	g.leave(c)
	c.setup.waiting = false
	g.unanswered.PushBack(&c.setup.inAll)
	c.peer.unanswered.PushBack(&c.setup.ofSource)
}

// leave takes a request from those that wait for the program.
func (g *gate) leave(c *conn) {
	c.setup.listener.waiting--
	c.setup.listener.listOf(c).Remove(&c.setup.inAll)
	c.peer.waiting--
}

// listOf returns the list that a request is in while it waits.
func (l *listener) listOf(c *conn) *list.List[conn] {
	switch {
	case c.setup.taken:
		return &l.taken
	case c.setup.returned:
		return &l.claims
	}
	return &l.requests
}

// take moves a request to those that the program has in hand.
func (g *gate) take(c *conn) {
	s := c.setup
	if s != nil && s.ready {
		g.closeSetup(c)
	}
	if s == nil || !s.waiting || s.taken {
		return
	}
	s.listener.listOf(c).Remove(&s.inAll)
	s.taken = true
	s.listener.taken.PushBack(&s.inAll)
}

// repeated records that a request that waits has come again.
func (g *gate) repeated(c *conn) {
	s := c.setup
	if s.returned {
		return
	}
	l := s.listener.listOf(c)
	l.Remove(&s.inAll)
	s.returned = true
	s.listener.listOf(c).PushBack(&s.inAll)
}

// closeSetup ends what openSetup began, if it did.
func (g *gate) closeSetup(c *conn) {
	if c.setup == nil {
		return
	}
	if c.setup.ready {
		c.setup.listener.ready--
		c.setup = nil
		return
	}
	if c.setup.waiting {
		g.leave(c)
	} else {
		g.unanswered.Remove(&c.setup.inAll)
		c.peer.unanswered.Remove(&c.setup.ofSource)
	}
	c.peer.halfOpen--
	g.stats.HalfOpen--
	c.setup = nil
}
