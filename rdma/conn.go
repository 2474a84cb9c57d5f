package rdma

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/gosoftroce/rocev2/verbs"
)

// Conn is a connection to a peer. Its methods may be called from any goroutine.
type Conn struct {
	core     core
	private  []byte
	exporter bool // the peer exports memory
	saidEnd  bool // the peer was told that no more bytes of a Stream follow
	onClose  func()
	closeErr error // of the Close that is over
}

// newConn makes a connection whose queue pair is in INIT.
func newConn(h *hub) (*Conn, error) { return newNumbered(h, 0) }

// newNumbered is newConn with a number that the peer was told, or 0.
func newNumbered(h *hub, number verbs.QPN) (*Conn, error) {
	qp, cq, err := h.open(number)
	if err != nil {
		return nil, err
	}
	c := &Conn{}
	c.core.init(h, qp, cq)
	if err = qp.Init(); err == nil {
		err = h.add(&c.core)
	}
	if err != nil {
		c.discard()
		return nil, err
	}
	return c, nil
}

// discard frees a connection that was not made.
func (c *Conn) discard() {
	c.core.end(errClosed)
	c.core.release()
}

// link is what has connected the queue pair, and will end it.
type link interface {
	LocalAddr() net.Addr
	RemoteAddr() net.Addr
	// Err returns why the queue pair was taken to ERR: before that is done.
	Err() error
	// Close takes the queue pair to ERR, and tells the peer.
	Close() error
}

// Message is a message that has arrived. Its memory is the connection's: it is
// the program's until Release.
type Message struct {
	data []byte
	loan loan
}

// Bytes returns the message, nil after Release. What Bytes has returned before
// must not be used after Release: other messages may lie there.
func (m Message) Bytes() []byte {
	if !m.loan.good() {
		return nil
	}
	return m.data
}

// Release gives the memory back. Further calls, also of copies of the Message,
// do nothing. While many messages are not released the peer cannot send more.
func (m Message) Release() {
	b := m.loan.end()
	if b == nil {
		return
	}
	defer b.hub.unhold()
	if b.refs.Add(-1) > 0 {
		return
	}
	c := b.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	c.in.giveBack(b)
}

// Buffer is memory for a message to be sent, which SendBuffer sends without a
// copy.
type Buffer struct {
	data []byte
	loan loan
}

// Bytes returns the memory: as many bytes as the largest message that this side
// takes has. It returns nil after SendBuffer or Discard. What it has returned
// before must not be used then: other messages may lie there.
func (b Buffer) Bytes() []byte {
	if !b.loan.good() {
		return nil
	}
	return b.data
}

// Discard gives back a buffer that is not sent. After SendBuffer or Discard it
// does nothing, so a program may defer it.
func (b Buffer) Discard() {
	if buf := b.loan.end(); buf != nil {
		buf.hub.put(buf)
		buf.hub.unhold()
	}
}

// LocalAddr returns the local address.
func (c *Conn) LocalAddr() net.Addr { return c.core.link.LocalAddr() }

// RemoteAddr returns the address of the peer.
func (c *Conn) RemoteAddr() net.Addr { return c.core.link.RemoteAddr() }

// QPN returns the number of the connection's queue pair, by which
// verbs.Device.QP finds what it does.
func (c *Conn) QPN() verbs.QPN { return c.core.qp.QPN() }

// PrivateData returns what the peer has given its connection on the way: the
// listener what Dialer.PrivateData had, the dialer what Request.Accept had.
// From a foreign peer it is everything, with the zeros that fill it up.
func (c *Conn) PrivateData() []byte { return c.private }

// Foreign reports whether the peer does not speak the protocol of this package:
// it gets and sends plain messages, without credits, and has no directory.
func (c *Conn) Foreign() bool { return c.core.foreign }

// MaxMessage returns the longest message that Send takes, in bytes.
func (c *Conn) MaxMessage() int { return c.core.maxSend }

// Done returns a channel that is closed when the connection is over, because of
// Close, of the peer, or because the peer does not answer any more.
func (c *Conn) Done() <-chan struct{} {
	c.core.mu.Lock()
	defer c.core.mu.Unlock()
	if c.core.done == nil {
		c.core.done = make(chan struct{})
		if c.core.err != nil {
			close(c.core.done)
		}
	}
	return c.core.done
}

// Err returns nil while the connection is usable, and then why it is over:
// ErrPeerClosed, ErrPeerGone, net.ErrClosed …
func (c *Conn) Err() error {
	c.core.mu.Lock()
	defer c.core.mu.Unlock()
	return c.core.err
}

// Send sends a message, which the peer's Recv returns. p is the caller's again
// when Send returns; that the peer has the message is not said by it. Send
// waits while the peer does not read, as long as ctx allows. If it returns an
// error the message was not sent, or the connection is over.
func (c *Conn) Send(ctx context.Context, p []byte) error {
	c.core.mu.Lock()
	defer c.core.mu.Unlock()
	if len(p) > c.core.maxSend {
		return c.failed("send", c.tooLong(len(p)))
	}
	return c.failed("send", c.core.out.send(ctx, kindMessage, p))
}

// Buffer returns memory for a message to be sent, for SendBuffer or Discard. It
// waits while there are many messages under way, as long as ctx allows.
func (c *Conn) Buffer(ctx context.Context) (Buffer, error) {
	c.core.mu.Lock()
	defer c.core.mu.Unlock()
	if err := c.core.out.turn(ctx, wantRoom); err != nil {
		return Buffer{}, c.failed("send", err)
	}
	b, err := c.core.hub.take()
	if err != nil {
		return Buffer{}, c.failed("send", err)
	}
	return Buffer{b.bytes(), newLoan(b)}, nil
}

// SendBuffer sends the first n bytes of a buffer as a message, without copying
// them. The buffer is not the caller's any more, whatever the error. It wraps
// ErrGivenBack for a buffer that was sent or discarded before.
func (c *Conn) SendBuffer(ctx context.Context, b Buffer, n int) error {
	c.core.mu.Lock()
	defer c.core.mu.Unlock()
	buf := b.loan.end()
	if buf == nil {
		return c.failed("send", ErrGivenBack)
	}
	defer buf.hub.unhold()
	err := c.core.out.turn(ctx, wantRoom)
	switch {
	case n > c.core.maxSend:
		err = c.tooLong(n)
	case n > len(b.data):
		err = fmt.Errorf("%w: %d bytes, the buffer has %d", ErrTooLong, n, len(b.data))
	case n < 0:
		err = &verbs.RangeError{What: "length of the message", Got: n, Max: min(c.core.maxSend, len(b.data))}
	case buf.hub != c.core.hub:
		err = verbs.ErrOtherDevice
	}
	if err != nil {
		buf.hub.put(buf)
		return c.failed("send", err)
	}
	return c.failed("send", c.core.out.sendBuffer(kindMessage, buf, n))
}

// Flush sends what is held back and waits until the peer's device has all that
// was sent or written.
func (c *Conn) Flush(ctx context.Context) error {
	c.core.mu.Lock()
	defer c.core.mu.Unlock()
	return c.failed("flush", c.core.wait(ctx, wantIdle, nil))
}

// Recv waits for a message, copies it to p, and returns its length. One that is
// longer than p stays the next one, and the error wraps ErrShortBuffer. When
// the peer has closed the connection, and all its messages are read, the error
// is io.EOF.
func (c *Conn) Recv(ctx context.Context, p []byte) (int, error) {
	c.core.mu.Lock()
	defer c.core.mu.Unlock()
	a, m, err := c.await(ctx)
	if err != nil {
		return 0, err
	}
	if len(m) > len(p) {
		return 0, c.failed("recv", fmt.Errorf("%w: the message has %d bytes, the buffer %d", ErrShortBuffer, len(m), len(p)))
	}
	n := copy(p, m)
	c.core.in.advance(a, m)
	return n, nil
}

// RecvMsg is Recv without a copy: the message lies in memory of the connection,
// until Release.
func (c *Conn) RecvMsg(ctx context.Context) (Message, error) {
	c.core.mu.Lock()
	defer c.core.mu.Unlock()
	a, m, err := c.await(ctx)
	if err != nil {
		return Message{}, err
	}
	b := a.buf
	b.conn = &c.core
	b.refs.Add(1)
	c.core.in.advance(a, m)
	return Message{m, newLoan(b)}, nil
}

// await waits for the message that is next.
func (c *Conn) await(ctx context.Context) (*arrival, []byte, error) {
	for {
		a, m, err := c.core.in.next()
		if a != nil || err != nil {
			return a, m, c.failed("recv", err)
		}
		if c.core.in.ended {
			return nil, nil, io.EOF
		}
		if err := c.core.wait(ctx, wantMessage, nil); err != nil {
			if errors.Is(err, ErrPeerClosed) {
				return nil, nil, io.EOF
			}
			return nil, nil, c.failed("recv", err)
		}
	}
}

// Write writes p to memory of the peer. When it returns, the peer has the data.
// If the context ends in the middle some of it may be written.
func (c *Conn) Write(ctx context.Context, to verbs.RemoteAddr, p []byte) error {
	return c.failed("write", c.core.transfer(ctx, verbs.OpWrite, to, p))
}

// Read reads memory of the peer into p. If the context ends in the middle p may
// have some of it.
func (c *Conn) Read(ctx context.Context, from verbs.RemoteAddr, p []byte) error {
	return c.failed("read", c.core.transfer(ctx, verbs.OpRead, from, p))
}

// CompareSwap sets 8 bytes of the peer to swap if they are compare, in one
// step, and returns what they were.
func (c *Conn) CompareSwap(ctx context.Context, at verbs.RemoteAddr, compare, swap uint64) (uint64, error) {
	old, err := c.core.atomic(ctx, &verbs.SendWR{Opcode: verbs.OpCompareSwap, Remote: at, CompareAdd: compare, Swap: swap})
	return old, c.failed("compare and swap", err)
}

// FetchAdd adds to 8 bytes of the peer, in one step, and returns what they
// were.
func (c *Conn) FetchAdd(ctx context.Context, at verbs.RemoteAddr, add uint64) (uint64, error) {
	old, err := c.core.atomic(ctx, &verbs.SendWR{Opcode: verbs.OpFetchAdd, Remote: at, CompareAdd: add})
	return old, c.failed("fetch and add", err)
}

// Register registers memory of the program: for requests of Go, and, with
// remote rights, for the peer, which is told MR.Remote in a message. All peers
// of a listener may use the key.
func (c *Conn) Register(buf []byte, access verbs.Access, opts ...verbs.RegOption) (*verbs.MR, error) {
	return c.core.hub.pd.RegisterMemory(buf, access, opts...)
}

// lingering is how long Close waits until the peer has what was sent.
const lingering = 2 * time.Second

// Close ends the connection. What was sent before still arrives, if the peer
// takes it within some seconds; the peer then receives io.EOF. Calls that are
// under way return net.ErrClosed. Further calls of Close wait for the first
// one, and return what it returns.
func (c *Conn) Close() error {
	c.core.mu.Lock()
	if over := c.core.closed; over != nil {
		c.core.mu.Unlock()
		<-over
		return c.closeErr
	}
	c.core.closed = make(chan struct{})
	defer close(c.core.closed)
	ctx, cancel := context.WithTimeout(context.Background(), lingering)
	defer cancel()
	c.core.wait(ctx, wantIdle, nil)
	c.core.mu.Unlock()
	c.closeErr = c.core.link.Close()
	c.core.end(errClosed)
	c.core.release()
	if c.onClose != nil {
		c.onClose()
	}
	return c.closeErr
}

// tooLong is the error of a message of n bytes.
func (c *Conn) tooLong(n int) error {
	if c.core.foreign { // it has not said what it takes
		return fmt.Errorf("%w: %d bytes, MessageSize is %d", ErrTooLong, n, c.core.maxSend)
	}
	return fmt.Errorf("%w: %d bytes, the peer takes %d", ErrTooLong, n, c.core.maxSend)
}

func (c *Conn) failed(op string, err error) error {
	if err == nil {
		return nil
	}
	return &OpError{Op: op, Remote: c.core.link.RemoteAddr(), Err: err}
}
