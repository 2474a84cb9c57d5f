package rdma

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/gosoftroce/rocev2/rdma/secure"
	"github.com/gosoftroce/rocev2/verbs"
)

// ErrNotSecured is the error of Dial with a TLS configuration if the listener
// has none. Nothing of the program was sent.
var ErrNotSecured = errors.New("the listener does not secure connections: it has no TLS configuration")

// errOnlySecured is what a listener tells peers without TLS.
var errOnlySecured = errors.New("this listener takes secured connections alone: dial with a TLS configuration")

// ConnectionState returns what the handshake of a secured connection has shown,
// such as the certificates of the peer. It reports false for a connection that
// is not secured.
func (c *Conn) ConnectionState() (tls.ConnectionState, bool) {
	if s := c.core.secured; s != nil {
		return s.session.State()
	}
	return tls.ConnectionState{}, false
}

// secured is what a connection that is secured has beside others.
type secured struct {
	session *secure.Session // nil: the peer may not do yet what it may; guarded by the connection's mu
}

// names returns those of the peer's certificate.
func (s *secured) names() []secure.Name {
	if s == nil {
		return nil
	}
	state, _ := s.session.State()
	return secure.Names(&state)
}

// securing reports whether a handshake is under way, so that the peer may do
// nothing else.
func (c *core) securing() bool { return c.secured != nil && c.secured.session == nil }

// secure secures a connection that was dialled.
func (d *Dialer) secure(ctx context.Context, c *Conn, addr string) error {
	// A peer that has gone while this side waits for its answer says
	// nothing, and there is nothing that it would have to acknowledge.
	timed, cancel := context.WithTimeout(ctx, secure.Time)
	defer cancel()
	_, err := secure.Client(timed, toSecure(timed, c), d.TLS, addr)
	err = isSecured(c, err)
	if err != nil && c.Err() == nil && timed.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("%w: secure the connection: the handshake was not over in %v", ErrPeerGone, secure.Time)
	}
	return err
}

// secure secures a connection that was accepted.
func (l *Listener) secure(ctx context.Context, c *Conn) error {
	timed, cancel := context.WithTimeout(ctx, secure.Time)
	defer cancel()
	_, err := secure.Server(timed, toSecure(timed, c), l.cfg.TLS)
	err = isSecured(c, err)
	if err != nil && ctx.Err() == nil && l.cfg.OnNotSecured != nil { // else this side has given it up
		l.cfg.OnNotSecured(c.RemoteAddr(), err)
	}
	return err
}

// toSecure returns a connection for package secure.
func toSecure(ctx context.Context, c *Conn) secure.Conn {
	return secure.Conn{Conn: &messages{c: c, ctx: ctx}, QP: c.core.qp, Open: func(s *secure.Session) error {
		c.core.mu.Lock()
		c.core.secured.session = s
		c.core.mu.Unlock()
		return c.core.qp.Modify(&verbs.Attr{Access: openAccess}, verbs.AttrAccess)
	}}
}

// openAccess is what package cm grants by itself.
const openAccess = verbs.RemoteWrite | verbs.RemoteRead | verbs.RemoteAtomic | verbs.FlushGlobal | verbs.FlushPersistent

// isSecured takes what has become of a handshake. What has ended the connection
// says more than what TLS makes of it. The error is that of the connection for
// errors.Is where TLS had nothing against the peer: another dial may succeed.
func isSecured(c *Conn, err error) error {
	over := c.Err()
	switch {
	case err == nil:
		return over
	case over == nil || errors.Is(err, over) || errors.Is(over, errClosed):
		return err
	case errors.Is(err, io.EOF): // nothing but the end of the connection
		return fmt.Errorf("%w (%w)", over, err)
	}
	return fmt.Errorf("%v (%w)", over, err)
}

// messages is a net.Conn over the messages of a connection, for its handshake.
type messages struct {
	c    *Conn
	ctx  context.Context
	rest []byte
}

func (m *messages) Read(p []byte) (int, error) {
	if len(m.rest) == 0 {
		got, err := m.c.RecvMsg(m.ctx)
		if err != nil {
			return 0, err
		}
		m.rest = append(m.rest[:0], got.Bytes()...)
		got.Release()
	}
	n := copy(p, m.rest)
	m.rest = m.rest[n:]
	return n, nil
}

func (m *messages) Write(p []byte) (n int, err error) {
	for n < len(p) {
		part := p[n:min(len(p), n+m.c.MaxMessage())]
		if err := m.c.Send(m.ctx, part); err != nil {
			return n, err
		}
		n += len(part)
	}
	return n, nil
}

// Close ends a handshake whose context is done. The calls under way have the
// same.
func (m *messages) Close() error { return nil }

func (m *messages) LocalAddr() net.Addr              { return m.c.LocalAddr() }
func (m *messages) RemoteAddr() net.Addr             { return m.c.RemoteAddr() }
func (m *messages) SetDeadline(time.Time) error      { return nil }
func (m *messages) SetReadDeadline(time.Time) error  { return nil }
func (m *messages) SetWriteDeadline(time.Time) error { return nil }
