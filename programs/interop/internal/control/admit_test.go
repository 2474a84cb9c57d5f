package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/hca/task"
	"github.com/gosoftroce/rocev2/programs/interop"
)

// greetHello admits a client that says "hello".
func greetHello(ctx context.Context, c *Conn) (string, error) {
	b := make([]byte, 5)
	if err := c.Read(ctx, "greeting", b); err != nil {
		return "", err
	}
	if string(b) != "hello" {
		return "", &interop.ProtocolError{Step: "greeting", Got: b, Want: "hello"}
	}
	return string(b), nil
}

// admitted is how Admit ended.
type admitted struct {
	conn  *Conn
	value string
	err   error
}

// lobby is a running Admit.
type lobby struct {
	ln      net.Listener
	refused chan error
	done    chan admitted
}

func admit(t *testing.T, ctx context.Context, limit time.Duration) *lobby {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &lobby{ln: ln, refused: make(chan error, 1000), done: make(chan admitted, 1)}
	a := Admission{Timeout: limit, Refused: func(from net.Addr, why error) { l.refused <- why }}
	go func() {
		c, v, err := Admit(ctx, ln, a, greetHello)
		l.done <- admitted{c, v, err}
	}()
	return l
}

func (l *lobby) dial(t *testing.T) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", l.ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestAdmitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	l := admit(t, ctx, 0)
	silent := l.dial(t)
	cancel(why)
	if got := <-l.done; !errors.Is(got.err, why) {
		t.Errorf("error is %v, expected the cause of the context", got.err)
	}
	// Not by dialling: another process may have got the port meanwhile.
	if _, err := l.ln.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("error is %v; expected the listener to be closed", err)
	}
	io.Copy(io.Discard, silent) // ends with the connection
}

func TestAdmitRefusesByTime(t *testing.T) {
	t.Parallel()
	l := admit(t, t.Context(), 20*time.Millisecond)
	c := l.dial(t)
	if why := <-l.refused; !strings.Contains(why.Error(), "within 20ms") {
		t.Errorf("a silent client is refused with %v", why)
	}
	if b, _ := io.ReadAll(c); !strings.HasPrefix(string(b), refusal) {
		t.Errorf("the client reads %q", b)
	}
}

// TestAdmitInACrowd checks that silent clients beyond a limit drive out each
// other, and not the one that speaks.
func TestAdmitInACrowd(t *testing.T) {
	t.Parallel()
	const more = 10
	l := admit(t, t.Context(), 0)
	for range maxCandidates + more {
		l.dial(t)
	}
	for range more {
		if why := <-l.refused; !errors.Is(why, errCrowded) {
			t.Errorf("refused with %v, expected %v", why, errCrowded)
		}
	}
	c := l.dial(t)
	if _, err := io.WriteString(c, "hello"); err != nil {
		t.Fatal(err)
	}
	got := <-l.done
	if got.err != nil || got.value != "hello" || got.conn.Peer().String() != c.LocalAddr().String() {
		t.Fatalf("admitted %v, %q, %v; expected %v", got.conn.Peer(), got.value, got.err, c.LocalAddr())
	}
	defer got.conn.Close()
	// The connection is as it was: no deadline of the greeting is left.
	io.WriteString(c, "again")
	b := make([]byte, 5)
	if err := got.conn.Await(t.Context(), "more", b); err != nil || string(b) != "again" {
		t.Errorf("read %q, %v", b, err)
	}
}

func TestRefusalIsRead(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, 4, 5, 16, 52} { // items of the protocols
		for _, why := range []string{"no", strings.Repeat("long ", 500), "bad \x1b[31m\x00 text"} {
			client, server := net.Pipe()
			go New(server, task.Runner{}, interop.Server, 0).refuse(errors.New(why), true)
			err := New(client, task.Runner{}, interop.Client, 0).Read(t.Context(), "item", make([]byte, n))
			var r *interop.RefusedError
			if !errors.As(err, &r) || len(r.Why) > maxRefusal || strings.ContainsAny(r.Why, "\x1b\x00\n") || !strings.HasPrefix(r.Why, why[:2]) {
				t.Errorf("an item of %d bytes: %v", n, err)
			}
			client.Close()
		}
	}
}

// flaky is a listener whose system runs out of files now and then.
type flaky struct {
	net.Listener
	fails int
}

func (f *flaky) Accept() (net.Conn, error) {
	if f.fails > 0 {
		f.fails--
		return nil, fmt.Errorf("accept: %w", syscall.EMFILE)
	}
	return f.Listener.Accept()
}

func TestAdmitOutlivesAShortage(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		c, _, err := Admit(t.Context(), &flaky{ln, 2}, Admission{}, greetHello)
		if err == nil {
			c.Close()
		}
		done <- err
	}()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "hello")
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// pipes is a listener with connections that are there already.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	select {
	case <-p.closed:
	default:
		close(p.closed)
	}
	return nil
}

func (p *pipes) Addr() net.Addr { return nil }

// TestAdmitEndsWhileRefusing: where the context ends while a client is refused,
// its cause is told, and not that the listener is closed therefore.
func TestAdmitEndsWhileRefusing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ln := &pipes{conns: make(chan net.Conn, 1), closed: make(chan struct{})}
		here, there := net.Pipe()
		ln.conns <- here
		there.Close()
		why := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		a := Admission{Refused: func(net.Addr, error) {
			cancel(why)
			synctest.Wait() // until the listener is closed, and says so
		}}
		if _, _, err := Admit(ctx, ln, a, greetHello); !errors.Is(err, why) {
			t.Errorf("got %v, want %v", err, why)
		}
	})
}
