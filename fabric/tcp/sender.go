package tcp

import (
	"math"

	"github.com/gosoftroce/rocev2/fabric/event"
)

// Modes of a sender.
const (
	normal = iota
	fast   // recovery after duplicate acknowledgements (RFC 6675)
	slow   // recovery after a timeout
)

const dupThresh = 3 // RFC 6675 2

// sender is the side of a stream that has the bytes. Position 0 of the stream
// is the SYN, the first byte is 1, and the FIN comes after the last one.
type sender struct {
	cfg   *Config
	stats *Stats
	first uint32 // number of the SYN
	peer  uint32 // number that the receiver's next byte has: it sends none
	total int64  // positions of the stream

	open     bool // the handshake is over
	synAgain bool // the SYN is to go again
	synLost  bool
	cwr      bool // the next segment with news says that the window was cut

	una, nxt int64 // oldest that is not acknowledged; next to be sent
	limited  int64 // what was sent when the window was full ends here
	room     int64 // window of the receiver
	scale    uint8 // of it
	w        window
	rto      rto
	deadline event.Time // of the timeout

	timed   int64      // when this is acknowledged
	timedAt event.Time // a round trip has passed since then; Never: none is timed

	mode     int
	dups     int
	force    bool   // the first segment goes, whatever the window
	sacked   ranges // RFC 6675 3
	pipe     int64  // SetPipe
	lostTo   int64  // all below that is not in sacked is lost, by a timeout
	rexmit   int64  // HighRxt + 1, or una
	low      int64  // bytes of sacked below it
	recover  int64  // RecoveryPoint + 1
	rescue   int64  // RescueRxt + 1
	timedOut int64  // what was oldest at the last timeout
}

func newSender(c *Config, bytes int64, first uint32, stats *Stats) sender {
	total := int64(math.MaxInt64 / 4)
	if bytes > 0 {
		total = bytes + 2
	}
	return sender{cfg: c, stats: stats, first: first, total: total, w: newWindow(c), rto: newRTO(c.MinRTO), deadline: event.Never, timedAt: event.Never, timedOut: -1}
}

// done reports whether all of the stream is acknowledged.
func (s *sender) done() bool { return s.una == s.total }

// lostBelow returns below what all that is not in sacked is lost (IsLost).
func (s *sender) lostBelow() int64 {
	lost, bytes := max(s.lostTo, s.una), int64(0)
	for i, n := s.sacked.len()-1, 1; i >= 0; i, n = i-1, n+1 {
		k := s.sacked.get(i)
		if bytes += k.end - k.begin; n >= dupThresh || bytes > (dupThresh-1)*s.w.mss {
			return max(lost, k.begin)
		}
	}
	return lost
}

// setPipe counts what is in the network (SetPipe).
func (s *sender) setPipe() {
	lost := s.lostBelow()
	s.pipe = s.nxt - lost - s.sacked.above(lost) + s.rexmit - s.una - s.low
}

// Kinds of what a sender sends.
const (
	nothing = iota
	news
	again
	rescued // again, and HighRxt stays as it is
)

// what returns what is to be sent next (NextSeg), and of which kind it is.
func (s *sender) what() (p span, kind int) {
	switch {
	case !s.open && s.synAgain:
		return span{0, 1}, again
	case !s.open && s.nxt == 0:
		return span{0, 1}, news
	case !s.open:
		return p, nothing
	case s.force:
		return s.clip(s.sacked.gap(s.una, s.nxt)), again
	case s.w.cwnd-s.pipe < s.w.mss:
		return p, nothing
	}
	if s.mode != normal {
		if p = s.sacked.gap(s.rexmit, s.lostBelow()); p.begin < p.end { // rule 1
			return s.clip(p), again
		}
	}
	if p = s.clip(span{s.nxt, s.total}); p.begin < p.end && p.end <= s.una+s.room { // rule 2
		return p, news
	}
	if s.mode != fast || s.sacked.len() == 0 {
		return p, nothing
	}
	last := s.sacked.get(s.sacked.len() - 1)
	if p = s.sacked.gap(s.rexmit, last.begin); p.begin < p.end { // rule 3
		return s.clip(p), again
	}
	if s.rescue <= s.una && last.end < s.nxt { // rule 4
		return s.clip(span{max(s.nxt-s.w.mss, last.end), s.nxt}), rescued
	}
	return p, nothing
}

// clip returns the first segment of what is to be sent. A FIN goes with the
// last byte.
func (s *sender) clip(p span) span {
	end := min(p.begin+s.w.mss, p.end)
	if end == s.total-1 && p.end == s.total {
		end = s.total
	}
	return span{p.begin, end}
}

// next writes the header of what is sent next, and returns the length of its
// payload, and of which kind it is.
func (s *sender) next(now event.Time, h *segment) (payload, kind int) {
	p, kind := s.what()
	if kind == nothing {
		return 0, kind
	}
	h.seq = s.first + uint32(p.begin)
	payload = int(min(p.end, s.total-1) - p.begin)
	switch {
	case p.begin == 0:
		h.flags, h.mss, h.scale, payload = syn, uint16(s.cfg.MSS), s.cfg.scale(), 0
		if s.cfg.ecn() {
			h.flags |= ece | cwr
		}
	case p.end == s.total:
		h.flags = ack | psh | fin
	default:
		h.flags = ack
	}
	if h.ack, h.window = s.peer, uint16(s.cfg.Window>>s.cfg.scale()); p.begin == 0 {
		h.window = uint16(min(s.cfg.Window, 1<<16-1)) // that of a SYN is not shifted
	}
	if s.cwr && kind == news && p.begin > 0 {
		h.flags |= cwr
		s.cwr = false
	}
	s.sent(now, p, kind)
	return payload, kind
}

// sent notes what was sent.
func (s *sender) sent(now event.Time, p span, kind int) {
	s.stats.Segments++
	if s.deadline == event.Never { // RFC 6298 5.1
		s.deadline = now + s.rto.value
	}
	s.pipe += p.end - p.begin
	if kind == news {
		if s.w.cwnd-s.pipe < s.w.mss {
			s.limited = p.end
		}
		if s.nxt = p.end; s.timedAt == event.Never && s.mode == normal {
			s.timed, s.timedAt = p.end, now
		}
		return
	}
	s.stats.Retransmits++
	s.timedAt, s.force, s.synAgain = event.Never, false, false
	if kind == rescued {
		s.rescue = s.recover
	} else if p.end > s.rexmit {
		s.low += s.sacked.within(s.rexmit, p.end)
		s.rexmit = p.end
	}
}

// handle takes a segment of the receiver.
func (s *sender) handle(now event.Time, h *segment) {
	if h.flags&ack == 0 {
		return
	}
	pos := unwrap(h.ack, s.first, s.una)
	if pos < s.una || pos > s.nxt {
		return
	}
	if h.flags&syn != 0 {
		if !s.open && pos == 1 {
			s.opened(now, h)
		}
		return
	}
	if !s.open {
		return
	}
	s.room = int64(h.window) << s.scale
	full, selected := s.una < s.limited, s.selected(h) // RFC 7661 4.2: else the window says nothing of the path
	bytes := pos - s.una
	if s.advance(now, pos); bytes == 0 && selected > 0 {
		s.dups++
	}
	if s.mode == normal && s.sacked.len() > 0 && (s.dups >= dupThresh || s.lostBelow() > s.una) {
		s.recovery()
	}
	s.setPipe()
	marks := h.flags&ece != 0
	if marks {
		s.stats.Echoes++
	}
	if s.mode != fast && s.w.echo(s.una, s.nxt, bytes, marks) {
		s.stats.Cuts++
		s.cwr = true
	}
	switch {
	case bytes == 0 || s.mode == fast || s.mode == normal && s.una < s.w.answered:
	case full:
		limit := int64(2)
		if s.mode == slow {
			limit = 1
		}
		s.w.grow(bytes, limit, now, s.rto.srtt)
	default:
		s.w.still(now)
	}
}

// opened takes the answer to the SYN.
func (s *sender) opened(now event.Time, h *segment) {
	s.open, s.una, s.scale, s.room, s.deadline = true, 1, h.scale, int64(h.window), event.Never
	s.peer = h.seq + 1
	if h.mss > 0 {
		s.w.mss = min(s.w.mss, int64(h.mss))
	}
	if s.synLost {
		s.w.cwnd = s.w.mss // RFC 5681 3.1
		s.rto.value = max(afterSYN, s.rto.least)
		s.synLost = false
	} else {
		s.rto.sample(now - s.timedAt)
	}
	s.timedAt, s.rexmit, s.recover, s.pipe = event.Never, 1, 1, 0
	s.w.answered, s.w.windowEnd = 1, 1
}

// selected takes what is acknowledged selectively, and returns how much of it
// is news.
func (s *sender) selected(h *segment) (news int64) {
	for _, b := range h.blocks[:h.n] {
		k := span{unwrap(b.begin, s.first, s.una), unwrap(b.end, s.first, s.una)}
		if k.begin > s.una && k.end <= s.nxt {
			below := s.sacked.add(span{k.begin, min(k.end, s.rexmit)})
			s.low += below
			news += below + s.sacked.add(span{max(k.begin, s.rexmit), k.end})
		}
	}
	return news
}

// advance takes what is acknowledged in order.
func (s *sender) advance(now event.Time, pos int64) {
	if pos == s.una {
		return
	}
	s.una, s.dups = pos, 0
	s.low -= s.sacked.forget(pos)
	if pos > s.rexmit {
		s.rexmit, s.low = pos, 0
	}
	if s.timedAt != event.Never && pos >= s.timed {
		s.rto.sample(now - s.timedAt)
		s.timedAt = event.Never
	}
	if s.deadline = now + s.rto.value; s.una == s.nxt { // RFC 6298 5.2, 5.3
		s.deadline = event.Never
	}
	if s.mode != normal && pos >= s.recover {
		s.mode, s.force = normal, false
	}
}

// flight returns how much was in the network before a loss (FlightSize of RFC
// 5681 2). What is sent for what was acknowledged selectively makes it no more.
func (s *sender) flight() int64 { return min(s.nxt-s.una, s.w.cwnd) }

// recovery begins with the segment that is missed (RFC 6675 5, step 4).
func (s *sender) recovery() {
	s.mode, s.recover, s.force, s.rexmit, s.low, s.rescue = fast, s.nxt, true, s.una, 0, s.una
	s.w.cut(s.flight())
	s.w.answered = s.nxt
	s.cwr = s.cfg.ecn()
	s.stats.Recoveries++
}

// timeout is what happens when nothing was acknowledged for too long (RFC 6298
// 5.4 to 5.7, RFC 6675 5.1). The receiver keeps what it has said that it has.
func (s *sender) timeout() {
	s.stats.Timeouts++
	s.rto.backOff()
	s.deadline, s.timedAt = event.Never, event.Never
	if !s.open {
		s.synAgain, s.synLost = true, true
		return
	}
	s.w.timeout(s.flight(), s.timedOut == s.una)
	s.w.answered = s.nxt
	s.mode, s.lostTo, s.rexmit, s.low, s.recover, s.timedOut, s.dups, s.force = slow, s.nxt, s.una, 0, s.nxt, s.una, 0, false
	s.setPipe()
}
