package queue

import (
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
)

// SRQ is the ring of a shared receive queue (IBTA 10.2.9): several queue pairs
// take from it. What it hands over is out of it for good, whatever becomes of
// the message.
type SRQ struct {
	ring  RecvRing
	limit uint32 // the armed limit; 0: none
}

// Init makes a queue for depth receives of sge entries each, which belong to
// pd. They complete to cq, or to the queue of the queue pair that takes them if
// that is nil.
func (s *SRQ) Init(depth, sge int, pd *memreg.PD, cq CompletionSink) {
	*s = SRQ{}
	s.ring.Init(depth, sge, pd, cq)
}

// Len returns the number of receives.
func (s *SRQ) Len() int { return s.ring.Len() }

// Cap returns how many receives the queue holds.
func (s *SRQ) Cap() int { return int(s.ring.depth) }

// MaxSGE returns how many scatter/gather entries a receive may have.
func (s *SRQ) MaxSGE() int { return s.ring.MaxSGE() }

// Limit returns the limit, 0 if none is armed.
func (s *SRQ) Limit() int { return int(s.limit) }

// SetLimit arms the queue, which holds at least n receives, to tell once that
// there are fewer than n (IBTA 10.2.9); 0 disarms it.
func (s *SRQ) SetLimit(n int) { s.limit = uint32(n) }

// Post adds a receive. On an error it is not added.
func (s *SRQ) Post(wr *ib.RecvWR) error {
	if err := CheckRecv(wr, s.MaxSGE(), "shared receive queue", "MaxSGE"); err != nil {
		return err
	}
	if !s.ring.Push(wr) {
		return ib.ErrQueueFull
	}
	return nil
}

// Next fills r with the next receive, and returns false if there is none. It
// leaves r.CQ alone if the queue has no completion queue of its own. It also
// reports, once for each SetLimit, that fewer receives are left than the limit:
// also where there was none to take, because a message has asked for it.
func (s *SRQ) Next(r *Recv) (ok, limit bool) {
	cq := r.CQ
	ok = s.ring.Next(r)
	if s.ring.cq == nil {
		r.CQ = cq
	}
	if limit = uint32(s.Len()) < s.limit; limit {
		s.limit = 0
	}
	return ok, limit
}

// Resize has the queue hold depth receives from now on. It returns false, and
// changes nothing, if more are in it.
func (s *SRQ) Resize(depth int) bool {
	if depth < s.Len() {
		return false
	}
	var r RecvRing
	r.Init(depth, s.MaxSGE(), s.ring.pd, s.ring.cq)
	old := &s.ring
	for ; old.head != old.tail; old.head++ {
		i := old.head & old.mask
		at := i * old.sge
		r.Push(&ib.RecvWR{ID: old.ids[i], SGList: old.sges[at : at+uint32(old.lens[i])]})
	}
	s.ring = r
	return true
}
