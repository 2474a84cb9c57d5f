// Package target is a server that recognises its client: on one TCP port it
// serves the ping-pongs of rdma-core and the clients of perftest, all tests,
// one after the other and side by side, for ever. It need not be told what
// comes.
//
// The first bytes say which of the two a client is. What then shows by itself,
// and what does not, is said at pingpong.Answer and perftest.Answer. Clients of
// this software say what they run. The originals do not say their transport
// service: a port serves one, RC unless Config says another. What cannot be
// recognised gets a port of its own, with the test by name: Config.Pingpong and
// Config.Perftest.
package target

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/gosoftroce/rocev2/hca/task"
	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/internal/control"
	"github.com/gosoftroce/rocev2/programs/interop/perftest"
	"github.com/gosoftroce/rocev2/programs/interop/pingpong"
	"github.com/gosoftroce/rocev2/verbs"
)

// Config says how clients are served. The zero value recognises them.
type Config struct {
	// Service is the transport service of clients that do not say theirs:
	// RC, UC or UD.
	Service interop.Service
	MaxSize int // bytes of the largest message; 0 means the defaults of pingpong and perftest

	// Pingpong and Perftest, if set, say what every client of that kind
	// runs: nothing is recognised.
	Pingpong *pingpong.Config
	Perftest *perftest.Config

	Peers      interop.Peers // which address a client may name
	MaxClients int           // served at a time; 0 means 64

	// HandshakeTimeout bounds the wait for each step of a client that
	// should come at once; 0 means 30 s.
	HandshakeTimeout time.Duration
	// IdleTimeout ends a client that does nothing for so long; 0 means 60
	// s.
	IdleTimeout time.Duration

	// OnBegin, if set, is asked about every client that has said what it
	// is, before it is served. Its error refuses the client, which is told
	// so. Calls come from several goroutines.
	OnBegin func(net.Addr) error
	// OnClient, if set, is told of every client when it is done, or
	// refused. Calls come from several goroutines. Of one that OnBegin has
	// let in, Client.Began is true, and Client.Addr is the very value that
	// OnBegin was given. The text of an address may be that of two clients
	// at a time.
	OnClient func(Client)
}

// Client is what came of a client.
type Client struct {
	Addr     net.Addr
	Began    bool // OnBegin has let it in
	Started  time.Time
	Elapsed  time.Duration
	Tool     string          // that it was taken for: "ib_write_bw", "ibv_rc_pingpong"; "" if it was none
	Version  string          // that a client of perftest has announced
	Own      bool            // it is this software, and has said what it runs
	Service  interop.Service // transport service
	QPs      int             // queue pairs; 0 if not known
	Size     int             // bytes of a message; 0 if not known
	Messages uint64          // sent and received, or reported
	Gbps     float64         // rate in 10^9 bits a second; 0 if not known
	Err      error           // why it failed, or was refused
}

// Limits of a server.
const (
	defaultClients   = 64
	defaultHandshake = 30 * time.Second

	// maxSilent is how many connections may have said nothing yet. When
	// there are more, the oldest has to go: a real client speaks at once.
	maxSilent = 64

	acceptPause = 50 * time.Millisecond
)

var (
	errCrowded = errors.New("it was silent while many others came")
	errFull    = errors.New("too many clients are being served: try again later")
)

// Serve serves the clients of ln until ctx ends or the listener fails, and
// returns why. It closes ln, and returns when all clients are gone. Before it
// begins it checks the configuration: the error is an *interop.ConfigError
// then.
func Serve(ctx context.Context, dev *verbs.Device, ln net.Listener, c Config) error {
	defer ln.Close()
	c.MaxClients, c.HandshakeTimeout = cmp.Or(c.MaxClients, defaultClients), cmp.Or(c.HandshakeTimeout, defaultHandshake)
	if err := c.check(dev); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	s := &server{dev: dev, cfg: c}
	defer s.wait.Wait()
	defer cancel(net.ErrClosed)
	defer context.AfterFunc(ctx, func() { ln.Close() })()
	for {
		conn, err := ln.Accept()
		switch {
		case err == nil:
			s.wait.Add(1)
			go s.serve(ctx, conn)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case control.Shortage(err):
			select {
			case <-time.After(acceptPause):
			case <-ctx.Done():
			}
		default:
			return fmt.Errorf("target: wait for clients: %w", err)
		}
	}
}

func (c *Config) check(dev *verbs.Device) error {
	if c.Service > interop.UD {
		return interop.BadConfig("target: clients that do not say their transport service run RC, UC or UD, not %v", c.Service)
	}
	if c.MaxClients < 0 || c.MaxSize < 0 || c.MaxSize > perftest.MaxSize {
		return interop.BadConfig("target: %d clients and messages of %d bytes at most: a limit is positive, and of messages at most %d bytes", c.MaxClients, c.MaxSize, perftest.MaxSize)
	}
	if c.Pingpong != nil {
		if err := c.Pingpong.Check(dev); err != nil {
			return err
		}
	}
	if c.Perftest != nil {
		return c.Perftest.Check(dev)
	}
	return nil
}

type server struct {
	dev  *verbs.Device
	cfg  Config
	wait sync.WaitGroup

	mu     sync.Mutex
	silent []net.Conn // have said nothing, the oldest first
	served int
}

// serve serves one client from its first byte to its last.
func (s *server) serve(ctx context.Context, conn net.Conn) {
	defer s.wait.Done()
	defer conn.Close()
	client := Client{Addr: conn.RemoteAddr(), Started: time.Now()}
	defer func() {
		client.Elapsed = time.Since(client.Started)
		if ctx.Err() != nil && errors.Is(client.Err, verbs.ErrClosed) {
			client.Err = context.Cause(ctx) // the device was closed because of that
		}
		if s.cfg.OnClient != nil {
			s.cfg.OnClient(client)
		}
	}()
	whole, head, err := s.listen(ctx, conn)
	if err != nil {
		client.Err = err
		return
	}
	if !s.admit() {
		client.Err = errFull
		control.New(whole, task.Runner{}, interop.Server, 0).Refuse(errFull)
		return
	}
	defer s.release()
	if s.cfg.OnBegin != nil {
		if client.Err = s.cfg.OnBegin(client.Addr); client.Err != nil {
			control.New(whole, task.Runner{}, interop.Server, 0).Refuse(client.Err)
			return
		}
		client.Began = true
	}
	switch {
	case bytes.Contains(head[:4], []byte{'.'}):
		s.perftest(ctx, whole, &client)
	case head[4] == ':':
		s.pingpong(ctx, whole, &client)
	default:
		client.Err = &interop.ProtocolError{Step: "first words", Got: head, Want: "those of ibv_rc_pingpong and its like, or of perftest"}
		control.New(whole, task.Runner{}, interop.Server, 0).Refuse(client.Err)
	}
}

// headLen is how many bytes tell the protocols from each other.
const headLen = 5

// listen waits for the first bytes of a client. They stay to be read.
func (s *server) listen(ctx context.Context, conn net.Conn) (net.Conn, []byte, error) {
	s.mu.Lock()
	s.silent = append(s.silent, conn)
	if len(s.silent) > maxSilent {
		s.silent[0].Close()
		s.silent = s.silent[1:]
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.silent = slices.DeleteFunc(s.silent, func(c net.Conn) bool { return c == conn })
		s.mu.Unlock()
	}()
	p := &peeked{Conn: conn, r: bufio.NewReader(conn)}
	conn.SetReadDeadline(time.Now().Add(s.cfg.HandshakeTimeout))
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	head, err := p.r.Peek(headLen)
	stop()
	switch {
	case ctx.Err() != nil:
		return nil, nil, context.Cause(ctx)
	case errors.Is(err, net.ErrClosed):
		return nil, nil, errCrowded
	case err != nil:
		return nil, nil, fmt.Errorf("it did not say what it wants: %w", err)
	}
	return p, head, conn.SetReadDeadline(time.Time{})
}

func (s *server) admit() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.served >= s.cfg.MaxClients {
		return false
	}
	s.served++
	return true
}

func (s *server) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.served--
}

func (s *server) perftest(ctx context.Context, conn net.Conn, client *Client) {
	client.Tool = "perftest"
	var list []perftest.Result
	if c := s.cfg.Perftest; c != nil {
		cfg := *c
		cfg.Peers = s.cfg.Peers
		client.Tool, client.Service = cfg.Test.Tool(), cfg.Service
		list, client.Err = perftest.Run(ctx, s.dev, conn, interop.Server, cfg)
	} else {
		a, err := perftest.Answer(ctx, s.dev, conn, perftest.AnswerConfig{
			Service: s.cfg.Service, MaxSize: s.cfg.MaxSize, Peers: s.cfg.Peers,
			HandshakeTimeout: s.cfg.HandshakeTimeout, IdleTimeout: s.cfg.IdleTimeout,
		})
		client.Err, client.Version, client.Own, list = err, a.Version, a.Own, a.Results
		if client.Service = s.cfg.Service; err == nil || a.Own {
			client.Tool = a.Test.Tool()
		}
	}
	if len(list) > 0 {
		r := list[len(list)-1]
		client.Service, client.QPs, client.Size, client.Messages, client.Gbps = r.Service, r.QPs, r.Size, r.Iterations, r.Gbps()
	}
}

// pingpongOf is the ping-pong of a transport service.
var pingpongOf = map[interop.Service]pingpong.Service{interop.RC: pingpong.RC, interop.UC: pingpong.UC, interop.UD: pingpong.UD}

// serviceOf is the transport service of a ping-pong.
var serviceOf = map[pingpong.Service]interop.Service{
	pingpong.RC: interop.RC, pingpong.SRQ: interop.RC, pingpong.UC: interop.UC, pingpong.UD: interop.UD, pingpong.XRC: interop.XRC,
}

func (s *server) pingpong(ctx context.Context, conn net.Conn, client *Client) {
	client.Tool = "pingpong"
	var r pingpong.Result
	service := pingpongOf[s.cfg.Service]
	if c := s.cfg.Pingpong; c != nil {
		cfg := *c
		cfg.Peers = s.cfg.Peers
		service, client.QPs, client.Size = cfg.Service, cfg.QPs, cfg.Size
		r, client.Err = pingpong.Run(ctx, s.dev, conn, interop.Server, cfg)
	} else {
		a, err := pingpong.Answer(ctx, s.dev, conn, pingpong.AnswerConfig{
			Service: service, MaxSize: s.cfg.MaxSize, Peers: s.cfg.Peers, HandshakeTimeout: s.cfg.HandshakeTimeout,
		})
		if client.Err = err; err == nil {
			r, service, client.QPs = a.Result, a.Service, a.QPs
		}
	}
	client.Tool, client.Service, client.Messages = service.Tool(), serviceOf[service], uint64(2*r.Iterations)
	if r.Iterations > 0 && r.Elapsed > 0 {
		client.Size, client.Gbps = int(r.Bytes)/(2*r.Iterations), r.Gbps()
	}
}

// peeked is a connection of which the first bytes have been looked at.
type peeked struct {
	net.Conn
	r *bufio.Reader
}

func (p *peeked) Read(b []byte) (int, error) { return p.r.Read(b) }

// CloseWrite ends what this side sends, where the connection can do that.
func (p *peeked) CloseWrite() error {
	if h, ok := p.Conn.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return p.Close()
}
