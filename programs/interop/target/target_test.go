package target

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/internal/testpair"
	"github.com/gosoftroce/rocev2/programs/interop/perftest"
	"github.com/gosoftroce/rocev2/programs/interop/pingpong"
	"github.com/gosoftroce/rocev2/verbs"
)

// served is a running server.
type served struct {
	dev     *verbs.Device // of the clients
	dial    func() net.Conn
	clients chan Client
	end     func(error) error // ends it and returns what Serve returned
}

func start(t *testing.T, c Config) *served {
	t.Helper()
	a, b := testpair.Devices(t)
	ln, dial := testpair.Listener(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	s := &served{dev: b, dial: dial, clients: make(chan Client, 200)}
	c.OnClient = func(c Client) { s.clients <- c }
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, a, ln, c) }()
	s.end = func(why error) error {
		cancel(why)
		return <-done
	}
	return s
}

func (s *served) perftest(ctx context.Context, c perftest.Config) error {
	_, err := perftest.Run(ctx, s.dev, s.dial(), interop.Client, c)
	return err
}

func (s *served) pingpong(ctx context.Context, c pingpong.Config) error {
	_, err := pingpong.Run(ctx, s.dev, s.dial(), interop.Client, c)
	return err
}

// TestServesAll has one server serve every kind of client, one after the other,
// with some that speak another protocol in between.
func TestServesAll(t *testing.T) {
	t.Parallel()
	s := start(t, Config{})
	check := func(tool string, service interop.Service) Client {
		t.Helper()
		c := <-s.clients
		if c.Err != nil || c.Tool != tool || c.Service != service || c.Addr == nil || c.Elapsed <= 0 {
			t.Errorf("%+v; want %s over %v", c, tool, service)
		}
		return c
	}
	for _, test := range perftest.Tests {
		if err := s.perftest(t.Context(), perftest.Config{Test: test, Iterations: 30}); err != nil {
			t.Errorf("%v: %v", test, err)
		}
		if c := check(test.Tool(), interop.RC); !c.Own || c.Version == "" {
			t.Errorf("%+v", c)
		}
		stranger := s.dial()
		io.WriteString(stranger, "GET / HTTP/1.1\r\n\r\n")
		if text, _ := io.ReadAll(stranger); !strings.Contains(string(text), "HTTP") {
			t.Errorf("a browser reads %q", text)
		}
		if c := <-s.clients; c.Err == nil || c.Tool != "" {
			t.Errorf("a browser is %+v", c)
		}
	}
	if err := s.perftest(t.Context(), perftest.Config{Test: perftest.Tests[0], Service: interop.UD, Iterations: 30}); err != nil {
		t.Error(err)
	}
	check("ib_send_bw", interop.UD)
	for _, c := range []pingpong.Config{{Iterations: 30, Size: 300}, {Service: pingpong.SRQ, Iterations: 40}, {Service: pingpong.XRC}} {
		if err := s.pingpong(t.Context(), c); err != nil {
			t.Errorf("%v: %v", c.Service, err)
		}
		got := check(c.Service.Tool(), serviceOf[c.Service])
		if got.Messages == 0 || c.Size > 0 && got.Size != c.Size {
			t.Errorf("%+v", got)
		}
	}
	why := errors.New("enough")
	if err := s.end(why); !errors.Is(err, why) {
		t.Errorf("it ended with %v", err)
	}
}

// TestServesManyAtOnce runs clients side by side.
func TestServesManyAtOnce(t *testing.T) {
	t.Parallel()
	s := start(t, Config{})
	var wait sync.WaitGroup
	for i := range 12 {
		wait.Go(func() {
			var err error
			if i%3 == 0 {
				err = s.pingpong(t.Context(), pingpong.Config{Iterations: 20})
			} else {
				err = s.perftest(t.Context(), perftest.Config{Test: perftest.Tests[i%len(perftest.Tests)], Iterations: 20})
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	for range 12 {
		if c := <-s.clients; c.Err != nil {
			t.Errorf("%+v", c)
		}
	}
	s.end(nil)
}

// TestNamed serves what cannot be recognised on a port of its own.
func TestNamed(t *testing.T) {
	t.Parallel()
	test := perftest.Config{Test: perftest.Test{Verb: perftest.Write, Kind: perftest.Latency}, Size: 10000, Iterations: 10}
	pong := pingpong.Config{Service: pingpong.UC, Iterations: 10, Linger: -1}
	s := start(t, Config{Perftest: &test, Pingpong: &pong})
	if err := s.perftest(t.Context(), test); err != nil {
		t.Error(err)
	}
	if c := <-s.clients; c.Err != nil || c.Tool != "ib_write_lat" || c.Size != 10000 {
		t.Errorf("%+v", c)
	}
	if err := s.pingpong(t.Context(), pong); err != nil {
		t.Error(err)
	}
	if c := <-s.clients; c.Err != nil || c.Tool != "ibv_uc_pingpong" || c.Service != interop.UC {
		t.Errorf("%+v", c)
	}
	s.end(nil)
	s = start(t, Config{Service: interop.UD})
	if err := s.pingpong(t.Context(), pingpong.Config{Service: pingpong.UD, Iterations: 10}); err != nil {
		t.Error(err)
	}
	if c := <-s.clients; c.Err != nil || c.Tool != "ibv_ud_pingpong" {
		t.Errorf("%+v", c)
	}
	s.end(nil)
}

// TestCrowd: silent connections neither last nor keep others out, and served
// ones are bounded.
func TestCrowd(t *testing.T) {
	t.Parallel()
	s := start(t, Config{MaxClients: 1, HandshakeTimeout: time.Minute})
	for range maxSilent + 10 {
		s.dial()
	}
	for range 10 {
		if c := <-s.clients; !errors.Is(c.Err, errCrowded) {
			t.Errorf("%+v", c)
		}
	}
	first := s.dial()
	io.WriteString(first, "6.06\x00\x00\x00\x00") // half of its version
	if c := <-s.clients; !errors.Is(c.Err, errCrowded) {
		t.Errorf("%+v", c)
	}
	for refused := false; !refused; runtime.Gosched() { // until the first is being served
		second := s.dial()
		io.WriteString(second, "6.06\x00\x00\x00\x00")
		second.SetReadDeadline(time.Now().Add(time.Second))
		text, _ := io.ReadAll(second)
		refused = strings.Contains(string(text), "try again later")
		second.Close()
	}
	s.end(nil)
}

// TestOnBegin has the program learn which client is there, and refuse some.
func TestOnBegin(t *testing.T) {
	t.Parallel()
	refused := errors.New("not today")
	var why atomic.Pointer[error]
	began := make(chan net.Addr, 10)
	s := start(t, Config{OnBegin: func(a net.Addr) error {
		began <- a
		if w := why.Load(); w != nil {
			return *w
		}
		return nil
	}})
	if err := s.pingpong(t.Context(), pingpong.Config{Iterations: 5}); err != nil {
		t.Error(err)
	}
	a, c := <-began, <-s.clients
	if !c.Began || c.Addr.String() != a.String() || c.Err != nil {
		t.Errorf("%v: %+v", a, c)
	}
	why.Store(&refused)
	if err := s.pingpong(t.Context(), pingpong.Config{Iterations: 5}); err == nil || !strings.Contains(err.Error(), refused.Error()) {
		t.Errorf("the client learns %v", err)
	}
	if c := <-s.clients; c.Began || !errors.Is(c.Err, refused) || c.Tool != "" {
		t.Errorf("%+v", c)
	}
}

func TestBadConfig(t *testing.T) {
	t.Parallel()
	a, _ := testpair.Devices(t)
	for _, c := range []Config{
		{Service: interop.XRC}, {MaxClients: -1}, {MaxSize: -1},
		{Pingpong: &pingpong.Config{Size: -1}}, {Perftest: &perftest.Config{QPs: -1}},
	} {
		ln, _ := testpair.Listener(t)
		var bad *interop.ConfigError
		if err := Serve(t.Context(), a, ln, c); !errors.As(err, &bad) {
			t.Errorf("%+v: %v", c, err)
		}
		if _, err := ln.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("the listener is open: %v", err)
		}
	}
}
