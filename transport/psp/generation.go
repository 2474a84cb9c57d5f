package psp

import (
	"sync"
	"sync/atomic"

	"github.com/gosoftroce/rocev2/rocev2/psp"
)

// Limits say for how long a key is used. They are set before the first
// association.
type Limits struct {
	Packets uint64 // sealed with a key, after which there is a new one; 0: half of Most
	Most    uint64 // sealed with a key, after which no packet leaves until there is a new one; 0, or more than that: psp.MaxPackets
}

// of returns the limits that hold.
func (l Limits) of() Limits {
	if l.Most == 0 || l.Most > psp.MaxPackets {
		l.Most = psp.MaxPackets
	}
	if l.Packets == 0 || l.Packets > l.Most {
		l.Packets = (l.Most + 1) / 2
	}
	return l
}

// pair is how far the keys of a connection have come, whose two associations
// have a new key at the same time: see the documentation of the package.
type pair struct {
	now    atomic.Uint64  // generation that this side seals with
	seen   atomic.Uint64  // generations that the peer has sealed with, as far as a packet of them has been opened
	sealed atomic.Uint64  // generations that this side has sealed with
	wanted atomic.Uint64  // generation that there shall be, by Rekey
	rekeys *atomic.Uint64 // of the link
}

// enter has this side seal with the key of generation g, which follows that of
// now.
func (p *pair) enter(g uint64) {
	if p.now.CompareAndSwap(g-1, g) {
		p.rekeys.Add(1)
	}
}

// follow has this side go on from generation g by itself, if the peer has come
// there.
func (p *pair) follow(g uint64) {
	if p.seen.Load() > g {
		p.enter(g + 1)
	}
}

// want has this side go on from the present generation as soon as the peer has
// come there.
func (p *pair) want() {
	g := p.now.Load()
	p.wanted.Store(g + 1)
	p.follow(g)
}

// opened notes that a packet of the peer was opened, which is of generation g.
func (p *pair) opened(g uint64) {
	if p.seen.Load() > g {
		return
	}
	p.seen.Store(g + 1)
	p.enter(g)
	if p.wanted.Load() > g {
		p.follow(g)
	}
}

// sender is an association towards a peer. Send alone uses it.
type sender struct {
	spi  uint32 // of the present key
	key  *psp.Key
	iv   uint64 // of the latest packet with the key
	pair *pair

	generation uint64 // of the key
	first      uint32 // SPI of the first key

	mu    sync.Mutex // chain
	chain *psp.Chain // at the present key; nil: there is one key, or the association has ended
}

// ready has the next packet sealed with the key that is due, and reports false
// if there is none for it.
func (s *sender) ready(l *Limits) bool {
	if s.iv < l.Packets && s.iv > 0 && s.generation == s.pair.now.Load() {
		return true
	}
	return s.turn(l)
}

func (s *sender) turn(l *Limits) bool {
	if s.iv >= l.Packets {
		s.pair.follow(s.generation)
	}
	for s.generation < s.pair.now.Load() {
		if !s.next() {
			return false
		}
	}
	s.pair.sealed.Store(s.generation + 1)
	return s.iv < l.Most
}

// next has s seal with the next key.
func (s *sender) next() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.chain == nil {
		return false
	}
	s.chain.Next()
	s.generation++
	s.key, s.spi, s.iv = s.chain.Key(s.first), psp.Later(s.first, s.generation), 0
	return true
}

// end erases the secret of s, which Send may still be using.
func (s *sender) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.chain != nil {
		s.chain.Erase()
		s.chain = nil
	}
}
