package rdmanet

import (
	"errors"
	"io"
)

// Read reads what has come, and waits if there is nothing. io.EOF means that
// the peer sends no more.
func (c *Conn) Read(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads.begin(&c.changed)
	defer c.reads.end(&c.changed)
	if len(p) == 0 {
		_, err := c.readReady()
		if !c.closed && !c.readBy.passed {
			return 0, nil
		}
		return 0, c.opError("read", err)
	}
	view, err := c.awaitBytes()
	total := 0
	for err == nil && len(view) > 0 {
		c.mu.Unlock()
		n := copy(p[total:], view)
		total += n
		c.mu.Lock()
		view = c.consume(n)
		if total == len(p) {
			break
		}
	}
	return total, err
}

// WriteTo writes what comes to w until io.EOF, from the ring itself: without a
// copy. It implements io.WriterTo.
func (c *Conn) WriteTo(w io.Writer) (int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads.begin(&c.changed)
	defer c.reads.end(&c.changed)
	total := int64(0)
	for {
		view, err := c.awaitBytes()
		if errors.Is(err, io.EOF) {
			return total, nil
		} else if err != nil {
			return total, err
		}
		c.mu.Unlock()
		n, err := w.Write(view[:min(len(view), maxView)])
		c.mu.Lock()
		if n = max(0, min(n, len(view))); n > 0 {
			c.consume(n)
		}
		total += int64(n)
		if err != nil {
			return total, err
		}
	}
}

// awaitBytes waits for bytes and returns the first ones, in the ring. c.mu is
// held.
func (c *Conn) awaitBytes() ([]byte, error) {
	if err := c.await(reading); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, io.EOF
		}
		return nil, c.opError("read", err)
	}
	return c.unread(), nil
}

func (c *Conn) unread() []byte {
	off, n := c.stream.Readable()
	return c.ep.bytes[off : off+n]
}

// consume gives n bytes of the ring back and returns those that follow. c.mu is
// held.
func (c *Conn) consume(n int) []byte {
	c.stream.Consume(n)
	if c.stream.Owes() {
		c.sayAll()
	}
	return c.unread()
}
