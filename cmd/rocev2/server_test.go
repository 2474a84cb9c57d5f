package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// server is a command that waits for a client.
type server struct {
	addr, port string
	out        buffer
	errs       *waiting
	done       chan int
	cancel     context.CancelFunc
}

// serve starts a command as server.
func serve(t *testing.T, args string, more ...string) *server {
	t.Helper()
	s := &server{addr: freeAddress(), port: freePort(t), errs: &waiting{ready: make(chan struct{}), wrote: make(chan struct{}, 1)}, done: make(chan int, 1)}
	var ctx context.Context
	ctx, s.cancel = context.WithCancel(t.Context())
	argv := append(patient(strings.Fields(args)), "-d", s.addr, "-p", s.port)
	argv = append(argv, more...)
	go func() { s.done <- run(ctx, argv, streams{in: strings.NewReader(""), out: &s.out, err: s.errs}) }()
	select {
	case <-s.errs.ready:
	case code := <-s.done:
		t.Fatalf("the server ended with %d: %s", code, s.errs.String())
	}
	return s
}

// dial connects to the server as any client can.
func (s *server) dial(t *testing.T) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", net.JoinHostPort(s.addr, s.port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn)
}

// client runs the same command as client.
func (s *server) client(t *testing.T, args string) result {
	return invoke(t.Context(), append(patient(strings.Fields(args)), "-d", freeAddress(), "-p", s.port, "--timeout", "60s", s.addr)...)
}

func (s *server) result() result { return result{<-s.done, s.out.String(), s.errs.String()} }

// TestServerOutlivesBadClients connects to a server in all the ways of clients
// that do not speak its protocol, and then as one that does.
func TestServerOutlivesBadClients(t *testing.T) {
	t.Parallel()
	for name, args := range map[string]string{
		"pingpong": "pingpong -n 20", "perf": "perf write_bw -n 20", "latency": "perf send_lat -n 20",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, args, "--timeout", "60s")
			scan := s.dial(t) // a port scan, a health check
			scan.Close()
			reset := s.dial(t)
			reset.SetLinger(0)
			reset.Close()
			s.dial(t) // silent, and stays
			half := s.dial(t)
			half.CloseWrite()
			web := s.dial(t)
			io.WriteString(web, "GET / HTTP/1.1\r\nHost: there\r\n\r\n")
			answer, _ := io.ReadAll(web)
			if !bytes.HasPrefix(answer, []byte("rocev2: ")) || bytes.IndexByte(answer, '\n') != len(answer)-1 {
				t.Errorf("the HTTP client reads %q; expected a line that says why", answer)
			}
			slow := s.dial(t) // begins like the real thing
			io.WriteString(slow, map[string]string{"pingpong": "0000:00", "perf": "6.0", "latency": "6."}[name])

			c := s.client(t, args)
			r := s.result()
			if c.code != 0 || r.code != 0 {
				t.Fatalf("server %d: %s; client %d: %s", r.code, r.err, c.code, c.err)
			}
			for _, want := range []string{"client " + web.LocalAddr().String() + " refused", "HTTP client", "another client was first"} {
				if !strings.Contains(r.err, want) {
					t.Errorf("the server does not say %q:\n%s", want, r.err)
				}
			}
			if strings.Contains(r.err, "may be a server") {
				t.Errorf("the server takes a client for a server:\n%s", r.err)
			}
		})
	}
}

// TestWrongProgramIsNamed lets clients of one program come to servers of the
// other: both sides say so, and the server stays.
func TestWrongProgramIsNamed(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ server, wrong string }{
		{"pingpong -n 20", "perf write_bw -n 20"},
		{"perf write_bw -n 20", "pingpong -n 20"},
	} {
		t.Run(tt.server, func(t *testing.T) {
			t.Parallel()
			s := serve(t, tt.server, "--timeout", "60s")
			c := s.client(t, tt.wrong)
			if c.code != exitFailure || !strings.Contains(c.err, "the server refused") || !strings.Contains(c.err, "different programs") {
				t.Errorf("the wrong client ends with %d: %s", c.code, c.err)
			}
			if c := s.client(t, tt.server); c.code != 0 {
				t.Errorf("the right client ends with %d: %s", c.code, c.err)
			}
			if r := s.result(); r.code != 0 || !strings.Contains(r.err, "different programs") {
				t.Errorf("the server ends with %d: %s", r.code, r.err)
			}
		})
	}
}

// TestDifferentTestsAreNamed starts the two sides differently.
func TestDifferentTestsAreNamed(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ server, wrong, want string }{
		{"perf write_bw -n 20", "perf read_bw -n 20", "read_bw here, write_bw there"},
		{"perf send_bw -n 20", "perf send_bw -n 30", "iterations (-n): 30 here, 20 there"},
		{"perf send_bw -s 64", "perf send_bw -s 4K -q 2", "queue pairs (-q): 2 here, 1 there; message size in bytes (-s): 4096 here, 64 there"},
		{"perf write_bw -s 64", "perf write_bw -a", "message size in bytes (-s, -a): 8388608 here, 64 there"},
		{"perf read_bw -b", "perf read_bw", "both directions (-b): no here, yes there"},
	} {
		t.Run(tt.wrong, func(t *testing.T) {
			t.Parallel()
			s := serve(t, tt.server, "--timeout", "60s")
			if c := s.client(t, tt.wrong); c.code != exitFailure || !strings.Contains(c.err, tt.want) {
				t.Errorf("the client ends with %d: %s", c.code, c.err)
			} else {
				s.errs.await("the two sides run different tests") // the server says it too
			}
			s.cancel()
			s.result()
		})
	}
}

func TestServerListensOnItsDevice(t *testing.T) {
	t.Parallel()
	s := serve(t, "pingpong")
	other := net.JoinHostPort(freeAddress(), s.port)
	if c, err := net.Dial("tcp", other); err == nil {
		c.Close()
		t.Errorf("the server of %s is reached at %s", s.addr, other)
	}
	s.cancel()
	if r := s.result(); !strings.Contains(r.err, "waiting on TCP port "+s.port+" of "+s.addr) {
		t.Errorf("the server says %s", r.err)
	}
	any := serve(t, "pingpong", "--listen", "127.77.0.2")
	if c, err := net.Dial("tcp", net.JoinHostPort("127.77.0.2", any.port)); err != nil {
		t.Error(err)
	} else {
		c.Close()
	}
	any.cancel()
	any.result()
}

// TestThirdHostIsRefused plays a client that wants the traffic somewhere else.
func TestThirdHostIsRefused(t *testing.T) {
	t.Parallel()
	const foreign = "0000:000011:9a1b2c:00000000000000000000ffffc0000209\x00" // 192.0.2.9
	const here = "0000:000011:9a1b2c:00000000000000000000ffff7f4d0909\x00"    // 127.77.9.9
	s := serve(t, "pingpong -n 20", "--timeout", "60s")
	c := s.dial(t)
	io.WriteString(c, foreign)
	if answer, _ := io.ReadAll(c); !bytes.Contains(answer, []byte("192.0.2.9")) {
		t.Errorf("the client reads %q", answer)
	}
	if c := s.client(t, "pingpong -n 20"); c.code != 0 {
		t.Errorf("a true client ends with %d: %s", c.code, c.err)
	}
	if r := s.result(); r.code != 0 || !strings.Contains(r.err, "at 192.0.2.9, but its control connection is at 127.") || !strings.Contains(r.err, "--peer-gid") {
		t.Errorf("the server ends with %d: %s", r.code, r.err)
	}

	// Another address of this host is taken: its programs may have any.
	s = serve(t, "pingpong -n 20")
	c = s.dial(t)
	io.WriteString(c, here)
	answer := make([]byte, 52)
	if _, err := io.ReadFull(c, answer); err != nil || bytes.HasPrefix(answer, []byte("rocev2: ")) {
		t.Errorf("the client reads %q, %v", answer, err)
	}
	s.cancel()
	s.result()
}

// TestSilentClientEndsTheServer plays a client that is silent after the
// handshake.
func TestSilentClientEndsTheServer(t *testing.T) {
	t.Parallel()
	s := serve(t, "pingpong", "--peer-gid", "any", "--idle-timeout", "50ms")
	c := s.dial(t)
	io.WriteString(c, "0000:000011:9a1b2c:00000000000000000000ffff7f4d0909\x00")
	io.ReadFull(c, make([]byte, 52))
	io.WriteString(c, "done\x00")
	// Where "done" comes late, the handshake ends by the same limit.
	if r := s.result(); r.code != exitFailure || !strings.Contains(r.err, "no progress for 50ms") && !strings.Contains(r.err, "no answer within 50ms") {
		t.Errorf("the server ends with %d: %s", r.code, r.err)
	}
}

// TestInterruptAfterHandshake ends a server whose client holds it.
func TestInterruptAfterHandshake(t *testing.T) {
	t.Parallel()
	s := serve(t, "pingpong", "--peer-gid", "any")
	c := s.dial(t)
	io.WriteString(c, "0000:000011:9a1b2c:00000000000000000000ffff7f4d0909\x00")
	io.ReadFull(c, make([]byte, 52))
	io.WriteString(c, "done\x00")
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) { // the exchange is over
		t.Errorf("the client reads %v", err)
	}
	s.cancel()
	if r := s.result(); r.code != exitFailure || !strings.HasSuffix(r.err, "rocev2: interrupted\n") {
		t.Errorf("the server ends with %d: %s", r.code, r.err)
	}
}

// untilOutput is a stream that calls f when a text has been written.
type untilOutput struct {
	buffer
	text string
	once sync.Once
	f    func()
}

func (u *untilOutput) Write(p []byte) (int, error) {
	n, err := u.buffer.Write(p)
	if strings.Count(u.String(), u.text) >= 2 {
		u.once.Do(u.f)
	}
	return n, err
}

// TestRunInfinitely takes two results of a run without end, and ends it.
func TestRunInfinitely(t *testing.T) {
	t.Parallel()
	for _, test := range []string{"write_bw", "send_bw"} {
		t.Run(test, func(t *testing.T) {
			t.Parallel()
			args := "perf " + test + " --run_infinitely -D 0.1 -s 1024"
			s := serve(t, args, "--timeout", "60s")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			out := &untilOutput{text: "\n 1024 ", f: cancel}
			var errs buffer
			code := run(ctx, append(strings.Fields(args), "-d", freeAddress(), "-p", s.port, s.addr), streams{out: out, err: &errs})
			if code != 0 {
				t.Errorf("the client ends with %d: %s", code, errs.String())
			}
			if r := s.result(); r.code != 0 {
				t.Errorf("the server ends with %d: %s", r.code, r.err)
			}
		})
	}
}
