package rdma

import (
	"context"
	"net"
	"sync"
)

// Stream is a connection as a stream of bytes: an io.ReadWriteCloser. The peer
// uses its own Stream. While it is in use, Send and Recv of the Conn are not.
// Package rdmanet has a complete net.Conn.
type Stream struct {
	c      *Conn
	readMu sync.Mutex
	msg    Message // what is not read to its end
	rest   []byte
}

// Stream returns the connection as a stream of bytes.
func (c *Conn) Stream() *Stream { return &Stream{c: c} }

// Read reads what has arrived, at least one byte; io.EOF when the peer has
// closed its side.
func (s *Stream) Read(p []byte) (int, error) {
	s.readMu.Lock()
	defer s.readMu.Unlock()
	if len(p) == 0 {
		return 0, nil
	}
	for len(s.rest) == 0 {
		m, err := s.c.RecvMsg(context.Background())
		if err != nil {
			return 0, err
		}
		if s.msg, s.rest = m, m.Bytes(); len(s.rest) == 0 {
			m.Release()
		}
	}
	n := copy(p, s.rest)
	if s.rest = s.rest[n:]; len(s.rest) == 0 {
		s.msg.Release()
	}
	return n, nil
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
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.foreign {
		return c.failed("close", ErrForeign)
	}
	return c.failed("close", c.out.send(context.Background(), kindEnd, nil))
}

// Close closes the connection.
func (s *Stream) Close() error { return s.c.Close() }

// LocalAddr returns the local address.
func (s *Stream) LocalAddr() net.Addr { return s.c.LocalAddr() }

// RemoteAddr returns the address of the peer.
func (s *Stream) RemoteAddr() net.Addr { return s.c.RemoteAddr() }
