// Package cmatose speaks the protocol of ucmatose (rdma-core 44, whose source
// calls it cmatose), as server and as client: over connections of the
// connection manager the server sends a number of messages, then the client
// sends as many, and the server disconnects. Both sides need the same number
// and size of messages: nothing negotiates them.
package cmatose

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

// DefaultPort is the port, of the TCP port space of the connection manager.
const DefaultPort = 7471

// Defaults of Config, those of the original.
const (
	DefaultMessages = 10
	DefaultSize     = 100

	// DefaultAckTimeout is what the connection manager of Linux 6.12 asks
	// for, 0.54 s: a client repeats a message at most 5 times.
	DefaultAckTimeout = 17
)

// Limits of Config.
const (
	MaxConnections = 10000
	MaxSize        = 1 << 30
)

// Config says what to run. Messages and Size must be the peer's too.
type Config struct {
	Connections int  // client: how many it makes; 0 means 1
	Messages    int  // in each direction of a connection; 0 means DefaultMessages
	Size        int  // bytes of a message; 0 means DefaultSize
	IBSpace     bool // the port is of the IB port space

	// AckTimeout is the code of the local ACK timeout that a client asks
	// for, 4.096 µs × 2^n; 0 means DefaultAckTimeout.
	AckTimeout   uint8
	TrafficClass uint8
	SourcePort   uint16 // as in verbs.ConnectConfig

	// Clients is how many connections a server serves before it ends; 0
	// means without end.
	Clients int
	// AtOnce bounds the connections that a server serves at a time; 0 means
	// 64, or Clients if that is more. Others are rejected.
	AtOnce int

	// IdleTimeout ends a connection on which nothing completes for so long;
	// 0 means 60 s.
	IdleTimeout time.Duration

	// OnStep, if set, is called with what a connection does next, from
	// several goroutines at once.
	OnStep func(Step)
	// OnListen, if set, is called by Serve once clients can connect.
	OnListen func()
	// OnClient, if set, is called by Serve when it is done with a client,
	// served or not, from several goroutines at once.
	OnClient func(from net.Addr, res Result, err error)
}

// Step is a step of a connection.
type Step uint8

// Steps, in the words of the original.
const (
	Sending Step = iota
	Receiving
	Disconnecting
	Disconnected
)

// Result is what connections have come to.
type Result struct {
	Connections    int
	Sent, Received int // messages
	Bytes          uint64
	Elapsed        time.Duration

	// Unconfirmed is how many of the messages sent were not acknowledged
	// when the peer disconnected, which it does when it has all of them.
	Unconfirmed int
}

func (r *Result) add(o Result) {
	r.Connections += o.Connections
	r.Sent += o.Sent
	r.Received += o.Received
	r.Bytes += o.Bytes
	r.Elapsed = max(r.Elapsed, o.Elapsed)
	r.Unconfirmed += o.Unconfirmed
}

// Check returns nil if the configuration can be run on dev, else an
// *interop.ConfigError.
func (c Config) Check(dev *verbs.Device) error {
	_, err := c.withDefaults(dev)
	return err
}

func (c Config) withDefaults(dev *verbs.Device) (Config, error) {
	c.Connections = cmp.Or(c.Connections, 1)
	c.Messages = cmp.Or(c.Messages, DefaultMessages)
	c.Size = cmp.Or(c.Size, DefaultSize)
	c.AckTimeout = cmp.Or(c.AckTimeout, DefaultAckTimeout)
	c.AtOnce = cmp.Or(c.AtOnce, max(64, c.Clients))
	c.IdleTimeout = cmp.Or(c.IdleTimeout, time.Minute)
	most := dev.Query().MaxQPWR
	switch {
	case c.Connections < 1 || c.Connections > MaxConnections || c.Clients < 0 || c.Clients > MaxConnections:
		return c, interop.BadConfig("cmatose: the number of connections must be between 1 and %d", MaxConnections)
	case c.Messages < 1 || c.Messages > most:
		return c, interop.BadConfig("cmatose: the number of messages is %d; it must be between 1 and %d", c.Messages, most)
	case c.Size < 1 || c.Size > MaxSize:
		return c, interop.BadConfig("cmatose: the message size is %d; it must be between 1 and %d", c.Size, MaxSize)
	case c.AckTimeout > 31:
		return c, interop.BadConfig("cmatose: the ACK timeout is %d; it must be between 0 and 31", c.AckTimeout)
	case c.IdleTimeout < 0 || c.AtOnce < 0:
		return c, interop.BadConfig("cmatose: a limit is negative")
	}
	return c, nil
}

// side is one end of a connection.
type side struct {
	*link.Link
	cfg   Config
	count link.Count
	admit func() error // server: called when the client has taken a message
}

func newSide(dev *verbs.Device, number verbs.QPN, c Config) (*side, error) {
	l, err := link.New(dev, link.Config{
		QP:     verbs.QPConfig{MaxSendWR: c.Messages, MaxRecvWR: c.Messages, Number: number},
		Memory: c.Size,
	})
	if err != nil {
		return nil, err
	}
	return &side{Link: l, cfg: c}, nil
}

// prepare posts the receives of a queue pair that is in INIT.
func (s *side) prepare() error { return s.PostRecvs(s.cfg.Messages, s.cfg.Size) }

func (s *side) step(at Step) {
	if s.cfg.OnStep != nil {
		s.cfg.OnStep(at)
	}
}

func (s *side) send() error {
	s.step(Sending)
	return s.PostSends(s.cfg.Messages, verbs.SendWR{Opcode: verbs.OpSend, SGList: []verbs.SGE{s.MR.Slice(0, s.cfg.Size)}})
}

func (s *side) until(want link.Count) error {
	return s.explain(s.Until(&s.count, want, func(wc verbs.WC) error {
		if wc.ID == link.RecvID && int(wc.ByteLen) != s.cfg.Size {
			return s.otherSize(fmt.Sprint(wc.ByteLen))
		}
		return nil
	}))
}

// explain adds to an error what may be its cause.
func (s *side) explain(err error) error {
	var ce *interop.CompletionError
	switch {
	case errors.As(err, &ce) && ce.WC.Status == verbs.StatusLocLenErr:
		return s.otherSize("more")
	case errors.As(err, &ce) && (ce.WC.Status == verbs.StatusRemInvReqErr || ce.WC.Status == verbs.StatusRNRRetryExcErr):
		return fmt.Errorf("%w (the two sides may have different sizes (-S) or numbers (-C) of messages)", err)
	case errors.Is(err, interop.ErrDisconnected):
		return fmt.Errorf("after %d messages sent and %d received: %w", s.count.Sent, s.count.Received, err)
	}
	return err
}

func (s *side) otherSize(theirs string) error {
	return fmt.Errorf("the two sides run different tests: messages (-S) have %d bytes here, %s there", s.cfg.Size, theirs)
}

// runServer sends, then receives. The caller disconnects.
func (s *side) runServer() error {
	n := s.cfg.Messages
	if err := s.send(); err != nil {
		return err
	}
	if err := s.until(link.Count{Sent: 1}); err != nil {
		return err
	}
	if err := s.admit(); err != nil {
		return err
	}
	if err := s.until(link.Count{Sent: n}); err != nil {
		return err
	}
	s.step(Receiving)
	return s.until(link.Count{Sent: n, Received: n})
}

// runClient receives, then sends. The server disconnects when it has all
// messages, which may be before their acknowledgements are here.
func (s *side) runClient() error {
	n := s.cfg.Messages
	s.step(Receiving)
	if err := s.until(link.Count{Received: n}); err != nil {
		return err
	}
	if err := s.send(); err != nil {
		return err
	}
	err := s.until(link.Count{Sent: n, Received: n})
	if errors.Is(err, interop.ErrDisconnected) {
		return nil
	}
	return err
}

func (s *side) result(start time.Time) Result {
	return Result{
		Connections: 1, Sent: s.cfg.Messages, Received: s.count.Received, Unconfirmed: s.cfg.Messages - s.count.Sent,
		Bytes: uint64(s.cfg.Messages+s.count.Received) * uint64(s.cfg.Size), Elapsed: time.Since(start),
	}
}
