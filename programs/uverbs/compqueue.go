//go:build linux

package uverbs

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/gosoftroce/rocev2/hca"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/programs/uverbs/ring"
)

// How a completion queue is armed.
const (
	notArmed uint32 = iota
	armedSolicited
	armedAny
)

// CompQueue is a completion queue in a ring that the program polls. Queue pairs
// of any shard complete into it, each under its own shard's lock, so it has a
// lock of its own.
type CompQueue struct {
	tell, overflow func()
	armed          atomic.Uint32

	// In strict mode:
	checks *hca.Checks
	holds  bool // requests give their slots back when their completions were polled
	held   []heldSlots
	fail   func() // has the queue pairs end that complete here

	walk sync.Mutex // held, outside of mu, to go over the ring in steps

	mu     sync.Mutex
	ring   ring.Producer
	lost   bool // a completion was, since the ring has its size
	ended  bool // in strict mode: it takes no more
	closed bool
}

// newCompQueue makes an empty completion queue. Its memory is in use until
// Close returns.
//
// tell tells the program that there is something; nil: it is never told.
// overflow is called once, when a completion finds no room. Both must not wait,
// and call nothing here: they are called with locks held.
func newCompQueue(mem *ringSpace, tell, overflow func()) (*CompQueue, error) {
	q := &CompQueue{tell: tell, overflow: overflow}
	return q, q.ring.Init(mem.mem, mem.shape)
}

// complete adds a completion. It returns false if that is lost: there is no
// room, the program has set an index that cannot be, or the queue is closed. id
// is the program's ID of the request, in place of that in c, and sl goes to it
// as the service level.
func (q *CompQueue) complete(c *ib.WC, id uint64, sl uint8) bool {
	return q.completeFor(c, id, sl, nil)
}

// completeFor is complete for a request of a send queue. Where the completion
// queue holds slots, those up to the request are free when the completion was
// polled.
func (q *CompQueue) completeFor(c *ib.WC, id uint64, sl uint8, s *sendQueue) bool {
	var e [ring.CQElem]byte
	ring.EncodeWC(&e, c, id, sl)
	if q.checks != nil {
		q.check(c, id)
	}
	q.mu.Lock()
	ok := q.put(&e)
	if ok && q.holds && s != nil {
		q.held = append(q.held, heldSlots{q.ring.Next(), s, c.ID + 1})
	}
	if ok {
		q.notify(c.Solicited || c.Status != ib.StatusSuccess)
	}
	q.mu.Unlock()
	return ok
}

// put is complete for the ring. The queue is locked.
func (q *CompQueue) put(e *[ring.CQElem]byte) bool {
	if q.closed || q.ended {
		return false
	}
	if q.ring.Put(e[:]) == nil {
		return true
	}
	if !q.lost {
		q.lost = true
		q.overflow()
		q.overrun()
	}
	return false
}

// notify tells the program if it has asked to be told (IBTA 11.4.2.2). The
// completion is in the ring before it is looked whether it is armed, and the
// program polls after it has armed the queue: so one of the two sees the other.
func (q *CompQueue) notify(solicited bool) {
	switch q.armed.Load() {
	case notArmed:
		return
	case armedSolicited:
		if !solicited {
			return
		}
	}
	q.armed.Store(notArmed)
	if q.tell != nil {
		q.tell()
	}
}

// Arm asks for one notification (IBTA 11.4.2.2). To ask for any completion
// overrides to ask for solicited ones. The program polls afterwards.
func (q *CompQueue) Arm(solicitedOnly bool) {
	if !solicitedOnly {
		q.armed.Store(armedAny)
	} else {
		q.armed.CompareAndSwap(notArmed, armedSolicited)
	}
}

// inSteps does work of which a program says how much there is: step by step,
// until one reports that there is no more. The lock is given up in between, for
// queue pairs of any shard wait for it with the shard locked.
func inSteps(mu *sync.Mutex, step func() (more bool)) {
	for more := true; more; runtime.Gosched() {
		mu.Lock()
		more = step()
		mu.Unlock()
	}
}

// forget drops the completions of a queue pair that the program has not polled.
func (q *CompQueue) forget(qpn uint32) {
	q.walk.Lock()
	defer q.walk.Unlock()
	q.mu.Lock()
	end := q.ring.Next()
	q.mu.Unlock()
	from := uint64(0)
	inSteps(&q.mu, func() bool {
		if q.closed {
			return false
		}
		from = q.ring.Forget(qpn, from, end)
		return from < end
	})
}

// Len returns how many completions wait for the program.
func (q *CompQueue) Len() (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.ring.Len()
}

// Resize moves the queue to another ring. It is refused, and nothing changes,
// if that does not hold what is in the queue. The program must not poll
// meanwhile. The memory before is free when it returns.
func (q *CompQueue) Resize(to *ringSpace) error {
	var next ring.Producer
	if err := next.Init(to.mem, to.shape); err != nil {
		return err
	}
	q.walk.Lock()
	defer q.walk.Unlock()
	at, err := q.unread(to.shape.Cap())
	inSteps(&q.mu, func() (more bool) {
		if q.closed {
			err = errClosed
		}
		if err != nil {
			return false
		}
		if at, err = q.ring.CopyTo(&next, at); err != nil {
			return false
		}
		if more = at < q.ring.Next(); !more {
			q.moveHeld(next.Next())
			q.ring, q.lost = next, false
		}
		return more
	})
	return err
}

// unread returns the position of the first completion that the program has not
// taken. It fails if there are more than most of them.
func (q *CompQueue) unread(most int) (uint64, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return 0, errClosed
	}
	at, err := q.ring.Unread()
	if err == nil && q.ring.Next()-at > uint64(most) {
		err = ring.ErrFull
	}
	return at, err
}

// errClosed is what a queue gives that was closed.
var errClosed = errors.New("uverbs: the queue is closed")

// Close ends the queue: its memory is not touched and the program not told any
// more. A queue pair that still completes into it goes to the error state.
func (q *CompQueue) Close() {
	q.mu.Lock()
	q.closed, q.ring, q.held = true, ring.Producer{}, nil
	q.mu.Unlock()
}
