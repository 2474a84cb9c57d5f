package rdmanet

import (
	"context"
	"crypto/tls"
	"encoding/binary"

	"github.com/gosoftroce/rocev2/rdma/rdmanet/rsocket"
	"github.com/gosoftroce/rocev2/rdma/secure"
)

// secured is what a connection that is secured has beside others.
type secured struct {
	greeting []byte // of both sides
	session  *secure.Session
}

// greeted returns a connection that is to be secured, whose sides have said in
// clear where their rings are: the one that has dialled, and the other one.
func greeted(client, server *rsocket.Block) *secured {
	said := client.AppendTo(nil)
	return &secured{greeting: server.AppendTo(binary.BigEndian.AppendUint32(said, uint32(len(said))))}
}

// ConnectionState returns what the handshake of a secured connection has shown,
// such as the certificates of the peer. It reports false for a connection that
// is not secured.
func (c *Conn) ConnectionState() (tls.ConnectionState, bool) {
	if c.secured == nil {
		return tls.ConnectionState{}, false
	}
	return c.secured.session.State()
}

// secure secures a connection that was dialled, or closes it.
func (d *Dialer) secure(ctx context.Context, c *Conn, address string) (err error) {
	c.secured.session, err = secure.Client(ctx, secure.Conn{Conn: c, QP: c.ep.qp, Greeting: c.secured.greeting}, d.TLS, address)
	if err != nil {
		c.Close()
	}
	return err
}

// handshake secures a connection that was accepted, or closes it.
func (l *Listener) handshake(ctx context.Context, c *Conn) (_ *Conn, err error) {
	c.secured.session, err = secure.Server(ctx, secure.Conn{Conn: c, QP: c.ep.qp, Greeting: c.secured.greeting}, l.cfg.TLS)
	if err != nil {
		if ctx.Err() == nil && l.cfg.OnNotSecured != nil { // else this side has given it up
			l.cfg.OnNotSecured(c.RemoteAddr(), err)
		}
		c.Close()
		return nil, err
	}
	return c, nil
}
