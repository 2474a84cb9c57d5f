package rdmanet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"

	"github.com/gosoftroce/rocev2/rdma/rdmanet/rsocket"
	"github.com/gosoftroce/rocev2/verbs"
)

// role is what a call waits for.
type role uint8

const (
	reading   role = iota // for bytes, or their end
	writing               // for room for a message
	saying                // until Control has returned what is to be said
	lingering             // until the peer has acknowledged everything
	parting               // until the peer has nothing more to say
)

// ready reports whether what a role waits for is there. An error means that it
// will not come, or not in time. c.mu is held.
func (c *Conn) ready(r role) (bool, error) {
	switch r {
	case reading:
		return c.readReady()
	case writing:
		return c.writeReady()
	case saying:
		return c.err != nil || c.closed || !c.stream.Saying(), nil
	case lingering:
		return c.err != nil || c.lingerBy.passed || c.stream.PeerGone() || c.out.idle() && !c.stream.Saying(), nil
	}
	return c.err != nil || c.lingerBy.passed || c.stream.PeerDone(), nil
}

func (c *Conn) readReady() (bool, error) {
	switch _, n := c.stream.Readable(); {
	case c.closed:
		return false, net.ErrClosed
	case c.readBy.passed:
		return false, os.ErrDeadlineExceeded
	case n > 0:
		return true, nil
	case c.stream.PeerDone():
		return false, io.EOF
	}
	return false, c.err
}

func (c *Conn) writeReady() (bool, error) {
	switch {
	case c.closed:
		return false, net.ErrClosed
	case c.writeBy.passed:
		return false, os.ErrDeadlineExceeded
	case c.noWrites:
		return false, syscall.EPIPE
	case c.stream.PeerGone():
		return false, syscall.EPIPE
	case c.err != nil:
		return false, c.err
	}
	room := c.stream.Room()
	return room > 0 && c.out.room() >= c.out.chunk(min(c.left, room)), nil
}

// await waits until what r waits for is ready, and returns why not. c.mu is
// held; it is given up meanwhile.
func (c *Conn) await(r role) error {
	ok, err := c.ready(r)
	if ok || err != nil {
		return err
	}
	if r == writing {
		c.claim()
	}
	for !ok && err == nil {
		if c.claimed && r == reading || !c.callers.Lead() {
			c.callers.Follow(r)
			c.changed.Wait()
			c.callers.Unfollow(r)
		} else {
			c.lead()
			if c.claimed && r == reading {
				c.handOver()
			} else {
				c.rouse()
			}
		}
		ok, err = c.ready(r)
	}
	if !c.claimed {
		c.handOver()
	}
	return err
}

// turns lets in one call at a time, which may wait and give up the lock of the
// connection meanwhile. A lock of their own would do the same, but a goroutine
// that waits for a lock stops the time of a bubble of testing/synctest.
type turns struct {
	taken   bool
	waiting int
}

// begin waits until no other call is inside; changed is that of Conn, whose
// lock is held.
func (t *turns) begin(changed *sync.Cond) {
	t.waiting++
	for t.taken {
		changed.Wait()
	}
	t.waiting--
	t.taken = true
}

// end lets the next call in. The lock of the connection is held.
func (t *turns) end(changed *sync.Cond) {
	if t.taken = false; t.waiting > 0 {
		changed.Broadcast()
	}
}

// claim has a Write lead until it calls unclaim, in place of a Read. A Read
// that waits for the next request while the answer is written would take each
// completion for the Write, and wake it. A long Write does so from its begin:
// else the Read would use a second processor, which the peer may need.
func (c *Conn) claim() {
	if c.claimed {
		return
	}
	c.claimed = true
	if c.callers.Leads() {
		c.interrupt()
	}
}

// unclaim ends a claim, if there is one.
func (c *Conn) unclaim() {
	if c.claimed {
		c.claimed = false
		c.handOver()
	}
}

// handOver has another call that waits lead, if none does.
func (c *Conn) handOver() {
	if _, ok := c.callers.Next(); ok {
		c.changed.Broadcast()
	}
}

// rouse wakes those that wait and have what they wait for. c.mu is held.
func (c *Conn) rouse() {
	for _, r := range c.callers.Followers() {
		if ok, err := c.ready(r); ok || err != nil {
			c.changed.Broadcast()
			return
		}
	}
}

// scratch is what lead needs for a moment.
type scratch struct{ wc [16]verbs.WC }

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// lead waits for completions, or until interrupted, and handles them. c.mu is
// held; it is given up meanwhile. The caller has become the leader, and is it
// no more afterwards: no other call takes completions, so that they are handled
// in order.
func (c *Conn) lead() {
	if c.stop == nil {
		c.stop = newInterrupt()
	}
	c.take(c.stop)
}

// look is lead that does not wait. It does nothing where another call leads.
func (c *Conn) look() {
	if c.callers.Lead() {
		c.take(nil)
		c.handOver()
	}
}

func (c *Conn) take(stop *interrupt) {
	c.mu.Unlock()
	s := scratches.Get().(*scratch)
	n := 0
	var err error
	if stop == nil {
		n = c.ep.cq.Poll(s.wc[:])
	} else {
		n, err = c.ep.cq.Wait(stop, s.wc[:])
	}
	c.mu.Lock()
	c.callers.Leave()
	for i := range n {
		c.completed(&s.wc[i])
	}
	scratches.Put(s)
	if errors.Is(err, verbs.ErrClosed) {
		c.fail(err)
	}
	c.alive.heard = c.alive.heard || n > 0
	if c.wide {
		c.repost(repostAfter)
	} else {
		c.repost(1)
	}
	c.sayAll()
}

// interrupt has all calls that wait look again. c.mu is held.
func (c *Conn) interrupt() {
	if c.callers.Leads() && c.stop != nil {
		c.stop.fire()
		c.stop = nil
	}
	c.changed.Broadcast()
}

// fail ends the connection, if nothing has before. c.mu is held.
func (c *Conn) fail(cause error) {
	if c.err != nil {
		return
	}
	c.err = &resetError{cause}
	c.changed.Broadcast()
}

// abort is fail with an end that the device does not know of yet.
func (c *Conn) abort(cause error) {
	c.fail(cause)
	c.ep.qp.Modify(&verbs.Attr{State: verbs.StateErr}, verbs.AttrState)
}

// completed handles one completion. c.mu is held.
func (c *Conn) completed(wc *verbs.WC) {
	switch {
	case wc.Status != verbs.StatusSuccess:
		c.fail(wc.Err())
	case wc.Opcode == verbs.WCRecvWriteImm:
		c.toPost++
		if err := c.stream.Receive(wc.Imm, wc.ByteLen, c.ep.slots()); err != nil {
			c.abort(err)
		}
	case wc.Opcode == verbs.WCRecv:
		c.abort(fmt.Errorf("%w: it sent a message by SEND", rsocket.ErrProtocol))
	case wc.ID == idControl || wc.ID == idLast:
		c.out.controls--
		c.stream.ControlDone()
		if wc.ID == idLast {
			c.out.completed(c.out.seq - 1)
		}
	case wc.ID == idKeepAlive:
		c.alive.asking = false
	default:
		c.out.completed(wc.ID)
	}
}

// repost posts receives anew, if at least that many have completed.
func (c *Conn) repost(least int) {
	if c.toPost < least || c.err != nil {
		return
	}
	if err := c.ep.postRecvs(c.toPost); err != nil {
		c.fail(err)
	}
	c.toPost = 0
}

// widen lets a peer that sends have all the credits that it can have, once.
func (c *Conn) widen() {
	if c.wide || int(c.stream.Received()) < c.opts.firstCredits()/2 {
		return
	}
	c.wide = true
	c.toPost += c.opts.receives() - c.opts.firstCredits() - rsocket.MaxControl
	c.stream.Widen(uint16(c.opts.Credits))
}

// resetError says that the connection has ended without a word of the peer.
type resetError struct{ cause error }

func (e *resetError) Error() string { return "connection reset: " + e.cause.Error() }

// Unwrap returns what errors.Is is to find: what programs know from TCP, and
// the cause.
func (e *resetError) Unwrap() []error { return []error{syscall.ECONNRESET, e.cause} }

// interrupt is a context that ends when it is fired. It has AfterFunc, so that
// package context starts no goroutine to watch it.
type interrupt struct {
	context.Context // of which nothing but Deadline and Value is used
	done            chan struct{}

	mu    sync.Mutex
	fired bool
	calls map[*func()]struct{}
}

func newInterrupt() *interrupt {
	return &interrupt{Context: context.Background(), done: make(chan struct{})}
}

// Done implements context.Context.
func (i *interrupt) Done() <-chan struct{} { return i.done }

// Err implements context.Context.
func (i *interrupt) Err() error {
	select {
	case <-i.done:
		return context.Canceled
	default:
		return nil
	}
}

// AfterFunc is what context.AfterFunc calls.
func (i *interrupt) AfterFunc(f func()) (stop func() bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.fired {
		go f()
		return func() bool { return false }
	}
	if i.calls == nil {
		i.calls = map[*func()]struct{}{}
	}
	i.calls[&f] = struct{}{}
	return func() bool {
		i.mu.Lock()
		defer i.mu.Unlock()
		_, there := i.calls[&f]
		delete(i.calls, &f)
		return there
	}
}

// fire ends the context.
func (i *interrupt) fire() {
	i.mu.Lock()
	calls := i.calls
	i.fired, i.calls = true, nil
	close(i.done)
	i.mu.Unlock()
	for f := range calls {
		(*f)()
	}
}
