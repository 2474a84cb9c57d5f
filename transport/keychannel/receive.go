package keychannel

import (
	"crypto/rand"
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"github.com/gosoftroce/rocev2/rocev2/psp"
	"github.com/gosoftroce/rocev2/transport/guard"
)

// incoming is what is known of a key for what comes from a peer. That there is
// a newer one does not mean that the peer seals with that: its handshake may
// have failed, or both sides have begun one at the same time.
type incoming struct {
	begun time.Time // the handshake
	ended time.Time // from here on the peer does not begin to use the key; zero: the handshake goes on
	sure  bool      // the peer has begun to use it
}

// receives installs a key for what comes from a peer, and gives it its number.
func (c *Channel) receives(addr netip.Addr, s *guard.Secret, begun time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errClosed
	}
	p := c.peers[addr]
	if p == nil {
		if p = c.enter(addr); p == nil {
			return errFull
		}
	}
	if len(p.Receives) == guard.MostReceives {
		c.forget(p, p.worst())
	}
	s.Number = c.number()
	p.Receives = slices.Insert(p.Receives, 0, *s)
	p.in = slices.Insert(p.in, 0, incoming{begun: begun})
	if !c.cfg.Table.Set(&p.Peer) {
		delete(c.numbers, s.Number)
		delete(c.peers, addr)
		return errFull
	}
	return nil
}

// worst returns which key makes room: the oldest that another one has followed;
// else the oldest of which it is not sure that the peer has ever used it; else
// the oldest whose handshake has ended.
func (p *peer) worst() int {
	worst, least := len(p.in)-1, -1
	since := p.followed(time.Time{})
	for i, in := range p.in {
		rank := 0
		switch {
		case in.ended.IsZero():
		case in.ended.Before(since):
			rank = 3
		case !in.sure:
			rank = 2
		default:
			rank = 1
		}
		if rank >= least {
			worst, least = i, rank
		}
	}
	return worst
}

// followed returns when the handshake of the latest key began that the peer has
// used, before a time if there is one: it does not use those whose handshakes
// had ended then.
func (p *peer) followed(before time.Time) (since time.Time) {
	for _, in := range p.in {
		if in.sure && (before.IsZero() || in.ended.Before(before)) && in.begun.After(since) {
			since = in.begun
		}
	}
	return since
}

// outcome is what a handshake says of the key for what comes from the peer.
type outcome uint8

const (
	unused outcome = iota // the peer does not use it
	unsure                // it may use it
	used                  // it uses it
)

// settle notes the outcome of a handshake that has ended.
func (c *Channel) settle(addr netip.Addr, number uint16, o outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.peers[addr]
	if p == nil || c.closed {
		return
	}
	i := slices.IndexFunc(p.Receives, func(s guard.Secret) bool { return s.Number == number })
	if i < 0 {
		return
	}
	switch o {
	case unused:
		c.forget(p, i)
		c.cfg.Table.Set(&p.Peer)
	case unsure:
		p.in[i].ended = time.Now().Add(handshakeTime)
	case used:
		p.in[i].ended, p.in[i].sure = time.Now(), true
	}
}

// forgetFollowed forgets keys that the peer has not used for Overlap, and
// reports whether there were some.
func (c *Channel) forgetFollowed(p *peer, now time.Time) (some bool) {
	since := p.followed(now.Add(-Overlap))
	for i := len(p.in) - 1; i >= 0; i-- {
		if ended := p.in[i].ended; !ended.IsZero() && ended.Before(since) {
			c.forget(p, i)
			some = true
		}
	}
	return some
}

// forget forgets the i-th key for what comes from a peer.
func (c *Channel) forget(p *peer, i int) {
	delete(c.numbers, p.Receives[i].Number)
	p.Receives, p.in = slices.Delete(p.Receives, i, i+1), slices.Delete(p.in, i, i+1)
}

// number returns one that is not in use. Others cannot tell the next.
func (c *Channel) number() uint16 {
	for {
		var b [2]byte
		rand.Read(b[:])
		if n := binary.BigEndian.Uint16(b[:]) & guard.MaxNumber; n != 0 && !c.numbers[n] {
			c.numbers[n] = true
			return n
		}
	}
}

// renewOwn has packets of the address to itself sealed with another key, where
// they are sealed. The one before still opens some.
func (c *Channel) renewOwn() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.closed || !guard.SealsOwn(c.local) || !c.ownMade.IsZero() && now.Sub(c.ownMade) < fresh {
		return
	}
	s := guard.Secret{Number: c.number(), Slots: uint16(c.cfg.Slots), Version: psp.GCM128}
	rand.Read(s.Master[:])
	c.own.Addr, c.own.Send, c.ownMade = c.local, s, now
	c.own.Receives = slices.Insert(c.own.Receives, 0, s)
	if last := len(c.own.Receives) - 1; last == guard.MostReceives {
		delete(c.numbers, c.own.Receives[last].Number)
		c.own.Receives = c.own.Receives[:last]
	}
	c.cfg.Table.Set(&c.own)
}
