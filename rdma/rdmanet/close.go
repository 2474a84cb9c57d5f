package rdmanet

import (
	"context"
	"errors"
	"net"
	"time"
)

// partTime bounds what goes on in the background after Close.
const partTime = 3 * time.Second

// Close ends the connection: Read and Write that wait return, with an error
// that wraps net.ErrClosed. Close waits until the peer has acknowledged what
// was written, as Options.Linger says. If it has not, the error says so; the
// connection is closed all the same.
//
// In a simulated network in virtual time (package fabric/worldtest) that goes
// on in the background, as with TCP: no process ends there, and programs such
// as net/http close connections under a lock that others want.
func (c *Conn) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return c.opError("close", net.ErrClosed)
	}
	c.closed = true
	c.readBy.end()
	c.writeBy.end()
	c.alive.end()
	c.interrupt()
	c.writes.begin(&c.changed) // a Write is posting
	if c.drains {
		c.stream.Disconnect()
	} else {
		// A peer that is told that this side is gone throws away what
		// it has not read.
		c.stream.Shutdown()
	}
	c.lingerBy.set(c, time.Now().Add(max(c.opts.Linger, 0)))
	c.sayAll()
	c.writes.end(&c.changed)
	later, lost := c.ep.virtual, false
	if !later {
		lost = c.linger()
	}
	c.mu.Unlock()
	c.Parted() // makes the channel
	go func() {
		c.part(later)
		close(c.parted)
	}()
	if lost {
		return c.opError("close", errLinger)
	}
	return nil
}

// linger waits for the peer to acknowledge what was written, and reports
// whether it has not. c.mu is held.
func (c *Conn) linger() (lost bool) {
	c.await(lingering)
	return c.err == nil && c.opts.Linger > 0 && !c.out.idle() && !c.stream.PeerGone()
}

// Parted returns a channel that is closed when this side has taken leave of the
// peer, a few seconds after Close at most. A program that ends before leaves a
// peer without answers, which it asks for until its retries are through: Linux
// does for up to 20 s.
func (c *Conn) Parted() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.parted == nil {
		c.parted = make(chan struct{})
	}
	return c.parted
}

var errLinger = errors.New("the peer has not acknowledged all that was written")

// part takes leave of the peer and frees everything. With linger the peer is
// yet to acknowledge what was written.
func (c *Conn) part(linger bool) {
	c.mu.Lock()
	if linger {
		c.linger()
	}
	if !c.drains {
		c.lingerBy.set(c, time.Now().Add(partTime))
		c.await(parting)
		c.stream.Disconnect()
		c.sayAll()
		c.await(lingering)
	}
	c.lingerBy.end()
	c.mu.Unlock()

	ctx, cancel := context.WithTimeout(context.Background(), partTime)
	defer cancel()
	c.link.Disconnect(ctx) // the peer may be gone: that is no error here
	c.link.Close()
	c.ep.qp.Close()

	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads.begin(&c.changed) // a Read may be copying
	c.writes.begin(&c.changed)
	c.fail(net.ErrClosed)
	c.ep.close()
	if c.out.memory != nil {
		c.out.memory.Close()
	}
	c.reads.end(&c.changed)
	c.writes.end(&c.changed)
}
