package control

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/rdma/secure"
)

// Secure has a handshake of TLS, after which all items go through it. Nothing
// was said before. It returns when this side knows that the peer, too, is
// content with the handshake. On an error the peer is told in TLS, and the
// connection is in clear still, to be closed.
func (c *Conn) Secure(ctx context.Context, config *tls.Config) (*secure.Session, error) {
	raw := &parted{Conn: c.c}
	disarm := c.arm(ctx, true)
	s, t, err := secure.Handshake(raw, config, c.role == interop.Client)
	if err == nil {
		err = c.content(t)
	}
	err = c.shaken(ctx, err, raw.head)
	disarm()
	if err != nil {
		return nil, err
	}
	c.c, c.r = t, bufio.NewReaderSize(t, MaxItem)
	return s, nil
}

// content has the server say that it is content. A client knows nothing of what
// its server makes of its certificate until the server says something.
func (c *Conn) content(t *tls.Conn) error {
	var content [1]byte
	if c.role == interop.Server {
		_, err := t.Write(content[:])
		return err
	}
	_, err := io.ReadFull(t, content[:])
	return err
}

// shaken turns the error of a handshake into what the user should read. head is
// what the peer has said first.
func (c *Conn) shaken(ctx context.Context, err error, head []byte) error {
	if err == nil {
		return nil
	}
	const what = "the run is to be secured (TLS), and is not"
	var header tls.RecordHeaderError
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%s: no answer within %v: a peer without TLS may wait for something else: %w", what, c.timeout, err)
	case !errors.As(err, &header):
	case c.role == interop.Client:
		if refused := c.refused(head); refused != nil {
			return fmt.Errorf("%s: %w", what, refused)
		}
	default:
		return errors.New("the client is not secured, and this server takes secured runs alone: start the client with --tls-cert, --tls-key and --tls-ca, or with --psk")
	}
	if cause := c.cause(ctx, err); errors.Is(cause, interop.ErrPeerClosed) {
		return fmt.Errorf("%s: %w in the handshake, as one does that has no TLS", what, cause)
	}
	return fmt.Errorf("%s: %w", what, secure.Explain(err))
}

// parted is a connection that keeps what comes first, and whose writes are no
// longer than an item.
type parted struct {
	net.Conn
	head []byte
}

func (p *parted) Read(b []byte) (int, error) {
	n, err := p.Conn.Read(b)
	if more := maxRefusal - len(p.head); more > 0 {
		p.head = append(p.head, b[:min(n, more)]...)
	}
	return n, err
}

func (p *parted) Write(b []byte) (n int, err error) {
	for n < len(b) {
		var m int
		if m, err = p.Conn.Write(b[n:min(n+MaxItem, len(b))]); err != nil {
			return n + m, err
		}
		n += m
	}
	return n, nil
}

// CloseWrite has the peer read the end, as far as the connection below can.
func (p *parted) CloseWrite() error {
	if h, ok := p.Conn.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return nil
}
