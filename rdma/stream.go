package rdma

import (
	"context"
	"io"
	"net"
)

// Stream is a connection as a stream of bytes: an io.ReadWriteCloser. The peer
// uses its own Stream. While it is in use, Send and Recv of the Conn are not.
// Package rdmanet has a complete net.Conn.
type Stream struct{ c *Conn }

// Stream returns the connection as a stream of bytes.
func (c *Conn) Stream() *Stream { return &Stream{c: c} }

// Read reads what has arrived, at least one byte. The error is io.EOF when the
// peer has closed its side and everything is read. Where the connection has
// ended without that word the error wraps io.ErrUnexpectedEOF: something may be
// missing. (A foreign peer has no such word.)
func (s *Stream) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	c := s.c
	c.core.mu.Lock()
	defer c.core.mu.Unlock()
	for {
		a, m, err := c.await(context.Background())
		if err == io.EOF && !c.core.in.ended && !c.core.foreign {
			err = c.failed("read", io.ErrUnexpectedEOF)
		}
		if err != nil {
			return 0, err
		}
		if n := copy(p, m); n > 0 {
			c.core.in.skip(a, m, n)
			return n, nil
		}
		c.core.in.advance(a, m)
	}
}

// Write writes all of p, and waits while the peer does not read.
func (s *Stream) Write(p []byte) (int, error) {
	for n := 0; n < len(p); {
		part := p[n:min(n+s.c.MaxMessage(), len(p))]
		if err := s.c.Send(context.Background(), part); err != nil {
			return n, err
		}
		n += len(part)
	}
	return len(p), nil
}

// CloseWrite says that nothing more is written: the peer's Read returns io.EOF
// when it has read everything. A foreign peer cannot be told.
func (s *Stream) CloseWrite() error {
	return s.closeWrite(context.Background())
}

func (s *Stream) closeWrite(ctx context.Context) error {
	c := s.c
	c.core.mu.Lock()
	defer c.core.mu.Unlock()
	if c.core.foreign {
		return c.failed("close", ErrForeign)
	}
	if c.saidEnd {
		return nil
	}
	err := c.core.out.send(ctx, kindEnd, nil)
	c.saidEnd = err == nil
	return c.failed("close", err)
}

// Close tells the peer that nothing more is written, if it takes that within
// some seconds, and closes the connection.
func (s *Stream) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), lingering)
	defer cancel()
	_ = s.closeWrite(ctx) // the peer sees what it has not been told
	return s.c.Close()
}

// LocalAddr returns the local address.
func (s *Stream) LocalAddr() net.Addr { return s.c.LocalAddr() }

// RemoteAddr returns the address of the peer.
func (s *Stream) RemoteAddr() net.Addr { return s.c.RemoteAddr() }
