package requester

import (
	"github.com/gosoftroce/rocev2/clock"
	"github.com/gosoftroce/rocev2/qp/cc"
	"github.com/gosoftroce/rocev2/qp/queue"
	"github.com/gosoftroce/rocev2/rocev2"
)

// repair is selective retransmission: a cursor beside the requester's own. A
// few packets are sent again from the oldest unacknowledged one on, while
// sending goes on where it was. It is for a peer that buffers what arrives
// behind a gap, and for READs whose later responses are in the reorder buffer
// here.
type repair struct {
	left uint32     // packets still to be sent; 0: none is under way
	cur  uint32     // request of the next one
	nxt  rocev2.PSN // and its PSN

	run        uint32     // length of the last run; 0: there was none
	start, end rocev2.PSN // from the first packet of it to what follows the last
	limit      rocev2.PSN // what was sent before it ends here
	reads      uint8      // READs in a row that were asked for again one by one, if run is 0; end is behind the last
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

// beginRepair begins to send a run of packets again, from the oldest
// unacknowledged one on, if that may be enough.
func (r *recovery) beginRepair(now clock.Time, run uint32) bool {
	if r.c.Pool == nil || r.nxt == r.una {
		return false
	}
	p := &r.repair
	w := r.queue.At(r.queue.Head)
	end := w.First.Add(int(w.PSNs))
	if w.Answered() && !p.nextRead(w.First, end) {
		return false
	}
	// A run that began with the packet that is missing again, or ended with
	// the one before: more is missing than single packets.
	grows := p.run > 0 && (r.una == p.start || r.una == p.end)
	how := cc.Repaired
	if grows && p.run > run {
		how = cc.RepairedRow
	}
	r.lost(now, how)
	r.c.Stats.Rare().Repairs++
	p.cur, p.nxt = r.queue.Head, r.una
	if w.Answered() {
		w.Flags |= queue.Resumed
		p.left, p.run, p.end = repairReads, 0, end
		return true
	}
	if grows {
		p.run = min(p.run*repairGrowth, cc.MaxPSNs)
	} else {
		p.run = run
	}
	p.limit = r.nxt
	p.left, p.start, p.end = p.run, r.una, r.una.Add(int(p.run))
	return true
}

// nextRead takes note that a READ with these PSNs is to be asked for again, and
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

// beginProbe sends the oldest packet again while it is not known how long a
// round trip takes: more than the guess, perhaps, so nothing says that anything
// was lost.
func (r *recovery) beginProbe() bool {
	if r.nxt == r.una {
		return false
	}
	p, w := &r.repair, r.queue.At(r.queue.Head)
	if w.Answered() {
		end := w.First.Add(int(w.PSNs))
		if !p.nextRead(w.First, end) {
			return false
		}
		w.Flags |= queue.Resumed
		p.run, p.end = 0, end
	} else {
		p.run, p.start, p.end, p.limit = 1, r.una, r.una.Next(), r.nxt
	}
	p.cur, p.nxt, p.left = r.queue.Head, r.una, 1
	return true
}

// repairFailed reports that just the last run is acknowledged, and nothing of
// what had been sent behind it before: the peer has not kept that.
func (r *recovery) repairFailed() bool {
	p := &r.repair
	return p.run > 0 && p.left == 0 && r.una == p.end && r.una.Before(p.limit)
}

// forget ends what una has got past: the repair, which may have waited for its
// time, and the memory of the last run when all that it was about has come.
// PSNs come again.
func (p *repair) forget(una rocev2.PSN) {
	if p.left > 0 && p.nxt.Before(una) {
		p.left = 0
	}
	if p.run > 0 && p.left == 0 && una.After(p.end) && !una.Before(p.limit) {
		p.run = 0
	}
}
