package queue

import (
	"fmt"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
)

// Recv is a receive that a RecvSource hands over.
type Recv struct {
	ID uint64
	// SGList has room for the entries that the queue pair allows for one
	// receive (MaxRecvSGE). A source appends to SGList[:0].
	SGList []ib.SGE
	PD     *memreg.PD // the domain of the memory in SGList
	// CQ is where it completes. It is the queue pair's before the source is
	// asked, which may have another.
	CQ CompletionSink
}

// RecvSource is where a responder gets receives from: the ring of the queue
// pair, a shared receive queue, or a ring that is kept elsewhere. What it hands
// over belongs to the queue pair and will be completed.
type RecvSource interface {
	// Next fills r with the next receive. It returns false if there is
	// none, which makes the peer wait and retry (RNR NAK, IBTA 9.7.5.2.8).
	Next(r *Recv) bool
}

// Clearer is a RecvSource that drops all that is in it when the queue pair
// whose own it is goes to RESET, or ends.
type Clearer interface{ Clear() }

// XRCDomain is an XRC domain: it knows the shared receive queues that requests
// of XRC name (IBTA A14).
type XRCDomain interface {
	// SRQ returns where the queue with a number has receives, and the
	// domain of the memory that requests for it may reach. Both are nil if
	// the domain has no such queue.
	SRQ(number uint32) (RecvSource, *memreg.PD)
}

// CompletionSink takes the completions of a send or a receive queue. It must
// not call back into the queue pair.
type CompletionSink interface {
	// Complete copies c, which is only valid during the call. False means
	// overflow: the completion is lost and the queue pair goes to ERR.
	Complete(c *ib.WC) bool
}

// RecvRing is the ring of receives of one queue pair. It is a RecvSource. It
// grows as receives are posted.
type RecvRing struct {
	ids        []uint64
	lens       []uint8
	sges       []ib.SGE
	mask       uint32
	depth      uint32
	sge        uint32
	head, tail uint32
	pd         *memreg.PD
	cq         CompletionSink
}

// Init makes a ring for depth receives of sge entries each, which belong to pd
// and complete to cq.
func (r *RecvRing) Init(depth, sge int, pd *memreg.PD, cq CompletionSink) {
	*r = RecvRing{mask: ^uint32(0), depth: uint32(depth), sge: uint32(sge), pd: pd, cq: cq}
}

// grow gives the ring more slots. What is in it keeps its indices.
func (r *RecvRing) grow() {
	old := *r
	n := moreSlots(len(old.ids), fewSlots, int(r.depth))
	r.ids, r.lens, r.sges = make([]uint64, n), make([]uint8, n), make([]ib.SGE, n*int(r.sge))
	r.mask = uint32(n - 1)
	for i := r.head; i != r.tail; i++ {
		from, to := i&old.mask, i&r.mask
		r.ids[to], r.lens[to] = old.ids[from], old.lens[from]
		copy(r.sges[to*r.sge:(to+1)*r.sge], old.sges[from*r.sge:])
	}
}

// Len returns the number of receives.
func (r *RecvRing) Len() int { return int(r.tail - r.head) }

// MaxSGE returns how many scatter/gather entries a receive may have.
func (r *RecvRing) MaxSGE() int { return int(r.sge) }

// CQ returns where the receives complete.
func (r *RecvRing) CQ() CompletionSink { return r.cq }

// Clear drops all receives.
func (r *RecvRing) Clear() { r.head = r.tail }

// Push adds a receive; the caller has checked the number of its entries. It
// returns false if the ring is full.
func (r *RecvRing) Push(wr *ib.RecvWR) bool {
	if r.tail-r.head >= r.depth {
		return false
	}
	if r.Len() == len(r.ids) {
		r.grow()
	}
	i := r.tail & r.mask
	r.ids[i] = wr.ID
	r.lens[i] = uint8(copy(r.sges[i*r.sge:], wr.SGList))
	r.tail++
	return true
}

// Next implements RecvSource.
func (r *RecvRing) Next(w *Recv) bool {
	if r.head == r.tail {
		return false
	}
	i := r.head & r.mask
	w.ID, w.PD, w.CQ = r.ids[i], r.pd, r.cq
	w.SGList = append(w.SGList[:0], r.sges[i*r.sge:i*r.sge+uint32(r.lens[i])]...)
	r.head++
	return true
}

// CheckRecv says why a receive cannot be posted to owner, a queue pair or a
// shared receive queue, that was made for sge entries by a field of its
// configuration.
func CheckRecv(wr *ib.RecvWR, sge int, owner, field string) error {
	if len(wr.SGList) > sge {
		return fmt.Errorf("%w: %d; the %s was made for %d (%s)", ib.ErrTooManySGE, len(wr.SGList), owner, sge, field)
	}
	if length := ib.TotalLength(wr.SGList); length >= 1<<32-1 { // as an entry that stands for no memory has
		if err := ib.BadSGE(wr.SGList); err != nil {
			return err
		}
		if length > 1<<32-1 {
			return ib.ErrTooLong
		}
	}
	return nil
}
