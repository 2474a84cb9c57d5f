package tcp

import "github.com/gosoftroce/rocev2/fabric/event"

// receiver is the side of a stream that the bytes are for.
type receiver struct {
	cfg       *Config
	stats     *Stats
	first     uint32 // number of its own SYN
	peerFirst uint32

	open   bool
	answer bool  // the SYN is to be answered
	nxt    int64 // position that it waits for
	fin    int64 // position after the FIN; 0: it has not come
	over   ranges
	recent [mostBlocks]int64 // positions that came out of order, the newest first
	many   int               // of these

	waiting  int // segments that are not acknowledged
	now      bool
	deadline event.Time // of an acknowledgement that waits for more
	ece, ce  bool
}

func newReceiver(c *Config, first uint32, stats *Stats) receiver {
	return receiver{cfg: c, stats: stats, first: first, deadline: event.Never}
}

// received returns how many bytes have come in order.
func (r *receiver) received() int64 {
	n := max(r.nxt-1, 0)
	if r.all() {
		n--
	}
	return n
}

// all reports whether all bytes have come.
func (r *receiver) all() bool { return r.fin > 0 && r.nxt == r.fin }

// handle takes a segment, with the length of its payload, and whether it was
// marked.
func (r *receiver) handle(now event.Time, h *segment, payload int, marked bool) {
	if h.flags&syn != 0 {
		if !r.open {
			r.open, r.nxt, r.peerFirst = true, 1, h.seq
		}
		r.answer = h.seq == r.peerFirst
		return
	}
	n := int64(payload)
	if h.flags&fin != 0 {
		n++
	}
	if !r.open || n == 0 {
		return
	}
	r.marks(h, marked)
	p := span{begin: unwrap(h.seq, r.peerFirst, r.nxt)}
	p.end = p.begin + n
	if h.flags&fin != 0 {
		r.fin = p.end
	}
	before := r.received()
	r.take(p)
	r.stats.RxBytes += uint64(r.received() - before)
	if r.waiting++; r.waiting >= r.cfg.AckEvery || r.all() {
		r.now = true
	} else if r.deadline == event.Never {
		r.deadline = now + r.cfg.AckDelay
	}
}

// take takes bytes of the stream. What is out of order, or fills a gap, is
// acknowledged at once (RFC 5681 4.2).
func (r *receiver) take(p span) {
	switch {
	case p.end <= r.nxt:
		r.stats.Duplicates++
		r.now = true
	case p.begin <= r.nxt:
		r.nxt = p.end
		if r.over.len() > 0 {
			r.now = true
			r.over.forget(r.nxt)
			if r.over.len() > 0 && r.over.get(0).begin == r.nxt {
				r.nxt = r.over.get(0).end
				r.over.forget(r.nxt)
			}
		}
	case p.end <= r.nxt+int64(r.cfg.Window):
		r.now = true
		if r.over.add(p) == 0 {
			r.stats.Duplicates++
			return
		}
		r.stats.Reordered++
		copy(r.recent[1:], r.recent[:])
		r.recent[0] = p.begin
		r.many = min(r.many+1, mostBlocks)
	}
}

// marks takes what a segment says of congestion: until the sender says that it
// knows (RFC 3168 6.1.3), or for DCTCP as it is, and at once if it has changed
// (RFC 8257 3.2).
func (r *receiver) marks(h *segment, marked bool) {
	if marked {
		r.stats.Marked++
	}
	if r.cfg.Control == DCTCP {
		r.now = r.now || marked != r.ce
		r.ce, r.ece = marked, marked
		return
	}
	r.ece = r.ece && h.flags&cwr == 0 || marked
}

// ready reports whether there is something to send.
func (r *receiver) ready() bool { return r.answer || r.now }

// timeout says that an acknowledgement has waited for long enough.
func (r *receiver) timeout() { r.now, r.deadline = true, event.Never }

// next writes an acknowledgement, and reports whether there is one.
func (r *receiver) next(h *segment) bool {
	switch {
	case r.answer:
		r.answer = false
		h.seq, h.ack, h.flags, h.window = r.first, r.peerFirst+1, syn|ack, uint16(min(r.cfg.Window, 1<<16-1))
		h.mss, h.scale = uint16(r.cfg.MSS), r.cfg.scale()
		if r.cfg.ecn() {
			h.flags |= ece
		}
	case r.now:
		r.now, r.waiting, r.deadline = false, 0, event.Never
		h.seq, h.ack, h.flags, h.window = r.first+1, r.peerFirst+uint32(r.nxt), ack, uint16(r.cfg.Window>>r.cfg.scale())
		if r.ece {
			h.flags |= ece
		}
		r.selective(h)
		r.stats.Acks++
	default:
		return false
	}
	return true
}

// selective writes what has come out of order, the newest first (RFC 2018 4).
func (r *receiver) selective(h *segment) {
	for _, pos := range r.recent[:r.many] {
		i := r.over.at(pos)
		if i == r.over.len() || r.over.get(i).begin > pos {
			continue // it has been taken since
		}
		k := r.over.get(i)
		b := block{r.peerFirst + uint32(k.begin), r.peerFirst + uint32(k.end)}
		had := false
		for _, o := range h.blocks[:h.n] {
			had = had || o == b
		}
		if !had {
			h.blocks[h.n] = b
			h.n++
		}
	}
}
