// Package control is the control connection of the application protocols: TCP
// over which two sides exchange items of fixed size in strict turns.
//
// The originals read each item with a single read call that must return the
// whole of it, so an item leaves here in a single write. What comes in is read
// to the announced size and never beyond a limit of this package.
package control

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/gosoftroce/rocev2/hca/task"
	"github.com/gosoftroce/rocev2/programs/interop"
)

// MaxItem is the size of the largest item that any protocol has, with room.
const MaxItem = 1024

// Conn is a control connection. It is for one goroutine, Close excepted.
type Conn struct {
	c       net.Conn
	r       *bufio.Reader
	tasks   task.Runner
	role    interop.Role
	timeout time.Duration
}

// New takes over a connection. timeout bounds the wait for one item where the
// peer is expected to answer at once; 0 means no bound. tasks is that of the
// device that the connection is for.
func New(c net.Conn, tasks task.Runner, role interop.Role, timeout time.Duration) *Conn {
	return &Conn{c: c, tasks: tasks, r: bufio.NewReaderSize(c, MaxItem), role: role, timeout: timeout}
}

// Role returns the side that this process takes.
func (c *Conn) Role() interop.Role { return c.role }

// Peer returns the peer's address.
func (c *Conn) Peer() net.Addr { return c.c.RemoteAddr() }

// Close closes the connection.
func (c *Conn) Close() error { return c.c.Close() }

// Write sends one item.
func (c *Conn) Write(ctx context.Context, step string, item []byte) error {
	defer c.arm(ctx, true)()
	if _, err := c.c.Write(item); err != nil {
		return fmt.Errorf("control connection: %s: send: %w", step, c.cause(ctx, err))
	}
	return nil
}

// Read receives one item of the size of b from a peer that should answer soon.
func (c *Conn) Read(ctx context.Context, step string, b []byte) error {
	return c.read(ctx, step, b, true)
}

// Await receives one item of the size of b from a peer that sends it once it
// is done with its work, which may take long.
func (c *Conn) Await(ctx context.Context, step string, b []byte) error {
	return c.read(ctx, step, b, false)
}

func (c *Conn) read(ctx context.Context, step string, b []byte, bounded bool) error {
	if len(b) > MaxItem {
		return fmt.Errorf("control connection: %s: an item of %d bytes is more than %d", step, len(b), MaxItem)
	}
	defer c.arm(ctx, bounded)()
	n, err := io.ReadFull(c.r, b)
	if refused := c.refused(b[:n:n]); refused != nil && c.role == interop.Client {
		return refused
	}
	if err != nil {
		return &interop.ProtocolError{
			Step: step, Got: b[:n:n], Want: fmt.Sprintf("%d bytes", len(b)), Err: c.cause(ctx, err),
		}
	}
	return nil
}

// Whole makes the error of an item that was read in two parts speak of the
// whole: b is the item, of which head bytes had come before.
func Whole(err error, b []byte, head int, want string) error {
	var pe *interop.ProtocolError
	if errors.As(err, &pe) {
		pe.Got, pe.Want = b[:head+len(pe.Got)], want
	}
	return err
}

// Peek waits for the first n bytes of the next item, which may take long. They
// stay for the next Read. If the connection ends before, the error wraps
// interop.ErrPeerClosed.
func (c *Conn) Peek(ctx context.Context, step string, n int) ([]byte, error) {
	defer c.arm(ctx, false)()
	b, err := c.r.Peek(n)
	if err != nil {
		return nil, &interop.ProtocolError{Step: step, Got: b, Want: fmt.Sprintf("%d bytes", n), Err: c.cause(ctx, err)}
	}
	return b, nil
}

// More reports whether the peer sends more within a time, without being
// answered.
func (c *Conn) More(ctx context.Context, within time.Duration) bool {
	defer c.arm(ctx, false)()
	c.c.SetReadDeadline(c.tasks.Now().Add(within))
	_, err := c.r.Peek(1)
	return err == nil
}

// Exchange sends mine and receives theirs, the client first.
func (c *Conn) Exchange(ctx context.Context, step string, mine, theirs []byte) error {
	return c.exchange(ctx, step, mine, theirs, true)
}

// Join is an Exchange for which the peer may take long.
func (c *Conn) Join(ctx context.Context, step string, mine, theirs []byte) error {
	return c.exchange(ctx, step, mine, theirs, false)
}

func (c *Conn) exchange(ctx context.Context, step string, mine, theirs []byte, bounded bool) error {
	if c.role == interop.Client {
		if err := c.Write(ctx, step, mine); err != nil {
			return err
		}
		return c.read(ctx, step, theirs, bounded)
	}
	if err := c.read(ctx, step, theirs, bounded); err != nil {
		return err
	}
	return c.Write(ctx, step, mine)
}

// arm sets the deadline of one step and lets ctx cut it short. The function
// that it returns takes both back.
func (c *Conn) arm(ctx context.Context, bounded bool) (disarm func()) {
	var deadline time.Time
	if bounded && c.timeout > 0 {
		deadline = c.tasks.Now().Add(c.timeout)
	}
	c.c.SetDeadline(deadline)
	done := c.tasks.NewEvent()
	stop := c.tasks.OnEnd(ctx, func() {
		c.c.SetDeadline(time.Unix(1, 0))
		done.Set()
	})
	return func() {
		if !stop() {
			done.Wait(context.Background()) // or its deadline would hit the next step
		}
		c.c.SetDeadline(time.Time{})
	}
}

// cause turns a connection's error into what the caller should read.
func (c *Conn) cause(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return interop.ErrPeerClosed
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return fmt.Errorf("%w (%v)", interop.ErrPeerClosed, err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("no answer within %v: %w", c.timeout, err)
	}
	return err
}

// Watch lets closed be called once if the peer ends the connection while the
// caller is busy elsewhere. Items that arrive meanwhile stay for the next
// Read; said, if not nil, is called once when the first is there. The function
// that Watch returns ends the watch; no other method may be called before.
func (c *Conn) Watch(closed func(error), said func()) (stop func()) {
	done := c.tasks.NewEvent()
	var mu sync.Mutex
	stopped := false
	c.tasks.Go(func() {
		defer done.Set()
		for n := 1; n <= MaxItem; n = c.r.Buffered() + 1 {
			if _, err := c.r.Peek(n); err != nil {
				mu.Lock()
				quiet := stopped
				mu.Unlock()
				if !quiet {
					closed(interop.ErrPeerClosed)
				}
				return
			}
			if said != nil {
				said()
				said = nil
			}
		}
	})
	return func() {
		mu.Lock()
		stopped = true
		mu.Unlock()
		c.c.SetReadDeadline(time.Unix(1, 0))
		done.Wait(context.Background())
		c.c.SetReadDeadline(time.Time{})
	}
}

// Finish ends a connection of which nothing more is wanted: it says so to the
// peer and waits, at most for limit, until the peer has ended it too. Bytes
// that still come are thrown away: closing over unread bytes would reset the
// connection under a peer that is still sending.
func (c *Conn) Finish(limit time.Duration) {
	if h, ok := c.c.(interface{ CloseWrite() error }); ok {
		h.CloseWrite()
		c.c.SetReadDeadline(c.tasks.Now().Add(limit))
		io.CopyN(io.Discard, c.r, 64<<10)
	}
	c.c.Close()
}
