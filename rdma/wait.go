package rdma

import "sync"

// want is what a goroutine waits for.
type want uint8

const (
	wantMessage want = iota // a message to receive
	wantRoom                // credit and room to send a message
	wantSlot                // room for a request that takes no credit
	wantReply               // an answer of the directory
	wantDone                // the end of a transfer, also when the connection is over
	wantIdle                // nothing held back or outstanding
	wantNothing             // only to lead no more
	wants
)

// ready reports whether what a goroutine waits for is there.
func (c *core) ready(what want, ref *pending) bool {
	switch what {
	case wantMessage:
		return c.in.len() > 0
	case wantRoom:
		return c.err == nil && c.out.mayPost()
	case wantSlot:
		return c.err == nil && c.out.room() > reserved
	case wantDone, wantReply:
		return ref.left <= ref.limit
	case wantIdle:
		return c.out.pack == nil && c.out.head == c.out.tail
	}
	return !c.callers.Leads()
}

// mayPost reports whether there are room and credit for a message.
func (o *outbox) mayPost() bool {
	c := o.c
	return o.room() > reserved && (c.foreign || o.credits > 0)
}

// pending is one transfer that is waited for: the requests that it consists of
// and that have not completed.
type pending struct {
	left   int           // requests; 0: it is over
	limit  int           // how many may be left when the wait ends
	err    error         // of the first that failed
	ch     chan struct{} // closed at the end; nil: not asked for
	buf    *buffer       // where the data goes or comes from; nil: memory of the caller
	orphan bool          // no call waits any more
}

var pendings = sync.Pool{New: func() any { return new(pending) }}

// drop frees what a transfer that is over has.
func (c *core) drop(ref *pending) {
	if ref.buf != nil {
		c.hub.put(ref.buf)
		c.hub.unhold()
	}
	*ref = pending{}
	pendings.Put(ref)
}

// waiter is a goroutine that waits for the leader.
type waiter struct {
	what want
	ref  *pending
	wake chan struct{}
}

func newWaiter() any { return &waiter{wake: make(chan struct{}, 1)} }

func (w *waiter) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}
