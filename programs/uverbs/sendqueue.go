//go:build linux

package uverbs

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/gosoftroce/rocev2/hca"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/programs/uverbs/ring"
)

// sendQueue takes send requests from a ring and posts them. The ID that the
// queue pair knows is the position in the ring; the program's is kept here. The
// queue pair has as many slots as are posted, so posting never lacks room.
//
// It is a qp.CompletionSink. Every request completes there, in order.
type sendQueue struct {
	owner     *Queues
	typ       ib.QPType
	cq        *CompQueue
	sl        uint8
	signalAll bool
	limits    ring.Limits
	handle    func(uint32) *ib.AddressHandle
	domain    *hca.PD
	requests  *Requests // where they are counted, or nil

	mu      sync.Mutex // held to take and to post
	ring    ring.Consumer
	posted  []posted // by slot; what was posted is for the sink
	bad     badRequest
	bell    doorbell
	longest uint64 // bytes of one of the requests that were posted last

	signaled uint64 // position after the last one that is; in strict mode
	reported uint64 // where the queue was found stuck last

	// await is the position after the request whose completion is waited
	// for; 0 is none: for the last one before bad; where as many are posted
	// as may be, for one that makes room; or, while doorbells may be left
	// out, for the last one that was posted.
	await atomic.Uint64

	vectors map[ib.AddressVector]*hca.AH // of requests that name no handle
}

// posted is what is kept of a request that was posted.
type posted struct {
	id       uint64
	signaled bool
}

// badRequest is one that cannot be posted: it completes with its status, after
// those before it, and ends the queue pair.
type badRequest struct {
	any    bool
	pos    uint64
	status ib.Status
	opcode ib.WCOpcode
}

func (s *sendQueue) init(q *Queues, o *ownedQP, sl uint8) error {
	s.owner, s.typ, s.cq, s.sl, s.signalAll = q, o.typ, o.send.core, sl, o.cap.SqSigAll != 0
	s.limits = ring.Limits{SGE: int(o.cap.MaxSendSge), Inline: int(o.cap.MaxInlineData), Datagram: o.typ == ib.UD}
	s.handle, s.domain = o.all.handles.numbered, o.pd.core
	s.requests = o.all.dev.Requests
	s.bell = doorbell{of: o.all.doorbells, qp: o.handle}
	s.posted = make([]posted, min(o.sq.shape.Slots, mostPosted))
	if err := s.ring.Init(o.sq.mem, o.sq.shape); err != nil {
		return err
	}
	if s.cq.holds {
		s.ring.Hold()
	}
	return nil
}

// mostPosted is how many requests of a ring are posted and have not completed.
// It bounds what the way to ERR flushes with the shard locked, and what is in
// flight. The others wait in the ring.
const mostPosted = 4096

// batchSize is how many requests are posted at once.
const batchSize = 64

// batch is room for the requests that are being posted.
type batch struct {
	elems []byte
	taken [batchSize]ring.Send
	wrs   [batchSize]ib.SendWR
}

var batches = sync.Pool{New: func() any {
	b := new(batch)
	for i := range b.taken {
		b.taken[i].WR = &b.wrs[i]
	}
	return b
}}

// drain is Queues.Drain for the send queue.
func (s *sendQueue) drain(most int) (more bool) {
	if s.bad.any && !s.finishBad() {
		return false
	}
	b := batches.Get().(*batch)
	defer batches.Put(b)
	for most > 0 {
		n, err := s.ring.Waiting()
		if err != nil {
			s.owner.end()
			return false
		}
		if n == 0 {
			s.stuck()
			return false
		}
		room := s.room()
		if room == 0 {
			return false // Complete says when there is some
		}
		n = min(n, most, batchSize, room)
		if !s.post(b, n) {
			return false
		}
		most -= n
	}
	n, err := s.ring.Waiting()
	return n > 0 || err != nil
}

// room returns how many more requests may be posted. Where that is none it has
// Complete say when half of them have completed.
func (s *sendQueue) room() int {
	taken := s.ring.Taken()
	if n := taken - s.ring.Released(); n < mostPosted {
		return int(mostPosted - n)
	}
	enough := taken - mostPosted/2
	s.await.Store(enough)
	if released := s.ring.Released(); released >= enough { // perhaps before it was said
		return int(mostPosted - (taken - released))
	}
	return 0
}

// post takes n requests and posts them. It returns false if no more can be
// posted now.
func (s *sendQueue) post(b *batch, n int) bool {
	size := s.ring.Shape().Elem
	if len(b.elems) < n*size {
		b.elems = make([]byte, batchSize*size)
	}
	first := s.ring.Taken()
	status := ib.StatusSuccess
	i := 0
	for ; i < n && status == ib.StatusSuccess; i++ {
		status = s.take(b, i, b.elems[i*size:(i+1)*size])
	}
	if status != ib.StatusSuccess {
		i-- // it is not posted
	}
	m, err := s.owner.qp.PostSend(b.wrs[:i])
	s.longest = s.requests.add(b.wrs[:i], m)
	at := first + uint64(m) // the first one that was not posted
	switch {
	case errors.Is(err, ib.ErrState) || errors.Is(err, hca.ErrClosed):
		s.ring.Return(at)
		return false
	case err != nil:
		status = statusOf(err)
	case status == ib.StatusSuccess:
		return true
	case s.owner.qp.State() < ib.StateRTS:
		s.ring.Return(at)
		return false
	}
	s.ring.Return(at + 1)
	s.bad = badRequest{any: true, pos: at, status: status, opcode: b.wrs[m].Opcode.Completion()}
	return s.finishBad()
}

// take takes the next request as request i of a batch. Its copy goes to e.
func (s *sendQueue) take(b *batch, i int, e []byte) ib.Status {
	pos := s.ring.Take(e)
	w := &b.taken[i]
	status := w.Decode(e, s.limits)
	*s.at(pos) = posted{id: w.WR.ID, signaled: w.WR.Signaled || s.signalAll}
	if status != ib.StatusSuccess {
		return status
	}
	if s.cq.checks != nil {
		s.check(w.WR, pos)
	}
	w.WR.ID = pos
	if s.limits.Datagram {
		if w.AH != 0 {
			w.WR.AH = s.handle(w.AH)
		} else {
			w.WR.AH = s.handleFor(w.Vector)
		}
	}
	return ib.StatusSuccess
}

func (s *sendQueue) at(pos uint64) *posted { return &s.posted[pos&uint64(len(s.posted)-1)] }

// statusOf returns the status of a request that PostSend refuses.
func statusOf(err error) ib.Status {
	for _, e := range []error{ib.ErrTooLong, ib.ErrInlineTooLong, ib.ErrDatagramTooLong, ib.ErrAtomicLength, ib.ErrAtomicWrite} {
		if errors.Is(err, e) {
			return ib.StatusLocLenErr
		}
	}
	return ib.StatusLocQPOpErr
}

// maxVectors is how many address vectors have a handle, for programs whose
// requests name none.
const maxVectors = 256

// handleFor returns an address handle for a vector, nil if that is bad.
func (s *sendQueue) handleFor(av ib.AddressVector) *ib.AddressHandle {
	if h := s.vectors[av]; h != nil {
		return h.Core()
	}
	if len(s.vectors) == maxVectors {
		s.forget()
	}
	h := new(hca.AH)
	if s.domain.MakeAH(h, av) != nil {
		return nil
	}
	if s.vectors == nil {
		s.vectors = map[ib.AddressVector]*hca.AH{}
	}
	s.vectors[av] = h
	return h.Core()
}

// forget closes the handles of vectors. What was posted with them is sent.
func (s *sendQueue) forget() {
	for _, h := range s.vectors {
		h.Close()
	}
	clear(s.vectors)
}

// finishBad completes the bad request if all before it have, and ends the queue
// pair. It returns false if they have not. Then the queue pair has no other
// request, so that nothing else calls Complete.
func (s *sendQueue) finishBad() bool {
	s.await.Store(s.bad.pos)
	if s.ring.Released() < s.bad.pos {
		return false // Complete says when
	}
	s.await.Store(0)
	h := s.owner.qp
	c := ib.WC{ID: s.bad.pos, Status: s.bad.status, Opcode: s.bad.opcode, QPN: h.QPN()}
	if h.State() >= ib.StateSQE {
		c.Status = ib.StatusWRFlushErr
	}
	s.bad = badRequest{}
	s.Complete(&c)
	s.owner.end()
	return true
}

// Complete implements qp.CompletionSink. The element goes back before the
// completion is there: a program that sees that may post at once.
func (s *sendQueue) Complete(c *ib.WC) bool {
	pos := c.ID
	p := *s.at(pos)
	s.ring.Release(pos + 1)
	if s.await.Load() == pos+1 {
		s.owner.kick()
	}
	if c.Status == ib.StatusSuccess && !p.signaled {
		return true
	}
	if c.Status != ib.StatusSuccess {
		s.owner.late.Store(true)
	}
	return s.cq.completeFor(c, p.id, s.sl, s)
}

// reset drops what is in the ring: the queue pair is in RESET.
func (s *sendQueue) reset() {
	s.cq.drop(s)
	s.ring.Clear()
	s.bad = badRequest{}
	s.bell.eager = 0
	s.await.Store(0)
}

// gather lets doorbells be left out, if so much is in flight that its
// completion says when the next requests are to be posted, and if these are
// likely to be small. The caller holds the lock, and has posted all that there
// is.
func (s *sendQueue) gather() {
	n := min(mostGathered-1, gatheredBytes/max(s.longest, 1))
	taken := s.ring.Taken()
	if s.bell.of == nil || n < 1 || s.bad.any || taken-s.ring.Released() < s.bell.least() {
		return
	}
	if more, err := s.ring.Waiting(); more > 0 || err != nil {
		return // they cannot be posted now
	}
	s.await.Store(taken)
	if s.ring.Released() < taken { // or it was completed before that was said
		s.bell.offer(uint32(n))
	}
}
