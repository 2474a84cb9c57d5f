package queue

import (
	"math"
	"math/bits"
	"sort"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// MaxHoles is how many missing packets a scoreboard knows at once. What is
// missing after them shows when they have come.
const MaxHoles = 4096

// Hole is a packet that the peer lacks, though it has got one that was sent
// later.
type Hole struct {
	PSN  rocev2.PSN
	mark rocev2.PSN // the first PSN that had never been sent when the packet was sent again
	at   clock.Time // when that was, or, before that, when it showed
	over uint16     // how many packets that were sent later have overtaken it, while it was not sent again
	lost bool       // it is lost, not only late
	sent bool       // it was sent again, and may arrive still
	// guess says that no packet after it has shown that it is missing. So
	// it says nothing of the path if it comes.
	guess bool
	again bool // it was sent again, perhaps before it was lost once more
	twice bool // it was sent again more than once
	// answer says that the PSN is of a response to a READ, for which no
	// packet is sent. So it is not lost.
	answer bool
}

// waits reports whether a hole is to be sent.
func (h *Hole) waits() bool { return h.lost && !h.sent && !h.answer }

// late reports whether a hole may still be filled by what was sent first.
func (h *Hole) late() bool { return !h.lost && !h.answer }

// Scoreboard is what a sender knows of the packets in flight that the peer
// keeps after gaps (RFC 6675, section 3). All PSNs before high are kept, or
// are holes.
type Scoreboard struct {
	holes   []Hole // by PSN
	spare   []Hole // memory for the next ones
	next    int    // all before this one do not wait
	high    rocev2.PSN
	lost    int // holes that are to be sent
	answers int // holes that never are
	late    int // holes that may not be lost
	path    *Reordering
	unused  *Scoreboard // in the pool
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
	return s != nil && psn.Ahead(una) < s.high.Ahead(una) && !s.misses(psn)
}

// from returns the place of the first hole that is not before psn.
func (s *Scoreboard) from(psn rocev2.PSN) int {
	return sort.Search(len(s.holes), func(i int) bool { return !s.holes[i].PSN.Before(psn) })
}

// misses reports whether psn is a hole.
func (s *Scoreboard) misses(psn rocev2.PSN) bool {
	i := s.from(psn)
	return i < len(s.holes) && s.holes[i].PSN == psn
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
func (s *Scoreboard) Pending() int { return len(s.holes) - s.lost - s.answers - s.late }

// Late returns how many packets are missing that may only be late.
func (s *Scoreboard) Late() int {
	if s == nil {
		return 0
	}
	return s.late
}

// FirstLate returns when the first packet that may only be late was missed, and
// whether there is one.
func (s *Scoreboard) FirstLate() (at clock.Time, ok bool) {
	if s == nil || s.late == 0 {
		return 0, false
	}
	for i := range s.holes {
		if s.holes[i].late() {
			return s.holes[i].at, true
		}
	}
	return 0, false
}

// LoseLate records that what has been missed since path.Missed is lost, and
// returns how many packets that is.
func (s *Scoreboard) LoseLate() (n int) {
	if s == nil {
		return 0
	}
	for i := range s.holes {
		if h := &s.holes[i]; h.late() && h.at <= s.path.Missed {
			h.lost = true
			s.path.Lost()
			n++
		}
	}
	s.lost, s.late, s.next = s.lost+n, s.late-n, 0
	return n
}

// NextLost returns the first packet that is lost.
func (s *Scoreboard) NextLost() *Hole {
	for ; s.next < len(s.holes); s.next++ {
		if h := &s.holes[s.next]; h.waits() {
			return h
		}
	}
	return nil
}

// Sent records that a hole is sent again at now; highest is the first PSN that
// was never sent.
func (s *Scoreboard) Sent(h *Hole, now clock.Time, highest rocev2.PSN) {
	if h.late() {
		s.late--
	} else {
		s.lost--
	}
	h.twice = h.again
	h.lost, h.sent, h.again, h.at, h.mark = true, true, true, now, highest
}

// SendRow records that holes without a gap between them, from psn on and before
// end, are sent again at now, and returns how many. It ends before one that was
// sent before, or may be late, unless it must not.
func (s *Scoreboard) SendRow(psn, end rocev2.PSN, all bool, now clock.Time, highest rocev2.PSN) (n uint32) {
	for i := s.from(psn); i < len(s.holes) && psn.Before(end); i++ {
		h := &s.holes[i]
		if h.PSN != psn || !all && !h.waits() {
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

// Knows reports whether the scoreboard has recorded that psn is missing.
func (s *Scoreboard) Knows(psn rocev2.PSN) bool {
	return s != nil && len(s.holes) > 0 && s.holes[0].PSN == psn
}

// Any reports whether any packet from psn on and before end is kept.
func (s *Scoreboard) Any(psn, end rocev2.PSN) bool {
	if s.high.Before(end) {
		end = s.high
	}
	return psn.Before(end) && uint32(s.from(end)-s.from(psn)) < end.Ahead(psn)
}

// Advance records that everything before una is acknowledged. It reports
// whether the scoreboard is still of use.
func (s *Scoreboard) Advance(una rocev2.PSN) bool {
	n := 0
	for n < len(s.holes) && s.holes[n].PSN.Before(una) {
		h := &s.holes[n]
		s.count(h, -1)
		s.path.filled(h, s.path.early(h, max(una.Ahead(h.PSN), s.high.Ahead(h.PSN))))
		n++
	}
	s.holes, s.next = s.holes[:copy(s.holes, s.holes[n:])], max(s.next-n, 0)
	return s.high.After(una)
}

// Resend has all holes sent again.
func (s *Scoreboard) Resend() {
	for i := range s.holes {
		h := &s.holes[i]
		h.lost, h.sent, h.guess = true, false, true
	}
	s.lost, s.late, s.next = len(s.holes)-s.answers, 0, 0
}

// count adds n to the number of holes of the kind of h.
func (s *Scoreboard) count(h *Hole, n int) {
	switch {
	case h.answer:
		s.answers += n
	case !h.lost:
		s.late += n
	case !h.sent:
		s.lost += n
	}
}

// Answers records that of psns PSNs from first on only each every-th belongs to
// a READ request, and the others to responses. It returns how many of those
// were taken for lost.
func (s *Scoreboard) Answers(first rocev2.PSN, psns, every uint32) (n int) {
	for i := s.from(first); i < len(s.holes) && s.holes[i].PSN.Ahead(first) < psns; i++ {
		h := &s.holes[i]
		if at := h.PSN.Ahead(first); at%every != 0 && !h.answer {
			if h.waits() {
				n++
			}
			s.count(h, -1)
			h.answer = true
			s.count(h, 1)
		}
	}
	return n
}

// LoseRest records that the packets before end of which nothing is known have
// not arrived either. The parameter most bounds how many.
func (s *Scoreboard) LoseRest(end rocev2.PSN, most int) {
	for ; s.high.Before(end) && len(s.holes) < MaxHoles && most > 0; most-- {
		s.holes = append(s.holes, Hole{PSN: s.high, lost: true, guess: true})
		s.high = s.high.Next()
		s.lost++
	}
}

// Missing records that the packet una is missing, as a sequence NAK says, and
// reports whether that is news. On a path that does not keep the order it may
// be late.
func (s *Scoreboard) Missing(una rocev2.PSN) bool { return s.miss(una, !s.path.Waits(), false) }

// Lose is Missing where it is lost in any case.
func (s *Scoreboard) Lose(una rocev2.PSN) bool { return s.miss(una, true, true) }

func (s *Scoreboard) miss(una rocev2.PSN, lost, guess bool) bool {
	if len(s.holes) > 0 && s.holes[0].PSN == una || len(s.holes) == MaxHoles {
		return false
	}
	if len(s.holes) == 0 {
		s.high = una.Next()
	}
	s.holes = append(s.holes, Hole{})
	copy(s.holes[1:], s.holes)
	s.holes[0], s.next = Hole{PSN: una, at: s.path.Now, over: 1, guess: guess, lost: lost}, 0
	s.count(&s.holes[0], 1)
	return true
}

// Update takes a selective acknowledgement: bit i of kept, the low bits of a
// byte first, says that the peer has the packet after the next i of una, which
// it lacks. A packet is lost when more packets than the reordering window has
// overtaken it and, on a path that may not keep the order, when it has been
// missing since path.Ripe. One that was sent again before path.Late, or so that
// something younger has arrived, is lost once more. One that the peer kept and
// keeps no more is sent again, too (RFC 2018, section 8), but the path has not
// lost it; unless the acknowledgement is an old one that comes late. The result
// is how many packets have turned out lost, and whether the acknowledgement can
// be true: nothing is kept from end on.
func (s *Scoreboard) Update(una, end rocev2.PSN, kept []byte) (lost int, ok bool) {
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
	m := merger{path: s.path, una: una, old: s.holes, high: high, known: s.high, late: s.path.Late, overtaken: s.path.overtaken()}
	m.stale = !s.path.Exact && (s.path.Seen() || high.Before(s.high))
	if high == end && !s.path.Waits() {
		m.overtaken = 1 // nothing else will
	}
	for _, b := range kept {
		m.above += bits.OnesCount8(b)
	}
	s.merge(&m, kept, reach)
	return m.lost, true
}

// Rebuild takes what is kept as Update does, and as all that is: before End
// nothing else is. What is missed is to be sent again, but the path has not
// lost it.
func (s *Scoreboard) Rebuild(una rocev2.PSN, kept []byte) {
	reach := min(int(s.high.Ahead(una))-1, MostReorder)
	var all [MostReorder / 8]byte
	copy(all[:], kept)
	m := merger{path: s.path, una: una, old: s.holes, high: una.Add(1 + reach), known: s.high, overtaken: math.MaxInt}
	s.merge(&m, all[:], reach)
}

// merge takes over the holes that m makes.
func (s *Scoreboard) merge(m *merger, kept []byte, reach int) {
	m.holes = s.spare[:0]
	s.high, s.lost, s.answers, s.late, s.next = m.merge(kept, reach), 0, 0, 0, 0
	s.holes, s.spare = m.holes, s.holes
	for i := range s.holes {
		s.count(&s.holes[i], 1)
	}
}

// merger makes the holes that a scoreboard has after a selective
// acknowledgement out of those before, old.
type merger struct {
	path      *Reordering
	una       rocev2.PSN
	old       []Hole
	high      rocev2.PSN // after what the acknowledgement tells of
	known     rocev2.PSN // after what was known
	late      clock.Time // see Reordering
	overtaken int        // by how many packets one that is lost was
	above     int        // packets that are kept
	stale     bool       // what was kept is, also if the acknowledgement says that it is not
	gaps      int        // that the acknowledgement has told of so far
	holes     []Hole
	lost      int // packets that have turned out lost
}

// merge takes over what the acknowledgement says up to its reach, and after it
// what is known already. It returns up to where all is known now.
func (m *merger) merge(kept []byte, reach int) rocev2.PSN {
	m.hole(m.una)
	for i, b := range kept {
		for gaps := ^b; gaps != 0; gaps &= gaps - 1 {
			k := 8*i + bits.TrailingZeros8(gaps)
			if psn := m.una.Add(1 + k); k < reach && !m.hole(psn) {
				return psn
			}
		}
	}
	for _, h := range m.old {
		if h.PSN.Before(m.high) {
			m.fill(&h)
		} else if !m.add(h) {
			return h.PSN
		}
	}
	if m.known.After(m.high) {
		return m.known
	}
	return m.high
}

// fill records that a hole has been filled.
func (m *merger) fill(h *Hole) { m.path.filled(h, m.path.early(h, m.high.Ahead(h.PSN))) }

// hole adds the hole psn, false if there is no room.
func (m *merger) hole(psn rocev2.PSN) bool {
	for len(m.old) > 0 && m.old[0].PSN.Before(psn) {
		m.fill(&m.old[0])
		m.old = m.old[1:]
	}
	over := m.above - int(psn.Ahead(m.una)) + m.gaps // of those kept, without those before psn
	m.gaps++
	h := Hole{PSN: psn, at: m.path.Now}
	switch {
	case len(m.old) > 0 && m.old[0].PSN == psn:
		h = m.old[0]
		m.old = m.old[1:]
	case psn.Before(m.known) && psn != m.una && m.stale:
		return true
	case psn.Before(m.known):
		h.lost, h.guess = true, true
	}
	news := false
	switch {
	case h.answer:
	case h.sent:
		news = m.high.Ahead(h.PSN) > h.mark.Ahead(h.PSN)+1+uint32(m.path.window) || h.at <= m.late
		h.sent = !news
	case !h.lost:
		news = over >= m.overtaken && m.path.ripe(h.at) || h.at <= m.path.Missed
		h.guess = m.path.ComesTwice(psn)
		h.lost, h.over = news, uint16(min(max(over, int(h.over)), MaxReordering))
	}
	if !m.add(h) {
		return false
	}
	if news {
		m.lost++
		m.path.Lost()
	}
	return true
}

func (m *merger) add(h Hole) bool {
	if len(m.holes) == MaxHoles {
		return false
	}
	m.holes = append(m.holes, h)
	return true
}

// maxSpareBoards is how many scoreboards a pool keeps for the next loss.
const maxSpareBoards = 64

// manyHoles is how many holes a scoreboard keeps memory for until it is used
// again.
const manyHoles = 512

// OpenBoard returns an empty scoreboard for a path whose packets carry so much.
func (s *Pool) OpenBoard(una rocev2.PSN, path *Reordering, payload int) *Scoreboard {
	path.SetMost(s.Share(payload) / 2)
	path.join(&s.order)
	b := s.spareBoard
	if b == nil {
		return &Scoreboard{high: una, path: path}
	}
	s.spareBoard = b.unused
	s.spareBoards--
	*b = Scoreboard{holes: b.holes[:0], spare: b.spare, high: una, path: path}
	return b
}

// CloseBoard takes a scoreboard back.
func (s *Pool) CloseBoard(b *Scoreboard) {
	if s.spareBoards == maxSpareBoards {
		return
	}
	if max(cap(b.holes), cap(b.spare)) > manyHoles {
		b.holes, b.spare = nil, nil
	}
	b.unused, b.path = s.spareBoard, nil
	s.spareBoard = b
	s.spareBoards++
}

// A scoreboard is brought up to date after selectiveEvery packets after gaps
// at the latest, or after a part of those that may be kept: that costs the more
// the further it reaches.
const (
	selectiveEvery = 8
	selectiveShare = 256
)

// Every returns after how many packets that is; the buffer must not be empty.
func (r Reorder) Every(expected rocev2.PSN) uint8 {
	return uint8(min(max(selectiveEvery, r.end.Ahead(expected)/selectiveShare), 255))
}

// AppendKept appends which PSNs after the expected one, which is missing, are
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
