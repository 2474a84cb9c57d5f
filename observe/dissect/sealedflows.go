package dissect

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/psp"
)

// SealedSide is the sealed packets that an end of a connection has sent. The
// initialization vectors (IV) of a key count its packets, so that they show
// what is missing even in packets that are not opened.
type SealedSide struct {
	Packets, Bytes uint64 // bytes from the PSP header to the integrity check value
	Opened         uint64
	Refused        uint64 // the integrity check value or the header was wrong
	Replayed       uint64 // their IV has come before
	Missing        uint64 // IVs that have not come, before the highest of their key
	Keys           uint64 // that were seen to begin, by their SPIs
	SPI            uint32 // of the latest packet
	Version        psp.Version

	ivs [2]*ivs // of the two latest keys, the latest first
}

// ivs are the initialization vectors of a key.
type ivs struct {
	spi    uint32
	key    uint32 // 0: not known
	newest uint64
	window psp.Window
}

// ivsSize is about how many bytes ivs takes.
const ivsSize = 1100

// of returns those of a packet's key, new if need be; nil if memory is short.
func (s *SealedSide) of(p *Sealed, budget *int) *ivs {
	for i, v := range s.ivs {
		if v != nil && v.spi == p.SPI && v.key == p.key {
			s.ivs[0], s.ivs[i] = s.ivs[i], s.ivs[0]
			return v
		}
	}
	s.Keys++
	switch {
	case s.ivs[1] != nil:
		*s.ivs[1] = ivs{}
	case *budget < ivsSize:
		return nil
	default:
		*budget -= ivsSize
		s.ivs[1] = &ivs{}
	}
	s.ivs[0], s.ivs[1] = s.ivs[1], s.ivs[0]
	s.ivs[0].spi, s.ivs[0].key = p.SPI, p.key
	return s.ivs[0]
}

// held returns what was taken from the budget.
func (s *SealedSide) held() (n int) {
	for _, v := range s.ivs {
		if v != nil {
			n += ivsSize
		}
	}
	return n
}

// add counts a packet, and notes what its IV shows.
func (s *SealedSide) add(p *Packet, budget *int) {
	h := &p.Sealed
	s.Packets++
	s.Bytes += uint64(h.Length)
	s.SPI, s.Version = h.SPI, h.Version
	if h.Opened {
		s.Opened++
	}
	v := s.of(h, budget)
	if v == nil {
		return
	}
	verdict := v.window.Take(h.IV)
	if verdict == psp.Stale && h.key == 0 && h.IV != 0 { // another key with the SPI has begun
		*v = ivs{spi: v.spi}
		verdict = v.window.Take(h.IV)
	}
	switch {
	case verdict != psp.Fresh:
		p.Flags |= Replayed
		s.Replayed++
	case v.newest == 0:
		v.newest = h.IV
	case h.IV > v.newest:
		if n := h.IV - v.newest - 1; n > 0 {
			s.Missing += n
			if !h.Opened {
				p.Flags |= Gap
				p.Missing = int(min(n, math.MaxInt32))
			}
		}
		v.newest = h.IV
	default:
		if s.Missing > 0 {
			s.Missing--
		}
		if !h.Opened {
			p.Flags |= OutOfOrder
		}
	}
}

// sealed takes a sealed packet, and reports whether what is in it is to be
// looked at, too.
func (f *Flows) sealed(p *Packet) bool {
	key := streamKey{src: p.IP.Src, dst: p.IP.Dst, qpn: p.Sealed.QPN()}
	e, known := f.streams[key]
	switch {
	case p.Malformed():
		if known {
			f.on(p, e)
			e.conn.Malformed++
			e.conn.Sealed[e.from].Refused++
		}
		return false
	case p.Sealed.Opened && known && e.conn.Sealed[e.from].replays(&p.Sealed):
		f.on(p, e)
		e.conn.Sealed[e.from].add(p, &f.budget)
		return false
	case p.Sealed.Opened:
		return true
	}
	if !known {
		// Only reliable connections have sealed packets. Whether it is
		// of XRC, what is in a packet would tell.
		p.info = rcInfo
		e = end{f.newConnection(p), 0}
		p.info = nil
		e.conn.B.QPN, e.conn.B.Known = key.qpn, true
		f.lonely(e.conn)
		f.lead(key, e)
	}
	f.on(p, e)
	e.conn.Sealed[e.from].add(p, &f.budget)
	if p.Flags&Replayed == 0 {
		f.blind(e.conn)
	}
	return false
}

var rcInfo, _ = rocev2.RCSendOnly.Info()

// replays reports whether a packet has come before.
func (s *SealedSide) replays(p *Sealed) bool {
	for _, v := range s.ivs {
		if v != nil && v.spi == p.SPI && v.key == p.key {
			return v.window.Look(p.IV) != psp.Fresh
		}
	}
	return false
}

// blind has both sides of a connection begin anew with the next packet that can
// be read: what was in the one before it is not known.
func (f *Flows) blind(c *Connection) {
	for i := range c.Requests {
		s := &c.Requests[i]
		s.blind = true
		if !s.started {
			continue
		}
		f.budget += s.sent.held() + s.messages.held()
		s.sent, s.messages = ring{}, messages{count: s.messages.count}
		s.started, s.firstUna, s.looseRead, s.cause = false, false, false, ""
	}
}

// merge adds what another side has counted. Of the keys that both know it keeps
// its own.
func (s *SealedSide) merge(o *SealedSide, budget *int) {
	if s.Packets == 0 {
		s.SPI, s.Version = o.SPI, o.Version
	}
	for _, v := range [...]struct{ to, from *uint64 }{
		{&s.Packets, &o.Packets}, {&s.Bytes, &o.Bytes}, {&s.Opened, &o.Opened}, {&s.Refused, &o.Refused},
		{&s.Replayed, &o.Replayed}, {&s.Missing, &o.Missing}, {&s.Keys, &o.Keys},
	} {
		*v.to += *v.from
	}
	if s.ivs == [2]*ivs{} {
		s.ivs = o.ivs
	} else {
		*budget += o.held()
	}
	o.ivs = [2]*ivs{}
}

// wasSealed reports whether sealed packets of a connection were seen.
func (c *Connection) wasSealed() bool {
	return c.Sealed[0].Packets+c.Sealed[0].Refused+c.Sealed[1].Packets+c.Sealed[1].Refused > 0
}

// unopened returns how many packets of a connection stay closed.
func (c *Connection) unopened() uint64 {
	return c.Sealed[0].Packets - c.Sealed[0].Opened + c.Sealed[1].Packets - c.Sealed[1].Opened
}

// SealedStats counts the sealed packets among others.
type SealedStats struct {
	Packets  uint64
	Opened   uint64
	NoKey    uint64 // there is no key for their SPI
	WrongKey uint64 // no key of their SPI opens them
	Cut      uint64 // not captured as a whole
	Refused  uint64 // the integrity check value or the header was wrong
	Replayed uint64

	// SPIs are some that there is no key for, without the generation, at
	// most MostSPIs.
	SPIs []uint32
}

// MostSPIs is how many SPIs SealedStats lists.
const MostSPIs = 8

// add counts a packet.
func (s *SealedStats) add(p *Packet) {
	if !p.Sealed.Present {
		return
	}
	s.Packets++
	if p.Flags&Replayed != 0 {
		s.Replayed++
	}
	switch {
	case p.Sealed.Opened:
		s.Opened++
	case p.Malformed():
		s.Refused++
	case errors.Is(p.Err, ErrNoKey):
		s.NoKey++
		s.noKeyFor(psp.Number(p.Sealed.SPI))
	case errors.Is(p.Err, ErrCut):
		s.Cut++
	default:
		s.WrongKey++
	}
}

func (s *SealedStats) noKeyFor(spi uint32) {
	if len(s.SPIs) < MostSPIs && !slices.Contains(s.SPIs, spi) {
		s.SPIs = append(s.SPIs, spi)
	}
}

// text writes what was counted, if there is anything.
func (s *SealedStats) text(w io.Writer) {
	if s.Packets == 0 {
		return
	}
	fmt.Fprintf(w, "; sealed: %d", s.Packets)
	for _, c := range []struct {
		n    uint64
		text string
	}{
		{s.Opened, "opened"}, {s.NoKey, "without a key"}, {s.WrongKey, "that no key fits"}, {s.Cut, "cut"}, {s.Refused, "refused"}, {s.Replayed, "replayed"},
	} {
		if c.n > 0 {
			fmt.Fprintf(w, ", %d %s", c.n, c.text)
		}
	}
}

func (s *SealedStats) json() map[string]uint64 {
	return map[string]uint64{"packets": s.Packets, "opened": s.Opened, "no_key": s.NoKey, "wrong_key": s.WrongKey, "cut": s.Cut,
		"refused": s.Refused, "replayed": s.Replayed}
}

// writeSealed lists what was sealed on connections.
func writeSealed(w io.Writer, list []*Connection) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	none := true
	for _, c := range list {
		for i := range c.Sealed {
			s := &c.Sealed[i]
			if s.Packets+s.Refused == 0 {
				continue
			}
			if none {
				fmt.Fprint(t, "\nconn\tsealed by\tSPI\tversion\tkeys\tpackets\tbytes\topened\trefused\treplayed\tmissing\t\n")
				none = false
			}
			fmt.Fprintf(t, "%s\t%v\t0x%08x\t%v\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n", c.Name(), c.End(i).Addr, s.SPI, s.Version, s.Keys,
				s.Packets, s.Bytes, s.Opened, s.Refused, s.Replayed, s.Missing)
		}
	}
	return t.Flush()
}

type sealedJSON struct {
	From     string `json:"from"`
	SPI      uint32 `json:"spi"`
	Version  string `json:"version"`
	Keys     uint64 `json:"keys"`
	Packets  uint64 `json:"packets"`
	Bytes    uint64 `json:"bytes"`
	Opened   uint64 `json:"opened"`
	Refused  uint64 `json:"refused"`
	Replayed uint64 `json:"replayed"`
	Missing  uint64 `json:"missing"`
}

func sealedSides(c *Connection) (list []sealedJSON) {
	for i := range c.Sealed {
		if s := &c.Sealed[i]; s.Packets+s.Refused > 0 {
			list = append(list, sealedJSON{c.End(i).Addr.String(), s.SPI, s.Version.String(), s.Keys, s.Packets, s.Bytes, s.Opened, s.Refused, s.Replayed, s.Missing})
		}
	}
	return list
}
