package psp

import (
	"net/netip"

	"github.com/gosoftroce/rocev2/rocev2/psp"
)

// receiver is an association from a peer. Recv alone uses it.
type receiver struct {
	peer netip.Addr
	spi  uint32 // of the first key
	pair *pair

	generation        uint64 // of the key now
	before, now, next opener
	chain             *psp.Chain // at the next key; nil: there is one key
}

// opener is one of the keys of a receiver.
type opener struct {
	key    *psp.Key    // nil: there is none
	window *psp.Window // nil: nothing was opened
}

func newReceiver(peer netip.Addr, spi uint32, chain *psp.Chain, p *pair) *receiver {
	r := &receiver{peer: peer, spi: spi, pair: p, now: opener{key: chain.Key(spi)}, chain: chain}
	chain.Next()
	return r
}

// find returns what opens packets with an SPI; nil if there is nothing, because
// the key has ended, or else is not due.
func (r *receiver) find(spi uint32) (o *opener, ended bool) {
	if r.chain == nil {
		if spi != r.spi {
			return nil, false
		}
		return &r.now, false
	}
	for r.generation < r.pair.now.Load() {
		r.turn()
	}
	d := psp.Between(spi, psp.Later(r.spi, r.generation))
	switch {
	case d == 0:
		return &r.now, false
	case d == 1 && r.pair.sealed.Load() > r.generation: // else the peer has no reason
		r.deriveNext()
		return &r.next, false
	case d == -1 && r.before.key != nil:
		return &r.before, false
	}
	return nil, d < 0 && uint64(-d) <= r.generation
}

// opened notes that a packet was opened.
func (r *receiver) opened(o *opener, iv uint64) {
	if o.window == nil {
		o.window = new(psp.Window)
	}
	o.window.Take(iv)
	switch o {
	case &r.now:
		r.pair.opened(r.generation)
		if iv > psp.WindowSize { // one of the key before would be late for a window, too
			r.before = opener{}
		}
	case &r.next:
		r.pair.opened(r.generation + 1) // for find
	}
}

// deriveNext derives the next key, if there was no packet with its SPI yet. It
// is kept: so it is derived once, however many of them are forged.
func (r *receiver) deriveNext() {
	if r.next.key == nil {
		r.next.key = r.chain.Key(r.spi)
	}
}

// turn goes on to the next key.
func (r *receiver) turn() {
	r.deriveNext()
	r.chain.Next()
	r.generation++
	r.before, r.now, r.next = r.now, r.next, opener{}
}

// end erases the secret of r. Recv does not use it any more.
func (r *receiver) end() {
	if r.chain != nil {
		r.chain.Erase()
	}
}

// look says what an initialization vector is, before the packet is opened.
func (o *opener) look(iv uint64) psp.Verdict {
	if o.window == nil {
		return (&psp.Window{}).Look(iv)
	}
	return o.window.Look(iv)
}
