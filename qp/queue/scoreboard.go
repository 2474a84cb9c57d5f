package queue

import (
	"math/bits"

	"github.com/gosoftroce/rocev2/clock"
	"github.com/gosoftroce/rocev2/rocev2"
)

// MaxHoles is how many missing packets a scoreboard knows at once. What is
// missing behind them shows when they have come.
const MaxHoles = 512

// Hole is a packet that the peer lacks, though it has got one that was sent
// later.
type Hole struct {
	PSN  rocev2.PSN
	mark rocev2.PSN // the first PSN that had never been sent when the packet was sent again
	at   clock.Time // when that was
	sent bool       // it was sent again, and may arrive still
	// answer says that the PSN is of a response to a READ, for which no
	// packet is sent. So it is not lost.
	answer bool
}

// waits reports whether a hole is to be sent.
func (h *Hole) waits() bool { return !h.sent && !h.answer }

// Scoreboard is what a sender knows of the packets in flight that the peer
// keeps behind gaps (RFC 6675, section 3). All PSNs before high are kept, or
// are holes.
type Scoreboard struct {
	holes   []Hole // by PSN
	high    rocev2.PSN
	lost    int // holes that are to be sent
	answers int // holes that never are
	next    *Scoreboard
}

// Kept returns how many packets from una on the peer keeps; 0 without a
// scoreboard.
func (s *Scoreboard) Kept(una rocev2.PSN) uint32 {
	if s == nil {
		return 0
	}
	return s.high.Ahead(una) - uint32(len(s.holes))
}

// Has reports whether the peer has the packet psn, or all before una are
// acknowledged and it is one of them.
func (s *Scoreboard) Has(psn, una rocev2.PSN) bool {
	if psn.Before(una) {
		return true
	}
	if s == nil || psn.Ahead(una) >= s.high.Ahead(una) {
		return false
	}
	for i := range s.holes {
		if s.holes[i].PSN == psn {
			return false
		}
	}
	return true
}

// Lost returns how many packets are lost, and not sent again yet.
func (s *Scoreboard) Lost() int {
	if s == nil {
		return 0
	}
	return s.lost
}

// End returns the PSN before which all are kept, or are holes.
func (s *Scoreboard) End() rocev2.PSN { return s.high }

// Pending returns how many packets were sent again, and may arrive still.
func (s *Scoreboard) Pending() int { return len(s.holes) - s.lost - s.answers }

// NextLost returns the first packet that is lost.
func (s *Scoreboard) NextLost() *Hole {
	for i := range s.holes {
		if s.holes[i].waits() {
			return &s.holes[i]
		}
	}
	return nil
}

// Sent takes note that a hole is sent again at now; highest is the first PSN
// that was never sent.
func (s *Scoreboard) Sent(h *Hole, now clock.Time, highest rocev2.PSN) {
	h.sent, h.at, h.mark = true, now, highest
	s.lost--
}

// SendRow takes note that holes without a gap between them, from psn on and
// before end, are sent again at now, and returns how many. It ends before one
// that was sent before, unless it must not.
func (s *Scoreboard) SendRow(psn, end rocev2.PSN, all bool, now clock.Time, highest rocev2.PSN) (n uint32) {
	for i := range s.holes {
		h := &s.holes[i]
		if h.PSN != psn || !psn.Before(end) {
			continue
		}
		if h.sent && !all {
			break
		}
		if h.sent {
			s.lost++
		}
		s.Sent(h, now, highest)
		psn = psn.Next()
		n++
	}
	return n
}

// Any reports whether any packet from psn on and before end is kept.
func (s *Scoreboard) Any(psn, end rocev2.PSN) bool {
	if s.high.Before(end) {
		end = s.high
	}
	n := uint32(0)
	for i := range s.holes {
		if p := s.holes[i].PSN; !p.Before(psn) && p.Before(end) {
			n++
		}
	}
	return psn.Before(end) && n < end.Ahead(psn)
}

// Advance takes note that everything before una is acknowledged. It reports
// whether the scoreboard is still of use.
func (s *Scoreboard) Advance(una rocev2.PSN) bool {
	n := 0
	for n < len(s.holes) && s.holes[n].PSN.Before(una) {
		if s.holes[n].waits() {
			s.lost--
		} else if s.holes[n].answer {
			s.answers--
		}
		n++
	}
	s.holes = s.holes[:copy(s.holes, s.holes[n:])]
	return s.high.After(una)
}

// Resend has all holes sent again.
func (s *Scoreboard) Resend() {
	for i := range s.holes {
		s.holes[i].sent = false
	}
	s.lost = len(s.holes) - s.answers
}

// Answers takes note that of so many PSNs from first on only each every-th is
// that of a request for READs, and the others are of responses. It returns how
// many of them were taken for lost.
func (s *Scoreboard) Answers(first rocev2.PSN, psns, every uint32) (n int) {
	for i := range s.holes {
		h := &s.holes[i]
		if at := h.PSN.Ahead(first); at < psns && at%every != 0 && !h.answer {
			if h.waits() {
				n++
			}
			h.answer = true
			s.answers++
		}
	}
	s.lost -= n
	return n
}

// LoseRest takes note that what was sent before end has not arrived either, of
// which nothing is known: so many packets at the most.
func (s *Scoreboard) LoseRest(end rocev2.PSN, most int) {
	for ; s.high.Before(end) && len(s.holes) < MaxHoles && most > 0; most-- {
		s.holes = append(s.holes, Hole{PSN: s.high})
		s.high = s.high.Next()
		s.lost++
	}
}

// Missing takes note that the packet una is missing, as a sequence NAK says,
// and reports whether that is news.
func (s *Scoreboard) Missing(una rocev2.PSN) bool {
	if len(s.holes) > 0 && s.holes[0].PSN == una || len(s.holes) == MaxHoles {
		return false
	}
	if len(s.holes) == 0 {
		s.high = una.Next()
	}
	s.holes = append(s.holes, Hole{})
	copy(s.holes[1:], s.holes)
	s.holes[0] = Hole{PSN: una}
	s.lost++
	return true
}

// Update takes a selective acknowledgement: bit i of kept, the low bits of a
// byte first, says that the peer has the packet behind the next i of una, which
// it lacks. A packet that was sent again before late, or so that something
// younger has arrived, is lost once more. One that the peer kept and keeps no
// more is sent again, too (RFC 2018, section 8), but the path has not lost it.
// The result is how many packets have turned out lost, and whether the
// acknowledgement can be true: nothing is kept from end on.
func (s *Scoreboard) Update(una, end rocev2.PSN, kept []byte, late clock.Time) (lost int, ok bool) {
	for len(kept) > 0 && kept[len(kept)-1] == 0 {
		kept = kept[:len(kept)-1]
	}
	if len(kept) == 0 {
		return 0, true
	}
	reach := 8*len(kept) - bits.LeadingZeros8(kept[len(kept)-1]) // bits
	high := una.Add(1 + reach)
	if high.Ahead(una) > end.Ahead(una) {
		return 0, false
	}
	m := merger{old: s.holes, high: high, known: s.high, late: late}
	s.merge(&m, una, kept, reach)
	return m.lost, true
}

// Rebuild takes what is kept as Update does, and as all that is: before End
// nothing else is. What is missed is to be sent again, but the path has not
// lost it.
func (s *Scoreboard) Rebuild(una rocev2.PSN, kept []byte) {
	reach := min(int(s.high.Ahead(una))-1, MaxReorder)
	var all [MaxReorder / 8]byte
	copy(all[:], kept)
	m := merger{old: s.holes, high: una.Add(1 + reach), known: s.high}
	s.merge(&m, una, all[:], reach)
}

// merge takes over the holes that m makes.
func (s *Scoreboard) merge(m *merger, una rocev2.PSN, kept []byte, reach int) {
	s.high, s.lost, s.answers = m.merge(una, kept, reach), 0, 0
	s.holes = append(s.holes[:0], m.holes[:m.n]...)
	for i := range s.holes {
		if s.holes[i].waits() {
			s.lost++
		} else if s.holes[i].answer {
			s.answers++
		}
	}
}

// merger makes the holes that a scoreboard has after a selective
// acknowledgement out of those before, old.
type merger struct {
	old   []Hole
	high  rocev2.PSN // behind what the acknowledgement tells of
	known rocev2.PSN // behind what was known
	late  clock.Time
	holes [MaxHoles]Hole
	n     int
	lost  int // packets that have turned out lost
}

// merge takes over what the acknowledgement says up to its reach, and behind it
// what is known already. It returns up to where all is known now.
func (m *merger) merge(una rocev2.PSN, kept []byte, reach int) rocev2.PSN {
	m.hole(una)
	for i, b := range kept {
		for gaps := ^b; gaps != 0; gaps &= gaps - 1 {
			k := 8*i + bits.TrailingZeros8(gaps)
			if psn := una.Add(1 + k); k < reach && !m.hole(psn) {
				return psn
			}
		}
	}
	for _, h := range m.old {
		if !h.PSN.Before(m.high) && !m.add(h) {
			return h.PSN
		}
	}
	if m.known.After(m.high) {
		return m.known
	}
	return m.high
}

// hole adds the hole psn, false if there is no room.
func (m *merger) hole(psn rocev2.PSN) bool {
	for len(m.old) > 0 && m.old[0].PSN.Before(psn) {
		m.old = m.old[1:]
	}
	h := Hole{PSN: psn}
	news := !psn.Before(m.known)
	if len(m.old) > 0 && m.old[0].PSN == psn {
		h = m.old[0]
		news = h.sent && !h.answer && (m.high.After(h.mark.Next()) || h.at <= m.late)
		h.sent = h.sent && !news
	}
	if !m.add(h) {
		return false
	}
	if news {
		m.lost++
	}
	return true
}

func (m *merger) add(h Hole) bool {
	if m.n == MaxHoles {
		return false
	}
	m.holes[m.n] = h
	m.n++
	return true
}

// maxSpareBoards is how many scoreboards a pool keeps for the next loss.
const maxSpareBoards = 64

// OpenBoard returns an empty scoreboard.
func (s *Pool) OpenBoard(una rocev2.PSN) *Scoreboard {
	b := s.spareBoard
	if b == nil {
		return &Scoreboard{high: una}
	}
	s.spareBoard = b.next
	s.spareBoards--
	*b = Scoreboard{holes: b.holes[:0], high: una}
	return b
}

// CloseBoard takes a scoreboard back.
func (s *Pool) CloseBoard(b *Scoreboard) {
	if s.spareBoards == maxSpareBoards {
		return
	}
	b.next = s.spareBoard
	s.spareBoard = b
	s.spareBoards++
}

// AppendKept appends which PSNs behind the expected one, which is missing, are
// kept: bit i is for the i-th, low bits of a byte first. There are at most max
// bytes, a multiple of 4.
func (r Reorder) AppendKept(b []byte, expected rocev2.PSN, most int) []byte {
	if r.buffer == nil {
		return b
	}
	from := expected.Next()
	n := min((int(r.end.Ahead(from))+31)/32*4, most)
	for k := range n {
		psn := from.Add(8 * k)
		w, _ := r.bit(psn)
		v := *w >> (psn % 64)
		if psn%64 > 56 {
			w, _ = r.bit(psn.Add(8))
			v |= *w << (64 - psn%64)
		}
		b = append(b, byte(v))
	}
	return b
}
