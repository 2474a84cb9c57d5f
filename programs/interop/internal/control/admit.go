package control

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gosoftroce/rocev2/hca/task"
	"github.com/gosoftroce/rocev2/programs/interop"
)

// Admission says how a server chooses its client.
type Admission struct {
	// Tasks is that of the device that the client is for.
	Tasks task.Runner
	// Timeout bounds the whole greeting of one client; 0 means no bound.
	Timeout time.Duration
	// Refused, if set, is told of every client that is not admitted, one
	// after the other.
	Refused func(from net.Addr, why error)
}

// maxCandidates is how many clients may be in their greeting at a time. When
// there are more, the oldest has to go: a real client says at once what it has
// to say.
const maxCandidates = 64

// refusalLimit bounds the wait for a refused client to read why.
const refusalLimit = 250 * time.Millisecond

var (
	errCrowded = errors.New("it was silent while many others came")
	errServed  = errors.New("another client was first")
)

// Admit accepts clients until one passes greet. That speaks with a client until
// it knows whether to serve it. All clients are greeted at the same time, so
// that a silent one delays no other. Admit closes the listener and all other
// connections.
func Admit[T any](ctx context.Context, ln net.Listener, a Admission, greet func(context.Context, *Conn) (T, error)) (*Conn, T, error) {
	defer ln.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	g := greeter[T]{greet: greet, news: task.NewQueue[news[T]](a.Tasks)}
	defer g.close(ctx, a.Tasks)
	defer cancel(errServed)
	defer a.Tasks.OnEnd(ctx, func() { ln.Close() })()
	a.Tasks.Go(func() { g.accept(ctx, a.Tasks, ln) })

	var none T
	var list []*candidate // oldest first
	for {
		n, err := g.news.Take(ctx)
		switch in, o := n.arrival, n.outcome; {
		case err != nil:
			return nil, none, fmt.Errorf("wait for a client: %w", err)
		case in != nil:
			in.taken.Set()
			if in.err != nil {
				if ctx.Err() != nil { // therefore the listener is closed
					in.err = context.Cause(ctx)
				}
				return nil, none, fmt.Errorf("wait for a client: %w", in.err)
			}
			if n := len(list) - maxCandidates; n >= 0 {
				list[n].cancel(errCrowded) // those before it are on their way
			}
			c := newCandidate(ctx, in.conn, &a)
			list = append(list, c)
			g.open.Add(1)
			a.Tasks.Go(func() { g.run(ctx, c) })
		default:
			list = slices.DeleteFunc(list, func(c *candidate) bool { return c == o.from })
			if o.err == nil {
				for _, c := range list {
					a.refused(c.conn, errServed)
				}
				return o.from.conn, o.value, nil
			}
			a.refused(o.from.conn, o.err)
		}
	}
}

// greeter greets candidates, each on a goroutine of its own.
type greeter[T any] struct {
	greet func(context.Context, *Conn) (T, error)
	news  *task.Queue[news[T]]
	open  atomic.Int32 // goroutines
}

// news is what Admit learns: one of the two.
type news[T any] struct {
	arrival *arrival
	outcome *outcome[T]
}

// outcome is what came of a greeting.
type outcome[T any] struct {
	from  *candidate
	value T
	err   error
}

// run greets c and refuses it if that fails, or if ctx ends first.
func (g *greeter[T]) run(ctx context.Context, c *candidate) {
	defer g.open.Add(-1)
	v, err := g.greet(c.ctx, c.conn)
	if !g.news.Put(news[T]{outcome: &outcome[T]{c, v, err}}) {
		err = context.Cause(ctx)
	}
	if err != nil {
		c.conn.refuse(err, g.open.Load() <= maxCandidates/2)
	}
	c.cancel(nil)
}

// close refuses those whose news has not been taken. ctx is that of Admit.
func (g *greeter[T]) close(ctx context.Context, tasks task.Runner) {
	for _, n := range g.news.Close() {
		if n.arrival != nil && n.arrival.err == nil {
			n.arrival.conn.Close()
		}
		if o := n.outcome; o != nil && o.err == nil {
			tasks.Go(func() { o.from.conn.refuse(context.Cause(ctx), true) })
		}
	}
}

func (a *Admission) refused(c *Conn, why error) {
	if a.Refused != nil {
		a.Refused(c.c.RemoteAddr(), why)
	}
}

// candidate is a client in its greeting.
type candidate struct {
	conn   *Conn
	ctx    context.Context
	cancel context.CancelCauseFunc
}

func newCandidate(ctx context.Context, c net.Conn, a *Admission) *candidate {
	limit := a.Timeout
	n := &candidate{conn: New(c, a.Tasks, interop.Server, limit)}
	n.ctx, n.cancel = context.WithCancelCause(ctx)
	if limit > 0 {
		var stop context.CancelFunc
		n.ctx, stop = a.Tasks.WithTimeoutCause(n.ctx, limit, fmt.Errorf("it did not say within %v what it wants", limit))
		cancel := n.cancel
		n.cancel = func(err error) { cancel(err); stop() }
	}
	return n
}

type arrival struct {
	conn  net.Conn
	err   error
	taken *task.Event // by Admit: only then the next one is accepted
}

// acceptPause is the wait after the system had no room for a connection.
const acceptPause = 50 * time.Millisecond

// accept hands connections over until ctx ends or the listener fails.
func (g *greeter[T]) accept(ctx context.Context, tasks task.Runner, ln net.Listener) {
	for {
		conn, err := ln.Accept()
		if Shortage(err) {
			if tasks.Sleep(ctx, acceptPause) != nil {
				return
			}
			continue
		}
		in := &arrival{conn, err, tasks.NewEvent()}
		if !g.news.Put(news[T]{arrival: in}) && err == nil {
			conn.Close()
		}
		if err != nil || in.taken.Wait(ctx) != nil {
			return
		}
	}
}

// Shortage reports whether a failure of accept passes by itself: too many open
// files, too little memory, or a client that left before it was accepted.
func Shortage(err error) bool {
	for _, e := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// refusal begins what a server says to a client that it does not take. No item
// of the protocols begins so.
const refusal = "rocev2: "

// maxRefusal is the longest refusal, end of line included.
const maxRefusal = 512

// Refuse closes the connection and tells the client why. It waits a moment for
// the client to read that.
func (c *Conn) Refuse(why error) { c.refuse(why, true) }

// refuse closes the connection and tells the client why, if there is time.
func (c *Conn) refuse(why error, tell bool) {
	if tell && !errors.Is(why, interop.ErrPeerClosed) {
		text := append([]byte(refusal), printable([]byte(why.Error()), maxRefusal-len(refusal)-1)...)
		c.c.SetDeadline(c.tasks.Now().Add(refusalLimit))
		if _, err := c.c.Write(append(text, '\n')); err == nil {
			c.Finish(refusalLimit)
		}
	}
	c.c.Close()
}

// refused returns nil if what came of an item does not begin a refusal. Else it
// reads the rest and returns the refusal.
func (c *Conn) refused(got []byte) error {
	if n := min(len(got), len(refusal)); n < 2 || string(got[:n]) != refusal[:n] {
		return nil
	}
	c.c.SetReadDeadline(c.tasks.Now().Add(time.Second))
	for len(got) < maxRefusal && got[len(got)-1] != '\n' {
		b, err := c.r.ReadByte()
		if err != nil {
			break
		}
		got = append(got, b)
	}
	text, ok := bytes.CutPrefix(got, []byte(refusal))
	if !ok {
		return nil
	}
	return &interop.RefusedError{Why: string(printable(bytes.TrimSpace(text), maxRefusal))}
}

// printable returns at most n bytes of text with nothing in it that could
// control a terminal.
func printable(text []byte, n int) []byte {
	text = text[:min(len(text), n)]
	return bytes.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, text)
}
