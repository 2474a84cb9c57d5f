// Package rdmaclient speaks the protocols of four small programs of rdma-core
// 44. With rdma_client and rdma_server, each side sends one message of 16
// bytes, the client first. With rdma_xclient and rdma_xserver the client sends
// one, and that is all: over RC, or over XRC, where the server tells the number
// of its shared receive queue as private data. Linux rxe has no XRC.
package rdmaclient

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/internal/link"
	"github.com/gosoftroce/rocev2/verbs"
)

// DefaultPort is the port of all of them: of the TCP port space of the
// connection manager, and with XRC of the space IB.
const DefaultPort = 7471

// messageLen is the size of a message in bytes. What is in it does not matter.
const messageLen = 16

// Mode says which programs to be.
type Mode uint8

// Modes.
const (
	Plain  Mode = iota // rdma_client and rdma_server
	OneWay             // rdma_xclient and rdma_xserver over RC
	XRC                // rdma_xclient and rdma_xserver over XRC
)

// Config says what to run.
type Config struct {
	Mode         Mode // the peer's, too
	TrafficClass uint8
	SourcePort   uint16 // as in verbs.ConnectConfig

	// Clients is how many clients a server serves before it ends; 0 means
	// without end.
	Clients int
	// AtOnce bounds the clients that a server serves at a time; 0 means 64,
	// or Clients if that is more. Others are rejected.
	AtOnce int

	// IdleTimeout ends a connection on which nothing completes for so long;
	// 0 means 60 s.
	IdleTimeout time.Duration

	// OnListen, if set, is called by Serve once clients can connect.
	OnListen func()
	// OnClient, if set, is called by Serve when it is done with a client,
	// served or not, from several goroutines at once.
	OnClient func(from net.Addr, res Result, err error)
}

// Result is what a connection has come to.
type Result struct {
	Sent, Received int // messages
	// Unconfirmed is how many of the messages sent were not acknowledged
	// when the peer disconnected, as it does when it has them.
	Unconfirmed int
	Elapsed     time.Duration
}

// Check returns nil if the configuration can be run, else an
// *interop.ConfigError.
func (c Config) Check() error {
	_, err := c.withDefaults()
	return err
}

func (c Config) withDefaults() (Config, error) {
	c.IdleTimeout = cmp.Or(c.IdleTimeout, time.Minute)
	c.AtOnce = cmp.Or(c.AtOnce, max(64, c.Clients))
	switch {
	case c.Mode > XRC:
		return c, interop.BadConfig("rdmaclient: there is no mode %d", c.Mode)
	case c.Clients < 0 || c.AtOnce < 0 || c.IdleTimeout < 0:
		return c, interop.BadConfig("rdmaclient: a limit is negative")
	}
	return c, nil
}

// want returns what a side has sent and received in the end.
func (c *Config) want(role interop.Role) link.Count {
	switch {
	case c.Mode == Plain:
		return link.Count{Sent: 1, Received: 1}
	case role == interop.Client:
		return link.Count{Sent: 1}
	}
	return link.Count{Received: 1}
}

// side is one end of a connection.
type side struct {
	*link.Link
	cfg   Config
	role  interop.Role
	count link.Count
	lost  int // acknowledgements that do not come any more
	start time.Time

	srqn uint32 // XRC: of the peer
}

func newSide(dev *verbs.Device, number verbs.QPN, role interop.Role, c Config) (*side, error) {
	cfg := link.Config{QP: verbs.QPConfig{MaxSendWR: 1, MaxRecvWR: 1, Number: number}, Memory: messageLen}
	if c.Mode == XRC {
		cfg.QP.Type = verbs.XRCInitiator
		if role == interop.Server {
			cfg.QP.Type = verbs.XRCTarget
		}
	}
	l, err := link.New(dev, cfg)
	if err != nil {
		return nil, err
	}
	return &side{Link: l, cfg: c, role: role, start: time.Now()}, nil
}

// prepare posts what this side receives.
func (s *side) prepare() error { return s.PostRecvs(s.cfg.want(s.role).Received, messageLen) }

func (s *side) send() error {
	return s.PostSends(1, verbs.SendWR{Opcode: verbs.OpSend, Inline: make([]byte, messageLen), RemoteSRQN: s.srqn})
}

// run does the client's part, or the server's, where admit is called when the
// client has sent something. A peer disconnects when it has all, and the last
// acknowledgement may be lost then: a client that leaves has the answer, and a
// server that leaves has the message.
func (s *side) run(admit func() error) error {
	want := s.cfg.want(s.role)
	if s.role == interop.Server {
		if err := s.until(link.Count{Received: 1}); err != nil {
			return err
		}
		if err := admit(); err != nil {
			return err
		}
	}
	if want.Sent > 0 {
		if err := s.send(); err != nil {
			return err
		}
	}
	err := s.until(want)
	if errors.Is(err, interop.ErrDisconnected) && s.count.Received == want.Received {
		s.lost = want.Sent - s.count.Sent
		return nil
	}
	return err
}

func (s *side) until(want link.Count) error {
	err := s.Until(&s.count, want, func(wc verbs.WC) error {
		if wc.ID == link.RecvID && wc.ByteLen != messageLen {
			return fmt.Errorf("the peer sent %d bytes: a message of these programs has %d", wc.ByteLen, messageLen)
		}
		return nil
	})
	if errors.Is(err, interop.ErrDisconnected) {
		return fmt.Errorf("after %d messages sent and %d received: %w", s.count.Sent, s.count.Received, err)
	}
	return err
}

func (s *side) result() Result {
	return Result{Sent: s.count.Sent + s.lost, Received: s.count.Received, Unconfirmed: s.lost, Elapsed: time.Since(s.start)}
}
