//go:build linux

package uverbs

import (
	"fmt"

	"github.com/gosoftroce/rocev2/hca/strict"
	"github.com/gosoftroce/rocev2/ib"
)

// Strict mode of a client: what package hca does for completion queues of its
// own.

// heldSlots are slots of a send queue that are free when the program has polled
// the completion before a position.
type heldSlots struct {
	at   uint64 // position in the completion queue
	of   *sendQueue
	upTo uint64 // position in the send queue
}

// TellsPolls reports whether the client is to be told of polls: Polled.
func (c *Client) TellsPolls() bool { return c.queries.dev.Dev.Strict().On(strict.Unsignaled) }

// RefusesChildren reports whether a child of fork can neither post nor poll.
func (c *Client) RefusesChildren() bool { return c.queries.dev.Dev.Strict().On(strict.Fork) }

// Polled says that the program has taken completions from a queue.
func (c *Client) Polled(h uint32) {
	if q := c.cqs.cqs.get(h); q != nil && q.core.holds {
		q.core.polled()
	}
}

// polled gives back the slots that are free now.
func (q *CompQueue) polled() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	unread, err := q.ring.Unread()
	if err != nil {
		return
	}
	n := 0
	for n < len(q.held) && q.held[n].at <= unread {
		h := &q.held[n]
		h.of.ring.Free(h.upTo)
		n++
	}
	q.held = q.held[:copy(q.held, q.held[n:])]
}

// drop forgets the slots of a send queue. They are free, or gone.
func (q *CompQueue) drop(s *sendQueue) {
	q.mu.Lock()
	defer q.mu.Unlock()
	kept := q.held[:0]
	for _, h := range q.held {
		if h.of != s {
			kept = append(kept, h)
		}
	}
	q.held = kept
}

// moveHeld counts positions as another ring does that has what this one has,
// and whose next position is given. The queue is locked.
func (q *CompQueue) moveHeld(next uint64) {
	back := q.ring.Next() - next
	for i := range q.held {
		q.held[i].at -= min(back, q.held[i].at)
	}
}

// check looks at a completion, which is of the program's request with an ID.
func (q *CompQueue) check(c *ib.WC, id uint64) {
	if c.Status != ib.StatusSuccess {
		wc := *c
		wc.ID = id
		q.checks.Completed(&wc)
	}
}

// overrun ends the queue, and its queue pairs. It is locked, and so is a shard.
func (q *CompQueue) overrun() {
	if q.checks.On(strict.CQOverrun) {
		q.ended = true
		q.checks.Found(strict.CQOverrun, strict.Finding{Detail: fmt.Sprintf("a completion found its queue of %d entries full", q.ring.Shape().Cap())})
		q.fail()
	}
}

// failAll has all queue pairs that complete into a queue end soon.
func (p *queuePairs) failAll(cq *CompQueue) {
	for _, q := range p.qps.all() {
		if q.send.core == cq || q.recv.core == cq {
			q.queues.fail()
		}
	}
}

// check looks at a request that is about to be posted.
func (s *sendQueue) check(wr *ib.SendWR, pos uint64) {
	s.cq.checks.Posting(s.owner.qp.QPN(), wr)
	if wr.Signaled || s.signalAll {
		s.signaled = pos + 1
	}
}

// ProgramID returns the program's ID of the request that the queue pair knows
// by another.
func (s *sendQueue) ProgramID(pos uint64) uint64 { return s.at(pos).id }

// look has strict mode see what waits in the send queue, before that goes.
func (q *Queues) look() {
	if q.send.cq.checks != nil {
		q.send.mu.Lock()
		q.wanted.Store(true)
		q.unlock()
	}
}

// stuck looks whether the send queue is full of requests of which none has a
// completion. The queue is locked.
func (s *sendQueue) stuck() {
	if !s.cq.holds || s.owner.late.Load() || s.ring.Held() < s.ring.Shape().Cap() {
		return
	}
	if n := uint64(s.ring.Held()); s.signaled <= s.ring.Taken()-n && s.reported != s.ring.Taken() {
		s.reported = s.ring.Taken()
		s.cq.checks.Found(strict.Unsignaled, strict.Finding{QPN: uint32(s.owner.qp.QPN()), WRID: s.at(s.ring.Taken() - 1).id,
			Detail: fmt.Sprintf("all %d requests in the send queue are not signaled: nothing frees it, and the next ibv_post_send fails", n)})
	}
}
