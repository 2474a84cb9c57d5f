package requester

import (
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/cc"
	"github.com/gosoftroce/rocev2/rocev2"
)

// repair is selective retransmission: a cursor beside that of the stream. A few
// packets are sent again from the oldest unacknowledged one on, while sending
// goes on where it was. It is for a peer that buffers what arrives after a
// gap, and for READs whose later responses are in the reorder buffer here.
type repair struct {
	left uint32     // packets still to be sent; 0: none is under way
	cur  uint32     // request of the next one
	nxt  rocev2.PSN // and its PSN

	run        uint32     // length of the last run; 0: there was none
	start, end rocev2.PSN // from the first packet of it to what follows the last
	limit      rocev2.PSN // what was sent before it ends here
	reads      uint8      // READs in a row that were asked for again one by one, if run is 0; end is after the last
}

const (
	// repairRun is how many packets are sent first: the missing one, and
	// two that show the peer if it is lost again.
	repairRun = 3
	// probeRun is how many are sent after a silence: the last packets in
	// flight may be lost, which shows nowhere else.
	probeRun = 32
	// repairGrowth is by how much a run is longer than the one that it
	// follows or repeats.
	repairGrowth = 4
	// repairReads is how often the request for missing READ responses is
	// sent: nothing would show that it is lost.
	repairReads = 2
	// maxReadsInRow is how many READs in a row are asked for again one by
	// one: if the next is missing too, all are, as when a flight is lost.
	maxReadsInRow = 2
)

// grows reports whether a run that begins at una now is longer than the last
// one, which began with the packet that is missing again, or ended with the one
// before: more is missing than single packets.
func (p *repair) grows(una rocev2.PSN) bool { return p.run > 0 && (una == p.start || una == p.end) }

// begin begins to send packets again from the oldest one in flight on: a run,
// or a longer one if it grows. The rest of a READ is asked for reads times. It
// returns false if that may not be enough.
func (p *repair) begin(s *stream, run, reads uint32, grows bool) bool {
	if s.nxt == s.una {
		return false
	}
	w := s.head()
	if end := w.First.Add(int(w.PSNs)); w.Kind&ib.OpAnswered != 0 {
		if !p.nextRead(w.First, end) {
			return false
		}
		s.resume(s.ring.Head)
		p.left, p.run, p.end = reads, 0, end
	} else {
		if grows {
			run = min(p.run*repairGrowth, cc.MaxPSNs)
		}
		p.run, p.left, p.limit = run, run, s.nxt
		p.start, p.end = s.una, s.una.Add(int(run))
	}
	p.cur, p.nxt = s.ring.Head, s.una
	return true
}

// nextRead records that a READ with these PSNs is to be asked for again, and
// reports whether that may be enough.
func (p *repair) nextRead(first, end rocev2.PSN) bool {
	switch {
	case p.run == 0 && p.reads > 0 && first == p.end:
		p.reads++
	case p.run > 0 || p.reads == 0 || end != p.end:
		p.reads = 1
	}
	if p.reads <= maxReadsInRow {
		return true
	}
	p.reads = 0
	return false
}

// next returns the request and the PSN of the next packet; false if none is to
// be sent.
func (p *repair) next(s *stream) (cur uint32, psn rocev2.PSN, ok bool) {
	if p.left == 0 || p.nxt.Before(s.una) || p.nxt.Ahead(s.una) >= s.inFlight() {
		p.left = 0 // done meanwhile
		return 0, 0, false
	}
	if p.nxt != s.una && s.ring.At(p.cur).Kind&ib.OpAnswered != 0 {
		// A READ or an atomic is repaired when its turn comes. What is
		// acknowledged up to here says nothing about it.
		p.left, p.end, p.limit = 0, p.nxt, p.nxt
		return 0, 0, false
	}
	return p.cur, p.nxt, true
}

// sent records that rq, the next packet, was sent.
func (p *repair) sent(s *stream, rq *request) {
	p.left--
	if rq.w.Kind&ib.OpAnswered != 0 {
		return
	}
	p.nxt = p.nxt.Next()
	if rq.ends() {
		p.cur = s.after(p.cur)
	}
}

// progress records that everything before una is acknowledged. It reports
// whether the repair has failed: just the last run is acknowledged, and nothing
// of what had been sent after it before, so the peer has not kept that. Else it
// ends what una has got past: the repair, which may have waited for its time,
// and the memory of the last run when all that it was about has come. PSNs come
// again.
func (p *repair) progress(una rocev2.PSN) (failed bool) {
	if p.run > 0 && p.left == 0 && una == p.end && una.Before(p.limit) {
		return true
	}
	if p.left > 0 && p.nxt.Before(una) {
		p.left = 0
	}
	if p.run > 0 && p.left == 0 && una.After(p.end) && !una.Before(p.limit) {
		p.run = 0
	}
	return false
}
