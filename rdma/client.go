package rdma

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/gosoftroce/rocev2/internal/devices"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
)

// ErrUnknownOutcome: whether an operation of a Client was carried out is not
// known, because the connection or the context has ended meanwhile.
var ErrUnknownOutcome = errors.New("rdma: it is not known what was carried out")

// Pauses between the dials of a Client.
const (
	minPause = 50 * time.Millisecond

	defaultMaxPause = 5 * time.Second
)

// Client has a connection to a server that may end and come back: it dials
// when there is something to do, and again when the connection has ended.
//
//	client := rdma.Client{Addr: "192.0.2.1:7471"}
//	defer client.Close()
//	err := client.Do(ctx, func(c *rdma.Conn) error {
//		if err := c.Send(ctx, order); err != nil {
//			return err
//		}
//		return c.Flush(ctx) // the peer's device has it
//	})
//	if errors.Is(err, rdma.ErrUnknownOutcome) {
//		// ask the server whether it has the order
//	}
//
// When a connection ends, no side can tell in general which of the operations
// that were under way the peer has carried out. A Client does not guess. Do
// calls a function once, and its error says whether the outcome is known.
// Repeat calls it again, for functions that may be carried out twice: a READ, a
// WRITE of the same bytes to a place that no other program writes, a request
// with a number by which the server knows it. A fetch-and-add or a
// compare-and-swap is not one.
//
// What belongs to a connection ends with it. So functions look regions up anew
// (Conn.Region, one round trip), and use keys of the peer only with the
// connection that has brought them.
//
// The methods may be called from any goroutine. The calls share the connection:
// a function that sends a message and receives the answer runs alone, by a lock
// of the program. A Client must not be copied after its first use, and its
// fields do not change then.
type Client struct {
	// Addr is the address of the server, as for Dial.
	Addr string

	// Dialer says how connections are made. While there is no server, a
	// Client waits in any case, as long as the context allows.
	Dialer Dialer

	// MaxPause bounds the pauses between two dials. They begin with 50 ms
	// and double until there is a success. Half of each is random, so that
	// the clients of a server that comes back do not dial all at once. 0
	// means 5 s.
	MaxPause time.Duration

	// OnConnect, if set, is called with each new connection before it is
	// used: to log in, for example. With its error the connection is
	// closed. If it has ended by itself meanwhile the Client dials again;
	// else Do and Repeat return the error.
	OnConnect func(context.Context, *Conn) error

	mu     sync.Mutex
	now    *session           // nil: there is none
	dial   chan struct{}      // closed when the dial that is under way is over; or nil
	cancel context.CancelFunc // of that dial
	closed bool
	pause  time.Duration // the last one between two dials
	next   time.Time     // no dial before
}

// session is a connection of a Client, which is closed when another one has
// taken its place and no call uses it any more.
type session struct {
	conn  *Conn
	users int
}

// Do calls f once, with a connection. It dials first where there is none that
// is usable, and waits for a server as long as ctx allows.
//
// If the error wraps ErrUnknownOutcome, f has failed because the connection or
// a context has ended: something of what it did may have been carried out. Any
// other error is that of f over a connection that goes on, or says why there is
// no connection; f was not called then.
func (c *Client) Do(ctx context.Context, f func(*Conn) error) error {
	s, err := c.session(ctx)
	if err != nil {
		return err
	}
	_, err = c.call(s, f)
	return err
}

// Repeat is Do, and calls f again, with a new connection, as often as the peer
// closes the connection or does not answer any more. So f may be carried out
// several times. The other errors are returned as those of Do.
func (c *Client) Repeat(ctx context.Context, f func(*Conn) error) error {
	var unknown error // of the call before
	for {
		s, err := c.session(ctx)
		if err != nil {
			if unknown != nil {
				err = fmt.Errorf("%w; then: %w", unknown, err)
			}
			return err
		}
		lost, err := c.call(s, f)
		if !lost || ctx.Err() != nil {
			return err
		}
		unknown = err
	}
}

// Close closes the connection. Calls that are under way end with errors for
// which errors.Is(err, net.ErrClosed) holds, and so do later ones.
func (c *Client) Close() error {
	c.mu.Lock()
	s := c.now
	c.now, c.closed = nil, true
	if c.cancel != nil {
		c.cancel()
	}
	c.mu.Unlock()
	if s == nil {
		return nil
	}
	return s.conn.Close()
}

// call calls f. lost reports that it has failed, and that the peer has closed
// the connection or does not answer any more.
func (c *Client) call(s *session, f func(*Conn) error) (lost bool, err error) {
	defer c.release(s)
	if err = f(s.conn); err == nil {
		c.mu.Lock()
		c.pause, c.next = 0, time.Time{}
		c.mu.Unlock()
		return false, nil
	}
	why := s.conn.Err()
	if why != nil || cutShort(err) {
		err = fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
	}
	return byPeer(why), err
}

// cutShort reports whether the error is that of an operation that was under way
// when a context or the connection has ended.
func cutShort(err error) bool {
	var wc *verbs.WCError
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, net.ErrClosed) || errors.As(err, &wc)
}

// byPeer reports whether a connection is over because of the peer, for a reason
// that another connection may not have.
func byPeer(why error) bool { return errors.Is(why, ErrPeerClosed) || errors.Is(why, ErrPeerGone) }

// session returns the connection, for release.
func (c *Client) session(ctx context.Context) (*session, error) {
	for {
		c.mu.Lock()
		s, dial := c.now, c.dial
		switch {
		case c.closed:
			c.mu.Unlock()
			return nil, c.failed(errClosed)
		case s != nil && s.conn.Err() == nil:
			s.users++
			c.mu.Unlock()
			return s, nil
		case dial == nil:
			return c.connectUnlock(ctx)
		}
		c.mu.Unlock()
		select {
		case <-dial:
		case <-ctx.Done():
			return nil, c.failed(context.Cause(ctx))
		}
	}
}

func (c *Client) release(s *session) {
	c.mu.Lock()
	s.users--
	over := s.users == 0 && s != c.now
	c.mu.Unlock()
	if over {
		s.conn.Close()
	}
}

// connectUnlock puts a new connection in the place of the one that is over. The
// lock is held when it is called, and is not when it returns.
func (c *Client) connectUnlock(ctx context.Context) (*session, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	dial, old := make(chan struct{}), c.now
	c.dial, c.cancel, c.now = dial, cancel, nil
	unused := old != nil && old.users == 0
	c.mu.Unlock()
	if unused {
		old.conn.Close()
	}
	conn, err := c.connect(ctx)
	c.mu.Lock()
	c.dial, c.cancel = nil, nil
	close(dial)
	closed := c.closed
	if err == nil && !closed {
		c.now = &session{conn, 1}
	}
	made := c.now
	c.mu.Unlock()
	switch {
	case closed:
		if err == nil {
			conn.Close() // it waits: not under the lock
		}
		return nil, c.failed(errClosed)
	case err != nil:
		return nil, err
	}
	return made, nil
}

// connect dials until there is a connection, or an error that does not go away
// by itself. Only one call at a time runs.
func (c *Client) connect(ctx context.Context) (*Conn, error) {
	d := c.Dialer
	d.WaitForServer = false // the pauses are this side's
	var last error
	for {
		if err := c.wait(ctx); err != nil {
			if last != nil {
				err = fmt.Errorf("waited for the server: %w: %w", err, last)
			}
			return nil, c.failed(err)
		}
		conn, err := d.Dial(ctx, c.Addr)
		again := absent(err) || byPeer(err) // it has ended in a handshake
		if err == nil && c.OnConnect != nil {
			if err = c.OnConnect(ctx, conn); err != nil {
				again = byPeer(conn.Err())
				conn.Close()
			}
		}
		if err == nil {
			return conn, nil
		}
		if !again {
			return nil, err
		}
		last = err
	}
}

// absent reports whether a dial has failed because there is no server, or
// because it has no room now.
func absent(err error) bool {
	var r *RejectedError
	return devices.Absent(err) || errors.As(err, &r) && r.Reason == cm.ReasonNoResources
}

// wait waits until the next dial is due, and says when the one after it is.
func (c *Client) wait(ctx context.Context) error {
	c.mu.Lock()
	left := time.Until(c.next)
	c.mu.Unlock()
	if left > 0 {
		t := time.NewTimer(left)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	most := c.MaxPause
	if most <= 0 {
		most = defaultMaxPause
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pause = min(max(2*c.pause, minPause), most)
	c.next = time.Now().Add(c.pause/2 + rand.N(c.pause/2+1))
	return nil
}

func (c *Client) failed(err error) error { return &OpError{Op: "connect to " + c.Addr, Err: err} }
