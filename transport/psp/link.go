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
	tx       sealing
	rx       opening
	counters counts

	receivers table[uint32, receiver]    // by SPI
	senders   table[association, sender] // by the peer, and the SPI that it has chosen
}

var _ transport.PlacingLink = (*Link)(nil)

// association names one towards a peer.
type association struct {
	peer netip.Addr
	spi  uint32
}

// sender is an association towards a peer.
type sender struct {
	key *psp.Key
	iv  atomic.Uint64 // of the latest packet; Send alone writes it
}

// receiver is an association from a peer.
type receiver struct {
	peer   netip.Addr
	key    *psp.Key
	window psp.Window // of Recv
}

// Why an association cannot be.
var (
	ErrTaken = errors.New("psp: there is a key for it already: choose another SPI, or end that association first")
	errZero  = errors.New("psp: SPI 0 stands for no association")
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
	return l.receivers.add(spi, &receiver{peer: plain(peer), key: key}, spi)
}

// Seal has packets of paths to a peer with an SPI sealed with a key. It fails
// with ErrTaken if the two have a key: one must not begin to count anew.
func (l *Link) Seal(peer netip.Addr, spi uint32, key *psp.Key) error {
	return l.senders.add(association{plain(peer), spi}, &sender{key: key}, spi)
}

// EndAccept ends what Accept has begun: packets with the SPI are dropped.
func (l *Link) EndAccept(spi uint32) { l.receivers.remove(spi) }

// EndSeal ends what Seal has begun: packets of paths with the SPI are an error
// from then on.
func (l *Link) EndSeal(peer netip.Addr, spi uint32) {
	l.senders.remove(association{plain(peer), spi})
}

// Sealed returns how many packets were sealed for a peer with an SPI. It is for
// those who bound what one key does.
func (l *Link) Sealed(peer netip.Addr, spi uint32) uint64 {
	if s := l.senders.get(association{plain(peer), spi}); s != nil {
		return s.iv.Load()
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

func (t *table[K, V]) add(k K, v *V, spi uint32) error {
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
	t.of[k] = v
	t.changes.Add(1)
	return nil
}

func (t *table[K, V]) remove(k K) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.of, k)
	t.changes.Add(1)
}
