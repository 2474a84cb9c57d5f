package verbs

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/gosoftroce/rocev2/hca"
	"github.com/gosoftroce/rocev2/hca/task"
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
	Key     []byte      `json:"-"` // of Version.KeyLen bytes, for this association alone: two with one key can be read and forged; it is not kept. The keys of packets are derived from it
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
// From then on the packets of both directions have new keys, of which each is
// derived from the one before it, after Config.RekeyPackets of either direction
// or Config.RekeyAfter, or by Rekey of either side: package transport/psp says
// how the two agree. No operation is lost or done twice. A key that is not
// followed by another one, as the peer says nothing, seals no more than 2^27
// packets; the queue pair then ends by its retries.
//
// The associations end with the queue pair's connection, that is when it goes
// back to RESET or is closed. Keys of the latest of them stay for a while, to
// repeat last acknowledgements: ten minutes at most.
//
// A key is for one connection and one direction: with another beginning AES-GCM
// has initialization vectors twice, which discloses its packets. With the same
// SPI that is refused for the 2048 associations that went last; with another
// peer, and after that, it is the program's to see to it.
type Sealing struct {
	core *hca.QP
	link *psp.Link
	dev  *seals

	mu      sync.Mutex
	accepts *association
	seals   *association
	age     *task.Timer // of the present keys, with seals
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
// queue pair, with the generation of the first key in front, 0 to 127. It is
// not 0.
func (s *Sealing) SPI(generation uint8) uint32 {
	return uint32(generation)<<24 | uint32(s.core.QPN())
}

// Accept has the queue pair, which is connected, open packets that its peer
// seals with a, and take none in clear after the first one.
func (s *Sealing) Accept(a Association) error {
	if err := s.begin(&a, false); err != nil {
		return fmt.Errorf("verbs: queue pair %v, accept packets of %v: %w", s.core.QPN(), a, err)
	}
	return nil
}

// Seal has all packets of the queue pair, which is connected, leave sealed with
// a from now on. Its peer has accepted a before, and this side what its peer
// will seal with.
func (s *Sealing) Seal(a Association) error {
	if err := s.begin(&a, true); err != nil {
		return fmt.Errorf("verbs: queue pair %v, seal packets with %v: %w", s.core.QPN(), a, err)
	}
	return nil
}

// Require has the queue pair take no packet in clear, for programs that agree
// on keys by other means than the queue pair: in RESET or INIT, so that it
// takes none from its first on, or when it accepts sealed packets. In the first
// case Accept and Seal follow in RTR, before it goes to RTS, so that it sends
// none in clear either. Going to RESET ends it.
func (s *Sealing) Require() error {
	if err := s.core.RequireSealed(); err != nil {
		return fmt.Errorf("verbs: %w", err)
	}
	return nil
}

// State returns what packets the queue pair takes.
func (s *Sealing) State() Security { return s.core.Security() }

// Rekey has both directions go on with new keys: with the next packet of the
// queue pair, or if the peer has not answered with the present keys yet, with
// the one after that.
func (s *Sealing) Rekey() {
	if a := s.sends(); a != nil {
		s.link.Rekey(a.peer, a.spi)
	}
}

// Generation returns how many keys have followed the first.
func (s *Sealing) Generation() uint64 {
	if a := s.sends(); a != nil {
		return s.link.Generation(a.peer, a.spi)
	}
	return 0
}

func (s *Sealing) sends() *association {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seals
}

// aged has new keys when the present ones have been used for long.
func (s *Sealing) aged() {
	s.Rekey()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seals != nil {
		s.age.Reset(s.dev.rekeyAfter)
	}
}

// begin begins an association, and has the queue pair use it. Of an error
// nothing is left.
func (s *Sealing) begin(a *Association, sends bool) error {
	chain, err := format.NewChain(a.Version, a.Key)
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
	one := &association{link: s.link, peer: s.core.Attr().AV.DGID, spi: a.SPI, sends: sends, of: chain.Fingerprint()}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.accepts != nil && !sends || s.seals != nil && sends {
		return errors.New("the queue pair has one already: new keys follow by themselves, see Sealing.Rekey")
	}
	if sends && s.accepts != nil {
		one.accepts = s.accepts.spi
	}
	if err = s.unused(one); err == nil {
		err = one.begin(chain)
	}
	if err != nil {
		chain.Erase()
		return err
	}
	return s.use(one)
}

// use has the queue pair use an association that has begun.
func (s *Sealing) use(a *association) error {
	if !a.sends {
		if err := s.core.Accept(); err != nil {
			a.end()
			return err
		}
		s.accepts = a
		return nil
	}
	if err := s.core.Seal(a.spi); err != nil {
		a.end()
		return err
	}
	s.seals = a
	s.age = s.dev.tasks.NewTimer(s.aged)
	s.age.Reset(s.dev.rekeyAfter)
	return nil
}

// Why an association cannot begin: its packets would have the initialization
// vectors of others, and packets of the others would be new.
var (
	errKeyUsed  = errors.New("the key has sealed packets with this SPI for a queue pair that has gone: each connection needs keys of its own")
	errKeyTwice = errors.New("the other direction has the same key and SPI: each direction needs a key of its own")
)

// unused reports whether the key of an association was used before, with the
// same SPI. The place of one that has gone is free then.
func (s *Sealing) unused(a *association) error {
	for _, other := range []*association{s.accepts, s.seals} {
		if other != nil && other.of == a.of && other.spi == a.spi {
			return errKeyTwice
		}
	}
	return s.dev.forget(a)
}

// reset has the associations end.
func (s *Sealing) reset() {
	s.mu.Lock()
	var ended []*association
	for _, a := range []*association{s.accepts, s.seals} {
		if a != nil {
			ended = append(ended, a)
		}
	}
	s.accepts, s.seals = nil, nil
	if s.age != nil {
		s.age.Stop()
	}
	s.mu.Unlock()
	s.dev.retire(ended)
}

// association is one of a queue pair, or of one that has gone.
type association struct {
	link    *psp.Link
	peer    netip.Addr
	spi     uint32
	sends   bool
	accepts uint32    // SPI of the other direction, of one that sends
	of      [16]byte  // fingerprint of its key
	gone    time.Time // when its queue pair went
	over    bool      // the link has forgotten it, and its key
}

func (a *association) begin(chain *format.Chain) error {
	if a.sends {
		return a.link.SealChain(a.peer, a.spi, chain, a.accepts)
	}
	return a.link.AcceptChain(a.peer, a.spi, chain)
}

func (a *association) end() {
	switch {
	case a.over:
	case a.sends:
		a.link.EndSeal(a.peer, a.spi)
	default:
		a.link.EndAccept(a.spi)
	}
	a.over = true
}

// like reports whether two take the same place in a link.
func (a *association) like(b *association) bool {
	if a.link != b.link || a.sends != b.sends {
		return false
	}
	if a.sends {
		return a.peer == b.peer && a.spi == b.spi
	}
	return format.Number(a.spi) == format.Number(b.spi)
}

// seals are the links of a device that seal, and what queue pairs have left:
// their last acknowledgements may have to be repeated.
type seals struct {
	links      []*psp.Link // of each socket; nil: nothing seals
	tasks      task.Runner
	rekeyAfter time.Duration

	mu      sync.Mutex
	of      map[*QP]*Sealing
	gone    []*association // the oldest first
	forgets *task.Timer
	waits   bool // forgets is set
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

const (
	// mostGone is how many associations are known after their queue pair
	// has gone, and keepGone for how long they have their keys.
	mostGone = 2048
	keepGone = 10 * time.Minute
)

// retire takes associations of a queue pair that has gone.
func (s *seals) retire(ended []*association) {
	if len(ended) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range ended {
		a.gone = s.tasks.Now()
	}
	if !s.waits {
		if s.forgets == nil {
			s.forgets = s.tasks.NewTimer(s.old)
		}
		s.forgets.Reset(keepGone)
		s.waits = true
	}
	s.gone = append(s.gone, ended...)
	s.shorten(len(s.gone) - mostGone)
}

// old ends what is to be kept no longer.
func (s *seals) old() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.tasks.Now()
	for _, a := range s.gone {
		if age := now.Sub(a.gone); age < keepGone {
			s.forgets.Reset(keepGone - age)
			return
		}
		a.end()
	}
	s.waits = false
}

// shorten ends the n oldest of what is kept.
func (s *seals) shorten(n int) {
	for i := range max(n, 0) {
		s.gone[i].end()
		s.gone[i] = nil
	}
	s.gone = s.gone[max(n, 0):]
}

// forget ends the association of a queue pair that has gone in the place of a,
// if it has another key.
func (s *seals) forget(a *association) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.gone {
		switch {
		case !a.like(g):
		case g.of == a.of:
			return errKeyUsed
		default:
			g.end()
		}
	}
	return nil
}

// close erases all keys of a device, which is closed.
func (s *seals) close() {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.of))
	s.of = nil
	s.mu.Unlock()
	for _, one := range all {
		one.reset()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shorten(len(s.gone))
	if s.waits {
		s.forgets.Stop()
		s.waits = false
	}
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
func (s *seals) wrap(links []Link, c *Config) []Link {
	s.rekeyAfter = cmp.Or(c.RekeyAfter, 24*time.Hour)
	wrapped := make([]Link, len(links))
	for i, l := range links {
		s.links = append(s.links, psp.New(l))
		s.links[i].Limits.Packets = c.RekeyPackets
		wrapped[i] = s.links[i]
	}
	return wrapped
}
