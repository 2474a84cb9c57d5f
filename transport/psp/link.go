package psp

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/psp"
	"github.com/gosoftroce/rocev2/transport"
)

// Link seals and opens the packets of the link that it wraps. It is a
// transport.Link.
type Link struct {
	transport.Wrapper
	Limits   Limits // of keys
	tx       sealing
	rx       opening
	counters counts

	receivers table[uint32, receiver]    // by numberOf
	senders   table[association, sender] // by the peer, and the SPI that it has chosen
}

var _ transport.PlacingLink = (*Link)(nil)

// association names one towards a peer.
type association struct {
	peer netip.Addr
	spi  uint32
}

// Why an association cannot be.
var (
	ErrTaken  = errors.New("psp: there is a key for it already: choose another SPI, or end that association first")
	errZero   = errors.New("psp: SPI 0 stands for no association")
	errAlone  = errors.New("psp: packets of the peer are not accepted with that SPI, by a chain of keys")
	errOneKey = errors.New("psp: the highest bit of the SPI is set: its association has one key, and no chain")
)

// New wraps inner, without an association.
func New(inner transport.Link) *Link {
	l := &Link{Wrapper: transport.Wrapper{Link: inner}}
	l.tx.port = inner.Capabilities().Port
	return l
}

// Accept has packets from a peer with an SPI opened with a key. It fails with
// ErrTaken if packets with the SPI are opened already, of any peer.
func (l *Link) Accept(peer netip.Addr, spi uint32, key *psp.Key) error {
	return l.receivers.add(numberOf(spi), spi, func() *receiver {
		return &receiver{peer: plain(peer), spi: spi, pair: new(pair), now: opener{key: key}}
	})
}

// AcceptChain has packets from a peer opened with the keys of a chain, which is
// the link's from then on. The SPI is that of the first one; its highest bit is
// 0. It fails with ErrTaken if packets with the number of the SPI are opened
// already, of any peer.
func (l *Link) AcceptChain(peer netip.Addr, spi uint32, chain *psp.Chain) error {
	if spi&psp.SecondMaster != 0 {
		return fmt.Errorf("SPI 0x%08x: %w", spi, errOneKey)
	}
	p := &pair{rekeys: &l.counters.rekeys}
	return l.receivers.add(numberOf(spi), spi, func() *receiver { return newReceiver(plain(peer), spi, chain, p) })
}

// Seal has packets of paths to a peer with an SPI sealed with a key, as many as
// Limits.Most. It fails with ErrTaken if the two have a key: one must not begin
// to count anew.
func (l *Link) Seal(peer netip.Addr, spi uint32, key *psp.Key) error {
	return l.senders.add(association{plain(peer), spi}, spi, func() *sender {
		return &sender{spi: spi, key: key, pair: new(pair)}
	})
}

// SealChain has packets of paths to a peer with an SPI sealed with the keys of
// a chain, which is the link's from then on. The SPI is that of the first one.
// The peer seals with the SPI accepted, by a chain, too, which says how far it
// has come. It fails with ErrTaken as Seal does.
func (l *Link) SealChain(peer netip.Addr, spi uint32, chain *psp.Chain, accepted uint32) error {
	if spi&psp.SecondMaster != 0 {
		return fmt.Errorf("SPI 0x%08x: %w", spi, errOneKey)
	}
	r := l.receivers.get(numberOf(accepted))
	if r == nil || r.peer != plain(peer) || r.chain == nil {
		return fmt.Errorf("SPI 0x%08x: %w", accepted, errAlone)
	}
	return l.senders.add(association{plain(peer), spi}, spi, func() *sender {
		return &sender{spi: spi, key: chain.Key(spi), pair: r.pair, first: spi, chain: chain}
	})
}

// EndAccept ends what Accept has begun: packets with the SPI are dropped.
func (l *Link) EndAccept(spi uint32) {
	if r := l.receivers.remove(numberOf(spi)); r != nil {
		r.end()
	}
}

// EndSeal ends what Seal has begun: packets of paths with the SPI are an error
// from then on.
func (l *Link) EndSeal(peer netip.Addr, spi uint32) {
	if s := l.senders.remove(association{plain(peer), spi}); s != nil {
		s.end()
	}
}

// Rekey has the packets of paths to a peer with an SPI sealed with a new key as
// soon as the peer has sealed a packet with the present one. The peer does the
// same when it gets one of them.
func (l *Link) Rekey(peer netip.Addr, spi uint32) {
	if s := l.senders.get(association{plain(peer), spi}); s != nil {
		s.pair.want()
	}
}

// Generation returns how many keys there have been before the present one for
// packets to a peer with an SPI.
func (l *Link) Generation(peer netip.Addr, spi uint32) uint64 {
	if s := l.senders.get(association{plain(peer), spi}); s != nil {
		return s.pair.now.Load()
	}
	return 0
}

// Counters returns what was sealed, opened and dropped. Stats has the counters
// of the link inside.
func (l *Link) Counters() Counters { return l.counters.load() }

// MTU returns the largest path MTU with which sealed packets reach a peer. That
// of packets in clear, which are shorter, may be larger.
func (l *Link) MTU(peer netip.Addr) rocev2.MTU {
	return rocev2.LargestMTU(l.ReadLinkMTU(peer) - transport.SealedOverhead)
}

// SetPlacer has packets in clear placed, where the link inside can. Nothing of
// a sealed packet is where it belongs before it is opened.
func (l *Link) SetPlacer(p transport.Placer) {
	if inner, ok := l.Link.(transport.PlacingLink); ok {
		inner.SetPlacer(p)
	}
}

// numberOf returns what SPIs of an association to this side have in common: the
// number, or with the highest bit all of one, which has no other key.
func numberOf(spi uint32) uint32 {
	if spi&psp.SecondMaster != 0 {
		return spi
	}
	return psp.Number(spi)
}

// plain is an address as packets have it.
func plain(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// table has associations by what packets say of theirs.
type table[K comparable, V any] struct {
	changes atomic.Uint64 // 0: there never was one

	mu sync.RWMutex
	of map[K]*V
}

func (t *table[K, V]) get(k K) *V {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.of[k]
}

func (t *table[K, V]) add(k K, spi uint32, begin func() *V) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if spi == 0 {
		return errZero
	}
	if t.of[k] != nil {
		return fmt.Errorf("SPI 0x%08x: %w", spi, ErrTaken)
	}
	if t.of == nil {
		t.of = map[K]*V{}
	}
	t.of[k] = begin()
	t.changes.Add(1)
	return nil
}

// remove returns what was there, nil if nothing was.
func (t *table[K, V]) remove(k K) *V {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := t.of[k]
	delete(t.of, k)
	t.changes.Add(1)
	return v
}
