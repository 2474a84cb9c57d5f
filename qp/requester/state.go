package requester

import (
	"fmt"
	"time"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/cc"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/qp/queue"
	"github.com/gosoftroce/rocev2/rocev2"
)

// Flow is how the sending of a queue pair stands at a moment.
type Flow struct {
	Queued   int           // requests that have not completed
	Una      rocev2.PSN    // the oldest that is not acknowledged
	InFlight int           // bytes between it and the next one, as package cc counts them
	Window   int           // how many these may be
	Rate     uint64        // bits per second that may be sent; 0: no rate bounds them
	RTT      time.Duration // smoothed round trip time; 0: none was measured yet
}

// Flow returns how sending stands.
func (r *Requester) Flow() Flow {
	l := &r.stream.c.CC.Limit
	f := Flow{Queued: r.stream.ring.Len(), Una: r.stream.una, Window: l.Bytes, Rate: l.Rate}
	f.InFlight, _ = r.InFlight()
	if r.recovery.rtt.known {
		f.RTT = r.recovery.rtt.srtt
	}
	return f
}

// InFlight returns the bytes that may lie in the peer's receive buffer: those
// between the oldest unacknowledged packet and the next one, without a share
// that the peer has kept after a gap. It also reports whether the peer has not
// answered them for so long that they were sent again, or would be.
func (r *Requester) InFlight() (bytes int, silent bool) {
	pipe, silent := r.recovery.inFlight()
	return r.stream.c.CC.Limit.Charge(int(min(pipe, mostCounted))), silent
}

// Snapshot is what a requester is doing at a moment, for tests of packages
// above and for diagnosis.
type Snapshot struct {
	Queued      int        // requests that have not completed
	Una         rocev2.PSN // the oldest that is not acknowledged
	Next        rocev2.PSN // that is sent next, for the first time or again
	Max         rocev2.PSN // the first that was never sent
	Limit       cc.Limit   // of what is in flight
	RetriesLeft uint8
	Paging      bool       // a response waits for memory
	Limited     bool       // the peer gives credits,
	LSN         rocev2.PSN // up to this message

	credit   credit
	stream   stream
	recovery recovery
	gaps     gaps
}

// Snapshot returns a copy of the state.
func (r *Requester) Snapshot() (s Snapshot) {
	s.take(r)
	return s
}

// take copies the state, without what the parts refer to.
func (s *Snapshot) take(r *Requester) {
	*s = Snapshot{
		Queued: r.stream.ring.Len(), Una: r.stream.una, Next: r.stream.nxt, Max: r.stream.max, Limit: r.stream.c.CC.Limit,
		RetriesLeft: r.recovery.retry.left, Paging: r.recovery.fetch.Pending(conn.NeedResult), Limited: r.credit.limited, LSN: r.credit.lsn,
		credit: r.credit, stream: r.stream, recovery: r.recovery,
	}
	if r.recovery.gaps != nil {
		s.gaps = *r.recovery.gaps
	}
	s.stream.c, s.stream.sink, s.stream.ring = nil, nil, queue.SendRing{}
	s.recovery.c, s.recovery.s, s.recovery.gaps, s.recovery.fetch = nil, nil, nil, conn.Fetches{}
	s.gaps.c, s.gaps.s, s.gaps.rtt = nil, nil, nil
}

// Check says which invariant does not hold, for tests.
func (r *Requester) Check() error {
	s, rec := &r.stream, &r.recovery
	if err := r.reorder.Check(s.una); err != nil {
		return err
	}
	head, tail := s.ring.Head, s.ring.Tail
	if head > s.cur || s.cur > s.started || s.started > tail {
		return fmt.Errorf("queue %d %d %d %d", head, s.cur, s.started, tail)
	}
	if s.nxt.Ahead(s.una) > s.max.Ahead(s.una) || s.posUna > s.posNxt {
		return fmt.Errorf("PSNs %d %d %d, position %d %d", s.una, s.nxt, s.max, s.posUna, s.posNxt)
	}
	if s.rd > uint32(s.c.Attr.MaxRdAtomic) {
		return fmt.Errorf("%d READs outstanding of %d", s.rd, s.c.Attr.MaxRdAtomic)
	}
	if n := s.nxt.Ahead(s.una); (n == 0) != (s.posUna == s.posNxt) {
		return fmt.Errorf("%d PSNs and %d bytes in flight", n, s.posNxt-s.posUna)
	}
	if s.una == s.nxt && s.rd != 0 {
		return fmt.Errorf("%d READs outstanding and nothing in flight", s.rd)
	}
	if rec.gaps != nil && rec.gaps.reads != nil && s.readsUntil(rec.gaps.reads.End()) != rec.gaps.reads.End() {
		return fmt.Errorf("responses to READs are known up to %d, after another request", rec.gaps.reads.End())
	}
	_, armed := r.Deadline()
	working := s.una != s.nxt || rec.rnr.waiting || r.reorder.Len() > 0 || rec.paced
	switch {
	case s.c.State == ib.StateErr && (armed || head != tail):
		return fmt.Errorf("in ERR: timer %v, %d requests", armed, tail-head)
	case s.c.State != ib.StateErr && armed != working:
		return fmt.Errorf("timer %v, work %v", armed, working)
	}
	return nil
}
