package world

import (
	"context"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/gosoftroce/rocev2/hca/task"
)

// Hosts have a second network beside the simulated one, as machines have one
// for their management: there programs tell each other what they need to be
// connected, as they do by TCP. What is written there is there at once.

// Listen listens for connections on a port of a host; 0 stands for one that is
// free.
func (w *World) Listen(host int, port uint16) (net.Listener, error) {
	if err := w.checkHost(host); err != nil {
		return nil, err
	}
	if port == 0 {
		for port = firstFree; w.listeners[addrPort(host, port)] != nil; port++ {
			if port == 1<<16-1 {
				return nil, opError("listen", nil, syscall.EADDRINUSE)
			}
		}
	}
	at := addrPort(host, port)
	if w.listeners[at] != nil {
		return nil, opError("listen", net.TCPAddrFromAddrPort(at), syscall.EADDRINUSE)
	}
	l := &listener{w: w, at: at, host: &w.hosts[host]}
	if w.listeners == nil {
		w.listeners = map[netip.AddrPort]*listener{}
	}
	w.listeners[at] = l
	return l, nil
}

// firstFree is the first of the ports that programs do not choose.
const firstFree = 49152

// Dial connects a host with a listener. It does not wait: if none is there, the
// error wraps syscall.ECONNREFUSED, as over TCP.
func (w *World) Dial(ctx context.Context, host int, to netip.AddrPort) (net.Conn, error) {
	if err := w.checkHost(host); err != nil {
		return nil, err
	}
	l := w.listeners[to]
	switch {
	case ctx.Err() != nil:
		return nil, opError("dial", net.TCPAddrFromAddrPort(to), context.Cause(ctx))
	case l == nil:
		return nil, opError("dial", net.TCPAddrFromAddrPort(to), syscall.ECONNREFUSED)
	}
	w.dialed++
	from := addrPort(host, firstFree+uint16(w.dialed%(1<<16-firstFree)))
	here, there := &direction{}, &direction{}
	l.backlog = append(l.backlog, &conn{tasks: l.host, local: to, remote: from, in: there, out: here})
	l.asleep.Wake()
	return &conn{tasks: &w.hosts[host], local: from, remote: to, in: here, out: there}, nil
}

func addrPort(host int, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(Addr(host), port)
}

func opError(op string, addr net.Addr, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Addr: addr, Err: err}
}

// listener implements net.Listener.
type listener struct {
	w       *World
	host    *host
	at      netip.AddrPort
	backlog []*conn
	asleep  task.Sleepers
	closed  bool
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return net.TCPAddrFromAddrPort(l.at) }

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	for {
		switch {
		case l.closed:
			return nil, opError("accept", l.Addr(), net.ErrClosed)
		case len(l.backlog) > 0:
			c := l.backlog[0]
			l.backlog = l.backlog[1:]
			return c, nil
		}
		if err := l.asleep.Sleep(context.Background(), l.host, 0); err != nil {
			return nil, opError("accept", l.Addr(), err)
		}
	}
}

// Close implements net.Listener. Connections that have not been accepted end.
func (l *listener) Close() error {
	if l.closed {
		return opError("close", l.Addr(), net.ErrClosed)
	}
	l.closed = true
	delete(l.w.listeners, l.at)
	for _, c := range l.backlog {
		c.Close()
	}
	l.asleep.Wake()
	return nil
}

// direction is one of a connection.
type direction struct {
	b      []byte
	ended  bool // nothing more is written
	gone   bool // nothing more is read
	asleep task.Sleepers
}

// conn implements net.Conn.
type conn struct {
	tasks         *host
	local, remote netip.AddrPort
	in, out       *direction
	read, write   time.Time // deadlines
	closed        bool
}

func (c *conn) opError(op string, err error) error { return opError(op, c.RemoteAddr(), err) }

// passed reports whether a deadline has passed, and how long it lasts else; 0
// is for ever.
func (c *conn) passed(deadline time.Time) (left time.Duration, over bool) {
	if deadline.IsZero() {
		return 0, false
	}
	left = deadline.Sub(task.By(c.tasks).Now())
	return left, left <= 0
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	for {
		left, late := c.passed(c.read)
		switch {
		case c.closed:
			return 0, c.opError("read", net.ErrClosed)
		case late:
			return 0, c.opError("read", os.ErrDeadlineExceeded)
		case len(b) == 0:
			return 0, nil
		case len(c.in.b) > 0:
			n := copy(b, c.in.b)
			c.in.b = c.in.b[n:]
			return n, nil
		case c.in.ended:
			return 0, io.EOF
		}
		if err := c.in.asleep.Sleep(context.Background(), c.tasks, left); err != nil {
			return 0, c.opError("read", err)
		}
	}
}

// Write implements net.Conn. It never waits.
func (c *conn) Write(b []byte) (int, error) {
	_, late := c.passed(c.write)
	switch {
	case c.closed || c.out.ended:
		return 0, c.opError("write", net.ErrClosed)
	case late:
		return 0, c.opError("write", os.ErrDeadlineExceeded)
	case c.out.gone:
		return 0, c.opError("write", syscall.EPIPE)
	}
	c.out.b = append(c.out.b, b...)
	c.out.asleep.Wake()
	return len(b), nil
}

// CloseWrite ends what this side writes, as that of net.TCPConn.
func (c *conn) CloseWrite() error {
	if c.closed {
		return c.opError("close", net.ErrClosed)
	}
	c.out.ended = true
	c.out.asleep.Wake()
	return nil
}

// Close implements net.Conn.
func (c *conn) Close() error {
	if c.closed {
		return c.opError("close", net.ErrClosed)
	}
	c.closed, c.out.ended, c.in.gone = true, true, true
	c.in.b = nil
	c.in.asleep.Wake()
	c.out.asleep.Wake()
	return nil
}

// LocalAddr and RemoteAddr implement net.Conn.
func (c *conn) LocalAddr() net.Addr  { return net.TCPAddrFromAddrPort(c.local) }
func (c *conn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.remote) }

// SetDeadline implements net.Conn. It is a time of task.Runner.Now.
func (c *conn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error {
	if c.closed {
		return c.opError("set", net.ErrClosed)
	}
	c.read = t
	c.in.asleep.Wake()
	return nil
}

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error {
	if c.closed {
		return c.opError("set", net.ErrClosed)
	}
	c.write = t
	return nil
}
