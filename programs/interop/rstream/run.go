package rstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/internal/stream"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
)

// ErrMismatch is wrapped by the error of a side that has received other bytes
// than were to come.
var ErrMismatch = errors.New("data mismatch")

// Run runs the tests with a server, over dev.
func Run(ctx context.Context, dev *verbs.Device, server netip.AddrPort, c Config) ([]Result, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	var all []Result
	for i, tests := range c.series() {
		conn, err := stream.Dial(ctx, dev, server, c.options(i), c.IdleTimeout)
		if err == nil {
			var results []Result
			results, err = newSide(conn, &c, interop.Client).run(tests, func(r Result) { c.tell(server.Addr().String(), r) })
			all = append(all, results...)
			if closeErr := conn.Close(); err == nil {
				err = closeErr
			}
		}
		if err != nil {
			return all, fmt.Errorf("rstream: %w", interop.Cause(ctx, err))
		}
	}
	return all, nil
}

// Serve serves Config.Clients clients on a port of dev, or all until ctx ends.
func Serve(ctx context.Context, dev *verbs.Device, at netip.AddrPort, c Config) error {
	if err := c.Check(); err != nil {
		return err
	}
	s := newServer(c)
	srv := s.stream()
	srv.Clients, srv.Ready = c.Clients, c.OnListen
	if err := srv.Run(ctx, dev, at); err != nil {
		return fmt.Errorf("rstream: %w", err)
	}
	return nil
}

func (c *Config) tell(from string, r Result) {
	if c.OnResult != nil {
		c.OnResult(from, r)
	}
}

// server knows which clients have had their first series.
type server struct {
	cfg    Config
	series [][]Test

	mu   sync.Mutex
	next map[netip.Addr]int
}

func newServer(c Config) *server {
	return &server{cfg: c, series: c.series(), next: map[netip.Addr]int{}}
}

// stream returns what serves the connections.
func (s *server) stream() *stream.Server {
	return &stream.Server{
		Options: s.cfg.options(1), Idle: s.cfg.IdleTimeout, Serve: s.serve,
		Failed: func(from net.Addr, err error) {
			if s.cfg.OnFailed != nil {
				s.cfg.OnFailed(from.String(), err)
			}
		},
	}
}

// Server serves clients whose requests a listener of the program has taken, of
// a port that several services share. Its methods may be called from any
// goroutine.
type Server struct{ stream *stream.Server }

// NewServer makes a server. Config.Clients does not matter. The error is that
// of Config.Check.
func NewServer(c Config) (*Server, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	return &Server{newServer(c).stream()}, nil
}

// Greet is the cm.Greeter of such a listener.
func (s *Server) Greet(g *cm.Greeting) (cm.AcceptConfig, error) { return s.stream.Greet(g) }

// Handle serves the connection of one request, of which a client makes one for
// each series.
func (s *Server) Handle(ctx context.Context, r *cm.Request) error {
	if err := s.stream.Handle(ctx, r); err != nil {
		return fmt.Errorf("rstream: %w", interop.Cause(ctx, err))
	}
	return nil
}

// maxRemembered is of how many clients it is known.
const maxRemembered = 1024

func (s *server) serve(_ context.Context, conn *stream.Conn) (done bool, err error) {
	from := conn.RemoteAddr().(*cm.Addr).Addr()
	s.mu.Lock()
	series := s.next[from]
	delete(s.next, from)
	s.mu.Unlock()
	_, err = newSide(conn, &s.cfg, interop.Server).run(s.series[series], func(r Result) { s.cfg.tell(from.String(), r) })
	if err != nil {
		return false, err
	}
	if series++; series == len(s.series) {
		return true, nil
	}
	s.remember(from, series)
	return false, nil
}

// remember notes which series a client comes for next. It may never come, so
// another client is forgotten where there are many.
func (s *server) remember(from netip.Addr, series int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for other := range s.next {
		if len(s.next) < maxRemembered {
			break
		}
		delete(s.next, other)
	}
	s.next[from] = series
}

// side is one end of a connection.
type side struct {
	conn     *stream.Conn
	role     interop.Role
	verify   bool
	buf      []byte
	out, in  byte // the next of the pattern, each way
	received uint64
}

func newSide(conn *stream.Conn, c *Config, role interop.Role) *side {
	return &side{conn: conn, role: role, verify: c.Verify}
}

// run makes the tests.
func (s *side) run(tests []Test, tell func(Result)) ([]Result, error) {
	var results []Result
	for _, t := range tests {
		s.buf = make([]byte, max(t.Size, syncLen))
		r, err := s.test(t)
		if err != nil {
			return results, fmt.Errorf("%s: %w", t.Name, err)
		}
		results = append(results, r)
		tell(r)
	}
	return results, nil
}

// syncLen is how many bytes go each way before a test.
const syncLen = 16

func (s *side) test(t Test) (Result, error) {
	if err := s.exchange(1, syncLen); err != nil {
		return Result{}, fmt.Errorf("before the test: %w", err)
	}
	begin := time.Now()
	for range t.Iterations {
		if err := s.exchange(t.Count, t.Size); err != nil {
			return Result{}, err
		}
	}
	return Result{t, time.Since(begin)}, nil
}

// exchange has the client send count transfers, and then the server.
func (s *side) exchange(count, size int) error {
	steps := []func([]byte) error{s.receive, s.send}
	if s.role == interop.Client {
		steps[0], steps[1] = s.send, s.receive
	}
	for _, step := range steps {
		for range count {
			if err := step(s.buf[:size]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *side) send(p []byte) error {
	if s.verify {
		for i := range p {
			p[i] = s.out
			s.out++
		}
	}
	_, err := s.conn.Write(p)
	return err
}

func (s *side) receive(p []byte) error {
	n, err := io.ReadFull(s.conn, p)
	s.received += uint64(n)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w after %d bytes, %d were still to come: start both sides with the same flags", interop.ErrDisconnected, s.received, len(p)-n)
	}
	if err != nil || !s.verify {
		return err
	}
	for i, b := range p {
		if b != s.in {
			return fmt.Errorf("%w: byte %d is 0x%02x, expected 0x%02x: give -T v to both sides", ErrMismatch, s.received-uint64(len(p)-i), b, s.in)
		}
		s.in++
	}
	return nil
}
