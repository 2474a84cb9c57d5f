package cm

import (
	"context"
	"fmt"
	"net"

	"github.com/gosoftroce/rocev2/hca/task"
	"github.com/gosoftroce/rocev2/rdma/cm/agent"
	"github.com/gosoftroce/rocev2/verbs"
)

// Conn is a connection: a queue pair whose two sides have agreed. It ends when
// one of them disconnects, or does not exist any more. The queue pair is in ERR
// then, so that all that is posted completes; it is the program's to close.
// Methods may be called from any goroutine.
//
// A peer that falls silent without a word, such as a host that is switched off,
// shows only in requests that are not acknowledged.
type Conn struct {
	m             *manager
	id            agent.ID
	qp            *verbs.QP
	local, remote Addr
	data          private
	ece           ECE
	params        Params
	ownPort       bool     // local.Port is to be given back
	control       *control // of a secured connection

	// Guarded by the lock of m:
	waiter *waiter       // of Dial, and of Disconnect
	done   chan struct{} // made by the first Done; closed at the end
	gone   *task.Event   // made by the first Wait; set at the end
	after  func()        // of AfterEnd
	ending bool          // err is set, and the queue pair goes to ERR
	ended  bool          // all is done
	err    error
}

// waiter is a call that waits for the next event of a Conn.
type waiter struct {
	ready chan struct{} // a token: event or over is set
	event agent.Event   // guarded by the manager's lock
	over  bool          // there is none; the manager is closed

	noDevice bool // there is none: the peer's UDP port is closed
}

func newWaiter() *waiter { return &waiter{ready: make(chan struct{}, 1)} }

// wake gives the waiter its event.
func (c *Conn) wake(e *agent.Event) {
	w := c.waiter
	c.waiter = nil
	if e != nil {
		w.event = *e
	} else {
		w.over = true
	}
	w.ready <- struct{}{}
	c.m.nudge = true
}

// QP returns the queue pair.
func (c *Conn) QP() *verbs.QP { return c.qp }

// LocalAddr returns the address of this side: an *Addr.
func (c *Conn) LocalAddr() net.Addr { return &c.local }

// RemoteAddr returns the address of the peer: an *Addr.
func (c *Conn) RemoteAddr() net.Addr { return &c.remote }

// PrivateData returns what the peer's program has sent when the connection was
// made: the whole field of its message, 196 bytes on the side that dialed, 56
// on the side that accepted, with zeros after the data.
func (c *Conn) PrivateData() []byte { return c.data.bytes() }

// ECE returns what the peer says of itself.
func (c *Conn) ECE() ECE { return c.ece }

// Native reports whether the peer is this software.
func (c *Conn) Native() bool { return c.ece.native() }

// Params returns what the queue pair was set to.
func (c *Conn) Params() Params { return c.params }

// Done returns a channel that is closed when the connection has ended, by
// whichever side, and its queue pair is in ERR.
func (c *Conn) Done() <-chan struct{} {
	c.m.lock()
	defer c.m.unlock()
	if c.done == nil {
		c.done = make(chan struct{})
		if c.ended {
			close(c.done)
		}
	}
	return c.done
}

// Wait waits until the connection has ended, as Done says it, and returns Err;
// or the cause of the end of ctx.
func (c *Conn) Wait(ctx context.Context) error {
	if err := c.atEnd().Wait(ctx); err != nil {
		return err
	}
	return c.Err()
}

// atEnd returns what is set when the connection has ended.
func (c *Conn) atEnd() *task.Event {
	c.m.lock()
	defer c.m.unlock()
	if c.gone == nil {
		c.gone = c.m.tasks.NewEvent()
		if c.ended {
			c.gone.Set()
		}
	}
	return c.gone
}

// AfterEnd has f called, on a goroutine of its own, when the connection has
// ended, as by a goroutine that waits for Done: but until then there is none.
// It is called once, and replaces the f of an earlier call. It suits servers of
// thousands of idle connections, which close their queue pairs so.
func (c *Conn) AfterEnd(f func()) {
	c.m.lock()
	defer c.m.unlock()
	if c.ended {
		c.m.tasks.Go(f)
		return
	}
	c.after = f
}

// Err returns why the connection has ended: ErrDisconnected, ErrUnreachable, a
// *RejectedError, or ErrClosed after Disconnect, Close, or the close of the
// device. It is nil before.
func (c *Conn) Err() error {
	c.m.lock()
	defer c.m.unlock()
	return c.err
}

// event implements sink.
func (c *Conn) event(e *agent.Event) {
	if e.Kind == agent.EventEstablished {
		return // it may be used since Accept
	}
	if c.waiter != nil {
		if e.Kind.Final() {
			delete(c.m.ids, c.id)
		}
		c.wake(e)
		return
	}
	switch e.Kind {
	case agent.EventDisconnectRequested:
		c.end(ErrDisconnected)
	case agent.EventDisconnected, agent.EventRejected, agent.EventUnreachable, agent.EventTimewaitExit:
		c.end(endOf(e))
	}
}

// endOf returns the error that an event is the end by.
func endOf(e *agent.Event) error {
	switch {
	case e.Kind == agent.EventUnreachable:
		return ErrUnreachable
	case e.Reason != 0:
		return &RejectedError{Reason: e.Reason, PrivateData: e.Private, Info: e.ARI}
	}
	return ErrDisconnected
}

// end ends the connection because of the peer, locked. A goroutine does it,
// because taking the queue pair to ERR may wait for the link.
func (c *Conn) end(err error) {
	if c.ending {
		return
	}
	c.ending, c.err = true, err
	c.m.tasks.Go(c.finish)
}

// finish takes the queue pair to ERR and answers the peer.
func (c *Conn) finish() {
	fail(c.qp)
	c.m.lock()
	defer c.m.unlock()
	c.heard()
	c.m.release(c.id)
	c.conclude()
}

// heard takes a connection for established, locked, where the RTU of the peer
// is missing and packets have come from it: it knows the connection (IBTA
// 12.9.7.2). So it ends by a DREQ, which goes again until it is answered; the
// peer could miss a REJ.
func (c *Conn) heard() {
	if c.qp == nil || c.m.closed || c.m.agent.State(c.id) != agent.StateREPSent {
		return
	}
	if st := c.qp.Stats(); st.RxPackets > st.Drops.Total() {
		c.m.agent.Communicated(c.id)
	}
}

// conclude says that the connection has ended, locked.
func (c *Conn) conclude() {
	if c.ended {
		return
	}
	c.ended = true
	if c.ownPort {
		c.m.ports.give(c.local.Space, c.local.Port())
	}
	if c.done != nil {
		close(c.done)
	}
	if c.gone != nil {
		c.gone.Set()
	}
	if c.after != nil {
		c.m.tasks.Go(c.after)
		c.after = nil
	}
}

// over implements sink: the device is being closed, and the queue pair with it.
func (c *Conn) over() {
	if c.waiter != nil {
		c.wake(nil)
	}
	if !c.ending {
		c.ending, c.err = true, ErrClosed
		c.conclude()
	}
}

// begin has the caller end the connection, and reports false if that is already
// under way.
func (c *Conn) begin() bool {
	if c.params.Type == verbs.UD {
		return false
	}
	c.m.lock()
	defer c.m.unlock()
	if c.ending {
		return false
	}
	c.ending, c.err = true, ErrClosed
	return true
}

// Close ends the connection. The queue pair goes to ERR: what is posted and not
// done completes with StatusWRFlushErr. The peer is told, and again until it
// has answered; Close does not wait for that.
func (c *Conn) Close() error {
	if c.begin() {
		c.finish()
	}
	return nil
}

// Disconnect is Close that waits for the peer's answer. An error is that of
// ctx, or ErrUnreachable; the connection has ended all the same.
func (c *Conn) Disconnect(ctx context.Context) error {
	if !c.begin() {
		return nil
	}
	fail(c.qp)
	w := newWaiter()
	c.m.lock()
	c.heard()
	waits := !c.m.closed && c.m.agent.Disconnect(c.m.now(), c.id, nil) == nil
	if waits {
		c.waiter = w
	}
	c.m.unlock()
	var err error
	if waits {
		if err = c.m.await(ctx, w); err == nil && w.event.TimedOut {
			err = ErrUnreachable
		}
	}
	c.m.lock()
	c.waiter = nil
	c.m.release(c.id)
	c.conclude()
	c.m.unlock()
	if err != nil {
		return fmt.Errorf("cm: disconnect from %v: %w", &c.remote, err)
	}
	return nil
}
