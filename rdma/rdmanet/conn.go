package rdmanet

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/gosoftroce/rocev2/hca/wake"
	"github.com/gosoftroce/rocev2/rdma/rdmanet/rsocket"
	"github.com/gosoftroce/rocev2/verbs"
)

// Conn is a stream over RDMA, a net.Conn. Its methods may be called from any
// goroutine.
//
// Only calls of its methods look after a connection: a Read, Write or Close
// that waits polls the completion queue for all calls that wait (c.callers);
// the others sleep until it has something for them, or returns.
type Conn struct {
	ep   endpoint
	link link
	opts Options

	mu       sync.Mutex
	reads    turns // one Read at a time; the ring is not freed meanwhile
	writes   turns // one Write at a time, so that DATA is posted in order
	stream   rsocket.Stream
	out      sendQueue
	left     int  // bytes of the Write that is under way, not posted yet
	toPost   int  // receives that have completed and are not posted anew
	wide     bool // the peer has all the credits that it can have
	drains   bool
	err      error // why the connection is broken
	closed   bool  // by Close
	noWrites bool  // by CloseWrite

	callers wake.Callers[role] // the leader waits for the completion queue
	claimed bool               // by a Write, which leads itself
	changed sync.Cond          // of c.mu: those that wait are to look again
	parted  chan struct{}      // nil before Close, if it was not asked for
	stop    *interrupt         // of the leader; nil before one leads

	secured *secured // nil: the connection is in clear

	readBy, writeBy, lingerBy deadline
	alive                     keepAlive
}

// link is a connection of the connection manager.
type link interface {
	LocalAddr() net.Addr
	RemoteAddr() net.Addr
	Disconnect(ctx context.Context) error // tells the peer
	Close() error                         // frees it; the queue pair stays
}

// newConn makes a connection of what has been exchanged.
func newConn(ep endpoint, l link, opts Options, peer *rsocket.Block) *Conn {
	local := ep.block(opts)
	c := &Conn{
		ep: ep, link: l, opts: opts,
		stream: rsocket.NewStream(&local, peer),
		drains: peer.Features&rsocket.FeatureDrains != 0,
	}
	c.out.size = uint64(opts.SendBuffer)
	c.changed.L = &c.mu
	c.alive.start(c)
	return c
}

// LocalAddr returns the address of this side, a *cm.Addr.
func (c *Conn) LocalAddr() net.Addr { return c.link.LocalAddr() }

// RemoteAddr returns the address of the peer, a *cm.Addr.
func (c *Conn) RemoteAddr() net.Addr { return c.link.RemoteAddr() }

// QP returns the queue pair of the connection, for its counters and attributes.
func (c *Conn) QP() *verbs.QP { return c.ep.qp }

// SetDeadline sets both deadlines, as net.Conn has it.
func (c *Conn) SetDeadline(t time.Time) error { return c.setDeadlines(t, &c.readBy, &c.writeBy) }

// SetReadDeadline sets the deadline of Read. The zero time is none. One that
// has passed ends a Read that waits; its error wraps os.ErrDeadlineExceeded.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setDeadlines(t, &c.readBy) }

// SetWriteDeadline sets the deadline of Write, as SetReadDeadline. Some of the
// bytes may have been sent.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setDeadlines(t, &c.writeBy) }

func (c *Conn) setDeadlines(t time.Time, ds ...*deadline) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.opError("set", net.ErrClosed)
	}
	for _, d := range ds {
		d.set(c, t)
	}
	return nil
}

// opError gives an error the form that errors of package net have.
func (c *Conn) opError(op string, err error) error {
	return &net.OpError{Op: op, Net: Network, Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}
