package agent

import (
	"math/bits"

	"github.com/gosoftroce/rocev2/clock"
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
// 2^24 ns (17 ms).
type sieve struct {
	slots  []uint32
	secret [2]uint64
}

const (
	sieveSlots = 1 << 18 // at 50,000 requests a second, half are remembered for 3.6 s
	sieveUnit  = 24      // of time, as a shift
	soonest    = 6       // about 100 ms: before, it is a copy that the network made
	latest     = 3600    // about 60 s
)

// returns reports whether the request was seen before, and remembers it.
func (s *sieve) returns(now clock.Time, hash uint64) bool {
	if s.slots == nil {
		s.slots = make([]uint32, sieveSlots)
	}
	slot := &s.slots[hash%sieveSlots]
	mark, at := uint32(hash>>48)|1, uint16(now>>sieveUnit) // a free slot has mark 0
	if *slot>>16 == mark {
		age := at - uint16(*slot)
		if age < soonest {
			return false
		}
		if age <= latest {
			return true
		}
	}
	*slot = mark<<16 | uint32(at)
	return false
}

// hash identifies a request by its source and its communication ID.
func (s *sieve) hash(p *Path, guid mad.GUID, id mad.CommID) uint64 {
	b := p.Remote.As16()
	h := s.secret[0]
	for _, w := range [...]uint64{bytesToWord(b[:8]), bytesToWord(b[8:]), uint64(guid), uint64(id)} {
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
	unanswered list // those that wait for their RTU
}

func makeGate(random func() uint32, cfg *Config, stats *Stats) gate {
	g := gate{cfg: cfg, stats: stats, unanswered: list{of: inAll}}
	for i := range g.sieve.secret {
		g.sieve.secret[i] = uint64(random())<<32 | uint64(random())
	}
	return g
}

// admit reports whether another request of a peer is taken. It may have to take
// the place of victim.
func (g *gate) admit(now clock.Time, l *listener, p *peer, hash uint64) (victim *conn, ok bool) {
	crowded := l.crowd.is(l.waiting, l.backlog)
	crowded = g.crowd.is(g.stats.HalfOpen, g.cfg.HalfOpen) || crowded
	if p != nil {
		crowded = p.crowd.is(p.halfOpen, g.cfg.HalfOpenPerSource) || crowded
	}
	if !crowded {
		return nil, true
	}
	if !g.sieve.returns(now, hash) || l.waiting >= l.backlog {
		return nil, false
	}
	switch {
	case p != nil && p.halfOpen >= g.cfg.HalfOpenPerSource:
		victim = p.unanswered.first
	case g.stats.HalfOpen >= g.cfg.HalfOpen:
		victim = g.unanswered.first
	default:
		return nil, true
	}
	return victim, victim != nil
}

// openSetup counts a half-open request, which waits for the program.
func (g *gate) openSetup(c *conn, l *listener) {
	c.setup = &setup{listener: l, waiting: true}
	l.waiting++
	c.peer.halfOpen++
	g.stats.HalfOpen++
}

// answered moves a half-open request on: it waits for its RTU.
func (g *gate) answered(c *conn) {
	c.setup.waiting = false
	c.setup.listener.waiting--
	g.unanswered.add(c)
	c.peer.unanswered.add(c)
}

// closeSetup ends what openSetup began, if it did.
func (g *gate) closeSetup(c *conn) {
	s := c.setup
	if s == nil {
		return
	}
	if s.waiting {
		s.listener.waiting--
	} else {
		g.unanswered.remove(c)
		c.peer.unanswered.remove(c)
	}
	c.peer.halfOpen--
	g.stats.HalfOpen--
	c.setup = nil
}
