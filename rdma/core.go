package rdma

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"github.com/gosoftroce/rocev2/hca/wake"
	"github.com/gosoftroce/rocev2/verbs"
)

var errClosed = fmt.Errorf("closed: %w", net.ErrClosed)

// core is the inside of a connection: the queue pair, what is under way on it,
// and the goroutines that wait for that.
//
// It has no goroutine of its own. One of those that wait, the leader, polls the
// completion queue and handles what comes for all of them. The way of a call:
//
//  1. It posts what it has to send (outbox.go), and comes to wait.
//  2. Where no call leads, it leads: lead waits in the completion queue. Else
//     follow waits for the leader.
//  3. The leader has handle take the completions: received messages go to the
//     inbox, and completed resolves what was posted. wakeReady wakes the
//     followers that something is there for.
//  4. Back in wait, a call that has nothing yet goes on with step 2. One that
//     has what it waits for goes, and handOver has another one lead.
//  5. Where none is left to lead, handOver has the hub notified of the next
//     completion. notified then does step 3 with poll, and step 4 with
//     handOver.
type core struct {
	hub     *hub
	link    link
	qp      *verbs.QP
	cq      *verbs.CQ
	client  netip.Addr // the peer's address
	maxSend int        // the longest message that the peer takes

	mu      sync.Mutex
	callers wake.Callers[*waiter]
	notice  notice        // what the hub is notified of
	foreign bool          // the peer does not speak the protocol
	used    bool          // something came from the peer since look was called
	met     bool          // it is known what the peer is, so what it sends can be read
	secured *secured      // nil: the connection is in clear
	closed  chan struct{} // made by Close; closed when that is over
	out     outbox
	in      inbox
	calls   *dirCalls // to the peer's directory; nil before the first
	err     error     // why the connection is over; nil while it is not
	ending  error     // what err will be when what has arrived is handled
	done    chan struct{}
}

// init makes the connection usable. The queue pair is in INIT or further.
func (c *core) init(h *hub, qp *verbs.QP, cq *verbs.CQ) {
	c.hub, c.qp, c.cq = h, qp, cq
	c.in.window = baseWindow
	c.in.c, c.out.c, c.out.depth = c, c, h.tune.depth
	c.link = noLink{}
	cq.Arm(true)
}

// notice is which completion the hub is notified of next.
type notice uint8

const (
	ofSolicited notice = iota // of what the peer asks an event for
	ofAny
	ofNone // it has been notified
)

// noLink is the link of a connection that is not made yet.
type noLink struct{}

func (noLink) LocalAddr() net.Addr  { return nil }
func (noLink) RemoteAddr() net.Addr { return nil }
func (noLink) Err() error           { return nil }
func (noLink) Close() error         { return nil }

// setLink says what has connected the queue pair.
func (c *core) setLink(l link) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.link = l
}

// greeted takes what the peer has said of itself.
func (c *core) greeted(h hello, native bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.foreign, c.maxSend = !native, c.hub.size
	if native {
		c.maxSend = int(min(h.size, maxMessage))
		c.out.credits += int(h.credits)
	}
	c.met = true
	if c.notice == ofNone {
		c.handOver()
	}
}

// wait waits until something is there: as the leader, or for the leader. The
// caller holds mu, and has it again afterwards.
func (c *core) wait(ctx context.Context, what want, ref *pending) error {
	if c.ready(what, ref) {
		return nil
	}
	c.out.flush()
	for {
		switch {
		case c.ready(what, ref):
			c.handOver()
			return nil
		case c.err != nil && what != wantDone:
			c.handOver()
			return c.err
		}
		var err error
		if c.callers.Lead() {
			err = c.lead(ctx)
		} else {
			err = c.follow(ctx, what, ref)
		}
		if err != nil && !c.ready(what, ref) {
			c.handOver()
			return err
		}
	}
}

// lead waits for completions and handles them. The caller has become the
// leader, and is it no more afterwards.
func (c *core) lead(ctx context.Context) error {
	s := scratches.Get().(*scratch)
	c.mu.Unlock()
	n, err := c.cq.Wait(ctx, s.wc[:])
	c.mu.Lock()
	c.handle(s.wc[:n])
	if c.ending != nil && c.err == nil {
		c.drain(s)
		c.fail(c.ending)
	}
	c.callers.Leave()
	scratches.Put(s)
	if err != nil && ctx.Err() == nil {
		c.abandon(err) // the queue is closed: nothing completes any more
		return c.err
	}
	return err
}

// follow waits for the leader.
func (c *core) follow(ctx context.Context, what want, ref *pending) error {
	w := c.hub.waiters.Get().(*waiter)
	w.what, w.ref = what, ref
	c.callers.Follow(w)
	c.mu.Unlock()
	var err error
	select {
	case <-w.wake:
	case <-ctx.Done():
		err = ctx.Err()
	}
	c.mu.Lock()
	c.callers.Unfollow(w)
	select {
	case <-w.wake: // came too late, and is passed on by handOver
	default:
	}
	w.ref = nil
	c.hub.waiters.Put(w)
	return err
}

// handOver is called by a goroutine that has waited and leaves. Another one
// leads, and those that have what they wait for are woken. What is held back is
// sent. The hub looks after what remains.
func (c *core) handOver() {
	c.wakeReady()
	if c.callers.Leads() {
		return
	}
	c.out.flush()
	if w, ok := c.callers.Next(); ok {
		w.signal()
		return
	}
	if c.err == nil && c.hasWork() && c.notice != ofAny {
		c.arm()
	} else if c.notice == ofNone {
		c.notice = ofSolicited
		c.cq.Arm(true)
		c.poll()
	}
}

// hasWork reports whether something is to be done when something has completed.
func (c *core) hasWork() bool {
	return c.out.pack != nil || len(c.in.requests) > 0 || c.out.watched > 0 || c.in.due()
}

// arm has the hub notified of the next completion. What is there already
// raises no notification, so it is taken.
func (c *core) arm() {
	c.notice = ofAny
	c.cq.Arm(false)
	c.poll()
}

// wakeReady wakes one of each kind that something is there for.
func (c *core) wakeReady() {
	var told [wants]bool
	for _, w := range c.callers.Followers() {
		if !told[w.what] && (c.err != nil || c.ready(w.what, w.ref)) {
			told[w.what] = w.what < wantReply && c.err == nil
			w.signal()
		}
	}
}

// poll handles what has completed, without waiting.
func (c *core) poll() {
	if !c.callers.Lead() {
		return
	}
	s := scratches.Get().(*scratch)
	c.drain(s)
	c.callers.Leave()
	scratches.Put(s)
	c.wakeReady()
}

// drain handles completions until there are none. The caller leads.
func (c *core) drain(s *scratch) {
	for range 1 << 10 { // a peer may send as fast as they are handled
		n := c.cq.Poll(s.wc[:])
		if n == 0 {
			return
		}
		c.handle(s.wc[:n])
	}
}

// notified is called by the hub when the queue has raised a notification.
func (c *core) notified() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notice = ofNone
	if c.met && !c.callers.Leads() { // else the leader has the completion, and arms
		c.poll()
		c.handOver()
	}
}

// handle dispatches completions. The caller leads.
func (c *core) handle(wcs []verbs.WC) {
	for i := range wcs {
		wc := &wcs[i]
		switch {
		case isRecv(wc):
			c.in.arrived(wc)
		default:
			c.completed(wc)
		}
	}
	if c.err == nil {
		c.out.flush()
	}
	c.wakeReady()
}

func isRecv(wc *verbs.WC) bool { return wc.ID&sendFlag == 0 }

// sendFlag is in the IDs of sends. Those of receives are indices of buffers.
const sendFlag = 1 << 63

// completed takes the completion of a send, and with it the requests before it.
func (c *core) completed(wc *verbs.WC) {
	failed := wc.Status != verbs.StatusSuccess
	if failed && c.err == nil && c.ending == nil {
		if wc.Status == verbs.StatusWRFlushErr {
			c.fail(c.causeOf(wc))
		} else {
			c.quit(c.causeOf(wc))
		}
	}
	through := uint32(wc.ID &^ sendFlag)
	for c.out.head != c.out.tail {
		s := *c.out.slot(c.out.head)
		last := c.out.head == through
		*c.out.slot(c.out.head) = slot{}
		c.out.head++
		if s.buf != nil {
			c.hub.put(s.buf)
		}
		if s.ref != nil {
			var err error
			if last && failed {
				err = wc.Err()
			}
			c.resolve(s.ref, err)
		}
		if last {
			c.used = c.used || !failed && s.kind != slotProbe
			return
		}
	}
}

// errRequest: the queue pair has refused a request of the peer, which knows
// that by a NAK.
var errRequest = protocolError("its request to the memory of this side was refused")

// causeOf says why a request was not carried out.
func (c *core) causeOf(wc *verbs.WC) error {
	if wc.Status == verbs.StatusWRFlushErr {
		if err := c.link.Err(); err != nil {
			return err
		}
		return errRequest
	}
	return causeOf(*wc)
}

// resolve records that one of the requests of a transfer has completed.
func (c *core) resolve(ref *pending, err error) {
	if err != nil && ref.err == nil {
		ref.err = err
	}
	switch ref.left--; {
	case ref.left > 0:
	case ref.orphan:
		c.drop(ref)
	case ref.ch != nil:
		close(ref.ch)
		c.out.watched--
	}
}

// fail ends the connection. What is outstanding completes at once.
func (c *core) fail(err error) {
	if c.err != nil {
		return
	}
	c.err = err
	if c.done != nil {
		close(c.done)
	}
	c.qp.Modify(&verbs.Attr{State: verbs.StateErr}, verbs.AttrState)
	c.wakeReady()
}

// quit is fail for what the peer does not know: it is told.
func (c *core) quit(err error) {
	if c.err == nil && c.link.Err() == nil {
		go c.link.Close() // it has locks of its own
	}
	c.fail(err)
}

// abandon gives up all that is outstanding: the queue or the device is closed,
// and touches no memory any more.
func (c *core) abandon(err error) {
	c.fail(err)
	for c.out.head != c.out.tail {
		s := *c.out.slot(c.out.head)
		c.out.head++
		if s.ref != nil {
			c.resolve(s.ref, err)
		}
	}
	c.wakeReady()
}

// end ends the connection from outside: what has arrived can still be received.
func (c *core) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil || c.ending != nil {
		return
	}
	c.ending = err
	if !c.callers.Leads() {
		c.poll()
		c.fail(err)
		return
	}
	// The leader waits for a completion. In ERR a request completes at
	// once.
	c.qp.Modify(&verbs.Attr{State: verbs.StateErr}, verbs.AttrState)
	c.out.post(&verbs.SendWR{Opcode: verbs.OpWrite, Signaled: true}, slot{})
}

// look is called by the hub twice in the time of a keepalive. A connection from
// which nothing came since the last time proves that the peer is there: it
// writes 0 bytes, which the peer acknowledges.
func (c *core) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil || c.closed != nil || !c.met || c.securing() {
		return
	}
	if !c.callers.Leads() {
		c.poll() // the completion of the last one
	}
	if c.used {
		c.used = false
		return
	}
	c.in.shrinkTo(baseWindow)
	if c.err == nil && c.out.room() > 0 {
		c.out.post(&verbs.SendWR{Opcode: verbs.OpWrite, Signaled: true}, slot{kind: slotProbe})
	}
}

// release frees what the connection has. It is over.
func (c *core) release() {
	c.mu.Lock()
	for c.callers.Leads() { // the leader sees the end at once
		c.follow(context.Background(), wantNothing, nil)
	}
	c.poll()
	c.abandon(errClosed)
	if c.out.pack != nil {
		c.hub.put(c.out.pack)
		c.out.pack = nil
	}
	for _, b := range c.in.takeAll() {
		c.hub.put(b)
	}
	extra := c.in.window + c.in.shrink - baseWindow
	c.in.window, c.in.shrink = baseWindow, 0 // for messages that are released later
	c.mu.Unlock()
	c.hub.remove(c, extra)
	c.qp.Close()
	c.cq.Close()
	c.hub.unhold()
}
