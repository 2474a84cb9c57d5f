package verbs

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/gosoftroce/rocev2/hca"
	"github.com/gosoftroce/rocev2/internal/counters"
	format "github.com/gosoftroce/rocev2/rocev2/psp"
	"github.com/gosoftroce/rocev2/transport/psp"
)

// SealVersion is how packets are sealed.
type SealVersion = format.Version

// Algorithms. Those of GMAC authenticate, and do not encrypt.
const (
	SealGCM128  = format.GCM128  // AES-GCM-128
	SealGCM256  = format.GCM256  // AES-GCM-256
	SealGMAC128 = format.GMAC128 // AES-GMAC-128
	SealGMAC256 = format.GMAC256 // AES-GMAC-256
)

// Association is a security association of a queue pair: its packets in one
// direction are sealed with a key (PSP Security Protocol, package
// transport/psp).
type Association struct {
	SPI     uint32      // its number, which the receiver has chosen: see Sealing.SPI
	Version SealVersion // the algorithm
	Key     []byte      // of Version.KeyLen bytes, for this association alone: two with one key can be read and forged; it is not kept
}

// Format keeps the key out of what is printed.
func (a Association) Format(s fmt.State, _ rune) {
	fmt.Fprintf(s, "SPI 0x%08x with %v", a.SPI, a.Version)
}

// ErrNotSealing is returned where Config.Sealing is needed.
var ErrNotSealing = errors.New("the device cannot seal packets: open it with Config.Sealing")

// Sealing is how the packets of a queue pair are sealed and opened. Two
// programs have their queue pairs connected in clear, agree on keys over them,
// and then:
//
//   - each accepts what the other one will seal, and tells it the SPI and the
//     key, or what it needs to derive it;
//   - each seals, as it was told. What was sent before, and is sent again, is
//     sealed, too;
//   - a queue pair that has taken a sealed packet takes none in clear any more.
//     A program that must not act on what came in clear waits for a message
//     and asks State.
//
// A new key is another association beside the first, with another generation:
// both sides accept it and seal with it, and end the first when a packet of the
// new one has come. No operation is lost or done twice.
//
// The associations end with the queue pair's connection, that is when it goes
// back to RESET or is closed. Keys of the latest of them stay for a while, to
// repeat last acknowledgements.
//
// A key is for one connection and one direction: with another beginning AES-GCM
// has initialization vectors twice, which discloses its packets. With the same
// SPI that is refused as long as the key stays; after that, and with another
// peer, it is the program's to see to it.
type Sealing struct {
	core *hca.QP
	link *psp.Link
	dev  *seals

	mu  sync.Mutex
	all []sealed
}

// Sealing returns how the packets of q are sealed. It is ErrNotSealing without
// Config.Sealing, and wraps ErrClosed for a queue pair that is closed.
func (q *QP) Sealing() (*Sealing, error) {
	links := q.dev.seals.links
	if links == nil {
		return nil, fmt.Errorf("verbs: queue pair %v: %w", q.QPN(), ErrNotSealing)
	}
	all := &q.dev.seals
	all.mu.Lock()
	defer all.mu.Unlock()
	s := all.of[q]
	if s == nil {
		if q.core.Closed() {
			return nil, fmt.Errorf("verbs: queue pair %v: %w", q.QPN(), ErrClosed)
		}
		s = &Sealing{core: q.core, link: links[q.core.Part()], dev: all}
		if all.of == nil {
			all.of = map[*QP]*Sealing{}
		}
		all.of[q] = s
	}
	return s, nil
}

// SPI returns the number for an association to the queue pair: that of the
// queue pair, with a generation in front, of which each association has its
// own. It is not 0.
func (s *Sealing) SPI(generation uint8) uint32 {
	return uint32(generation)<<24 | uint32(s.core.QPN())
}

// Accept has the queue pair, which is connected, open packets that its peer
// seals with a, and take none in clear after the first one.
func (s *Sealing) Accept(a Association) error {
	if err := s.begin(&a, false, s.core.Accept); err != nil {
		return fmt.Errorf("verbs: queue pair %v, accept packets of %v: %w", s.core.QPN(), a, err)
	}
	return nil
}

// Seal has all packets of the queue pair, which is connected, leave sealed with
// a from now on. Its peer has accepted a before, and this side what its peer
// will seal with.
func (s *Sealing) Seal(a Association) error {
	if err := s.begin(&a, true, func() error { return s.core.Seal(a.SPI) }); err != nil {
		return fmt.Errorf("verbs: queue pair %v, seal packets with %v: %w", s.core.QPN(), a, err)
	}
	return nil
}

// OnlySealed has the queue pair, which accepts sealed packets, take none in
// clear from now on, and not only after the first sealed one: for programs that
// have agreed on keys by other means than the queue pair, before anything was
// sent.
func (s *Sealing) OnlySealed() error {
	if err := s.core.OnlySealed(); err != nil {
		return fmt.Errorf("verbs: queue pair %v: %w", s.core.QPN(), err)
	}
	return nil
}

// End ends what Accept has begun: packets with the SPI are dropped.
func (s *Sealing) End(spi uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = slices.DeleteFunc(s.all, func(a sealed) bool {
		ends := !a.sends && a.spi == spi
		if ends {
			a.end()
		}
		return ends
	})
}

// State returns what packets the queue pair takes.
func (s *Sealing) State() Security { return s.core.Security() }

// Sealed returns how many packets were sealed with an SPI of the peer. A key
// has done its work after some 2^28.
func (s *Sealing) Sealed(spi uint32) uint64 { return s.link.Sealed(s.core.Attr().AV.DGID, spi) }

// begin begins an association, which use has the queue pair use. Of an error
// nothing is left.
func (s *Sealing) begin(a *Association, sends bool, use func() error) error {
	key, err := format.NewKey(a.Version, a.Key)
	switch {
	case err != nil:
		return err
	case s.core.Closed():
		return ErrClosed
	case !s.core.Attr().AV.DGID.IsValid():
		return errors.New("the queue pair is not connected")
	case s.core.Attr().PathMTU > s.link.MTU(s.core.Attr().AV.DGID):
		return fmt.Errorf("path MTU %d leaves no room for what seals a packet: connect with %d at most, see Device.SealedMTU",
			s.core.Attr().PathMTU.Bytes(), s.link.MTU(s.core.Attr().AV.DGID).Bytes())
	case !sends && QPN(a.SPI)&MulticastQPN != s.core.QPN():
		return errors.New("the low 24 bits of the SPI are not the number of the queue pair: see Sealing.SPI")
	}
	one := sealed{s.link, s.core.Attr().AV.DGID, a.SPI, sends, key}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err = one.begin(); errors.Is(err, psp.ErrTaken) { // maybe of a queue pair that has had the number
		if err = s.dev.forget(&one, err); err == nil {
			err = one.begin()
		}
	}
	if err != nil {
		return err
	}
	if err = use(); err != nil {
		one.end()
		return err
	}
	s.all = append(s.all, one)
	return nil
}

// errKeyUsed is why an association has no new beginning: its packets would have
// the initialization vectors of others, and packets of the first would be new.
var errKeyUsed = errors.New("the key has sealed packets with this SPI for a queue pair that has gone: each connection needs keys of its own")

// reset has the associations end.
func (s *Sealing) reset() {
	s.mu.Lock()
	ended := s.all
	s.all = nil
	s.mu.Unlock()
	s.dev.retire(ended)
}

// sealed is an association of a queue pair.
type sealed struct {
	link  *psp.Link
	peer  netip.Addr
	spi   uint32
	sends bool
	key   *format.Key
}

func (a *sealed) begin() error {
	if a.sends {
		return a.link.Seal(a.peer, a.spi, a.key)
	}
	return a.link.Accept(a.peer, a.spi, a.key)
}

func (a *sealed) end() {
	if a.sends {
		a.link.EndSeal(a.peer, a.spi)
	} else {
		a.link.EndAccept(a.spi)
	}
}

// seals are the links of a device that seal, and what queue pairs have left:
// their last acknowledgements may have to be repeated.
type seals struct {
	links []*psp.Link // of each socket; nil: nothing seals

	mu   sync.Mutex
	of   map[*QP]*Sealing
	gone []sealed // the oldest first
}

// end ends the associations of a queue pair, which is closed or begins anew.
func (s *seals) end(q *QP) {
	if s.links == nil {
		return
	}
	s.mu.Lock()
	of := s.of[q]
	delete(s.of, q)
	s.mu.Unlock()
	if of != nil {
		of.reset()
	}
}

// mostGone is how many associations are kept after their queue pair has gone.
const mostGone = 2048

// retire takes associations of a queue pair that has gone.
func (s *seals) retire(ended []sealed) {
	if len(ended) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = append(s.gone, ended...)
	for len(s.gone) > mostGone {
		s.gone[0].end()
		s.gone = s.gone[1:]
	}
}

// forget ends an association of a queue pair that has gone, like a but with
// another key. It returns taken if there is none.
func (s *seals) forget(a *sealed, taken error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.gone, func(g sealed) bool {
		return g.link == a.link && g.spi == a.spi && g.sends == a.sends && (!a.sends || g.peer == a.peer)
	})
	switch {
	case i < 0:
		return taken
	case s.gone[i].key.Same(a.key):
		return errKeyUsed
	}
	s.gone[i].end()
	s.gone = slices.Delete(s.gone, i, i+1)
	return nil
}

// SealedMTU returns the largest path MTU with which sealed packets reach a
// peer: they are 40 bytes longer. It is 0 without Config.Sealing.
func (d *Device) SealedMTU(peer netip.Addr) MTU {
	if d.seals.links == nil {
		return 0
	}
	return d.seals.links[0].MTU(peer)
}

// SealCounters returns the counters of what the device has sealed, opened and
// dropped. They are 0 without Config.Sealing.
func (d *Device) SealCounters() (sum SealCounters) {
	for _, l := range d.seals.links {
		c := l.Counters()
		counters.Add(&sum, &c)
	}
	return sum
}

// wrap has the links of a device seal.
func (s *seals) wrap(links []Link) []Link {
	wrapped := make([]Link, len(links))
	for i, l := range links {
		s.links = append(s.links, psp.New(l))
		wrapped[i] = s.links[i]
	}
	return wrapped
}
