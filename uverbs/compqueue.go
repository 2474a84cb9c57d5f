package uverbs

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/uverbs/ring"
)

// Notifier tells a program that a completion queue has something.
type Notifier interface {
	// Notify hands the program the name that it has given the queue. It
	// does not wait: false means that there is no room now, and it is tried
	// again. It is called with locks held, so it must call nothing here.
	Notify(cookie uint64) bool
}

// What a word of the doorbell area says of how a completion queue is armed.
// Whatever else the program writes there is armedAny.
const (
	notArmed       uint32 = 0
	armedSolicited uint32 = 1
)

// CompQueueConfig is what a completion queue is made with.
type CompQueueConfig struct {
	Memory []byte     // of the ring
	Shape  ring.Shape // of elements of ring.CQElem bytes
	Arm    *uint32    // its word of the doorbell area

	Notifier Notifier // nil: the program is never told
	Cookie   uint64   // for the notifier
	Overflow func()   // called once, when a completion finds no room; it must not wait

	// Added is called after each completion, unless it is nil. It must not
	// wait. long is a message that may be one of bulk data.
	Added func(long bool)
}

// CompQueue is a completion queue in a ring that the program polls. Queue pairs
// of any shard complete into it, each under its own shard's lock, so it has a
// lock of its own.
type CompQueue struct {
	config CompQueueConfig // but for the memory

	walk sync.Mutex // held, outside of mu, to go over the ring in steps

	mu     sync.Mutex
	ring   ring.Producer
	owed   int  // notifications that had no room
	lost   bool // a completion was, since the ring has its size
	closed bool
}

// NewCompQueue makes an empty completion queue. Its memory is in use until
// Close returns.
func NewCompQueue(c CompQueueConfig) (*CompQueue, error) {
	q := &CompQueue{config: c}
	q.config.Memory = nil
	if err := initCompletions(&q.ring, c.Memory, c.Shape); err != nil {
		return nil, err
	}
	return q, nil
}

func initCompletions(r *ring.Producer, mem []byte, s ring.Shape) error {
	if s.Elem < ring.CQElem {
		return fmt.Errorf("%w: completions of %d bytes", ring.ErrShape, s.Elem)
	}
	return r.Init(mem, s)
}

// complete adds a completion. It returns false if that is lost: there is no
// room, the program has set an index that cannot be, or the queue is closed. sl
// goes to the program as the service level. n is the length of the message.
func (q *CompQueue) complete(c *ib.WC, sl uint8, n uint32) bool {
	var e [ring.CQElem]byte
	ring.EncodeWC(&e, c, sl)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	if q.ring.Put(e[:]) != nil {
		if !q.lost {
			q.lost = true
			q.config.Overflow()
		}
		return false
	}
	if q.config.Added != nil {
		q.config.Added(isLong(n) && c.Status == ib.StatusSuccess)
	}
	q.notify(c.Solicited || c.Status != ib.StatusSuccess)
	return true
}

// notify tells the program if it has asked to be told (IBTA 11.4.2.2). The
// completion is in the ring before the word is read, and the program polls
// after it has written the word: so one of the two sees the other.
func (q *CompQueue) notify(solicited bool) {
	switch atomic.LoadUint32(q.config.Arm) {
	case notArmed:
		return
	case armedSolicited:
		if !solicited {
			return
		}
	}
	atomic.StoreUint32(q.config.Arm, notArmed)
	if q.config.Notifier != nil {
		q.owed++
		q.pay()
	}
}

// pay notifies the program as often as it is owed and there is room.
func (q *CompQueue) pay() {
	for q.owed > 0 && q.config.Notifier.Notify(q.config.Cookie) {
		q.owed--
	}
}

// Retry tries again what the notifier had no room for. It reports whether
// something is still owed.
func (q *CompQueue) Retry() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		q.pay()
	}
	return q.owed > 0
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
func (q *CompQueue) Resize(mem []byte, s ring.Shape) error {
	var next ring.Producer
	if err := initCompletions(&next, mem, s); err != nil {
		return err
	}
	q.walk.Lock()
	defer q.walk.Unlock()
	at, err := q.unread(s.Cap())
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

// Close ends the queue: its memory is not touched and its notifier not called
// any more. A queue pair that still completes into it goes to the error state.
func (q *CompQueue) Close() {
	q.mu.Lock()
	q.closed, q.owed, q.ring = true, 0, ring.Producer{}
	q.mu.Unlock()
}
