// Package udaddy speaks the protocol of udaddy (rdma-core 44), as server and as
// client: the client asks the connection manager for the queue pair of a port
// (SIDR), sends a number of datagrams there with the number of its own queue
// pair as immediate data, and the server sends as many back. Both sides need
// the same number and size of messages.
//
// What is lost is not sent again. An original then waits for ever; here the run
// ends with an error that wraps ErrLost.
package udaddy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/internal/link"
	"github.com/gosoftroce/rocev2/verbs"
)

// DefaultPort is the port, of the UDP port space of the connection manager.
const DefaultPort = 7174

// Defaults of Config, those of the original.
const (
	DefaultMessages = 10
	DefaultSize     = 100
)

// MaxConnections is the largest number of paths of one client.
const MaxConnections = 10000

// Config says what to run. Messages and Size must be the peer's too.
type Config struct {
	Connections int // client: how many queue pairs it has; 0 means 1
	Messages    int // in each direction of a path; 0 means DefaultMessages
	Size        int // bytes of a message, at most the path MTU; 0 means DefaultSize

	TrafficClass uint8
	SourcePort   uint16 // as in verbs.AddressVector

	// Clients is how many paths a server serves before it ends; 0 means
	// without end.
	Clients int
	// AtOnce bounds the paths that a server serves at a time; 0 means 64,
	// or Clients if that is more. Others are refused.
	AtOnce int

	// FirstTimeout is how long a server waits for the first message of a
	// client to which it has named a queue pair; 0 means 10 s.
	FirstTimeout time.Duration
	// LossTimeout ends a run for which nothing came for that long: the
	// other messages are lost. 0 means 5 s.
	LossTimeout time.Duration

	// OnStep, if set, is called with what a path does next, from several
	// goroutines at once.
	OnStep func(Step)
	// OnListen, if set, is called by Serve once clients can connect.
	OnListen func()
	// OnClient, if set, is called by Serve when it is done with a client,
	// served or not, from several goroutines at once.
	OnClient func(from net.Addr, res Result, err error)
}

// Step is a step of a path.
type Step uint8

// Steps.
const (
	Sending Step = iota
	Receiving
)

// Result is what paths have come to.
type Result struct {
	Connections    int
	Sent, Received int    // messages
	Bytes          uint64 // of them
	Elapsed        time.Duration
}

func (r *Result) add(o Result) {
	r.Connections += o.Connections
	r.Sent += o.Sent
	r.Received += o.Received
	r.Bytes += o.Bytes
	r.Elapsed = max(r.Elapsed, o.Elapsed)
}

// ErrLost is wrapped by the error of a run in which messages did not come.
var ErrLost = errors.New("messages were lost")

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
	c.AtOnce = cmp.Or(c.AtOnce, max(64, c.Clients))
	c.FirstTimeout = cmp.Or(c.FirstTimeout, 10*time.Second)
	c.LossTimeout = cmp.Or(c.LossTimeout, 5*time.Second)
	mtu, most := dev.QueryPort().ActiveMTU.Bytes(), dev.Query().MaxQPWR-spare
	switch {
	case c.Connections < 1 || c.Connections > MaxConnections || c.Clients < 0 || c.Clients > MaxConnections:
		return c, interop.BadConfig("udaddy: the number of connections must be between 1 and %d", MaxConnections)
	case c.Messages < 1 || c.Messages > most:
		return c, interop.BadConfig("udaddy: the number of messages is %d; it must be between 1 and %d", c.Messages, most)
	case c.Size < 1 || c.Size > mtu:
		return c, interop.BadConfig("udaddy: message_size %d is larger than active mtu %d, or less than 1", c.Size, mtu)
	case c.FirstTimeout < 0 || c.LossTimeout < 0 || c.AtOnce < 0:
		return c, interop.BadConfig("udaddy: a limit is negative")
	}
	return c, nil
}

// side is one end of a path.
type side struct {
	*link.Link
	cfg   Config
	count link.Count
	start time.Time

	peer   verbs.QPN // server: the queue pair that answers go to
	source verbs.QPN // server: the one that messages come from
}

// target is where messages go.
type target struct {
	ah   *verbs.AddressHandle
	qpn  verbs.QPN
	qkey uint32
}

// spare is how many receives there are beyond those that the peer needs: what
// others send takes one, too, until it is posted again.
const spare = 16

// newSide makes an end that is ready to receive.
func newSide(dev *verbs.Device, c Config) (*side, error) {
	l, err := link.New(dev, link.Config{
		QP:     verbs.QPConfig{Type: verbs.UD, MaxSendWR: c.Messages, MaxRecvWR: c.Messages + spare},
		Memory: verbs.GRHLen + c.Size,
	})
	if err != nil {
		return nil, err
	}
	s := &side{Link: l, cfg: c, start: time.Now()}
	if err = l.QP.Init(); err == nil {
		err = l.PostRecvs(c.Messages+spare, s.slot())
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return s, nil
}

// slot is the memory of a receive: the header of a datagram comes first.
func (s *side) slot() int { return verbs.GRHLen + s.cfg.Size }

func (s *side) step(at Step) {
	if s.cfg.OnStep != nil {
		s.cfg.OnStep(at)
	}
}

// send sends all messages.
func (s *side) send(to target) error {
	s.step(Sending)
	return s.PostSends(s.cfg.Messages, verbs.SendWR{
		Opcode: verbs.OpSendImm, Imm: uint32(s.QP.QPN()), SGList: []verbs.SGE{s.MR.Slice(verbs.GRHLen, s.cfg.Size)},
		AH: to.ah, RemoteQPN: to.qpn, RemoteQKey: to.qkey,
	})
}

// runClient sends, then takes the answers.
func (s *side) runClient(ctx context.Context, to target) error {
	if err := s.send(to); err != nil {
		return err
	}
	s.step(Receiving)
	return s.receive(ctx, s.cfg.LossTimeout, link.Count{Sent: s.cfg.Messages, Received: s.cfg.Messages})
}

// first waits for the first message of the client.
func (s *side) first(ctx context.Context) error {
	return s.receive(ctx, s.cfg.FirstTimeout, link.Count{Received: 1})
}

// runServer takes the messages after the first one, and answers all. It answers
// the queue pair that the messages name, at the address of ah.
func (s *side) runServer(ctx context.Context, ah *verbs.AddressHandle) error {
	s.step(Receiving)
	if err := s.receive(ctx, s.cfg.LossTimeout, link.Count{Received: s.cfg.Messages}); err != nil {
		return err
	}
	if err := s.send(target{ah, s.peer, interop.CMQKey}); err != nil {
		return err
	}
	return s.receive(ctx, s.cfg.LossTimeout, link.Count{Sent: s.cfg.Messages, Received: s.cfg.Messages})
}

// receive takes completions until there are as many as want says.
func (s *side) receive(ctx context.Context, patience time.Duration, want link.Count) error {
	s.Begin(ctx, "datagrams", nil, patience)
	defer s.End()
	err := s.Until(&s.count, want, s.take)
	if errors.Is(err, interop.ErrNoProgress) {
		return fmt.Errorf("%w: %d of %d messages came, then nothing for %v, and nobody repeats what is lost (or the two sides have different numbers (-C) of messages)",
			ErrLost, s.count.Received, s.cfg.Messages, patience)
	}
	return err
}

// take checks a message. Those of a third party do not count.
func (s *side) take(wc verbs.WC) error {
	if wc.ID == link.SendID {
		return nil
	}
	qpn := verbs.QPN(wc.Imm)
	if s.source == 0 && wc.WithImm && qpn > 1 && qpn < verbs.MulticastQPN {
		s.source, s.peer = wc.SrcQPN, qpn
	}
	if !wc.WithImm || wc.SrcQPN != s.source || qpn != s.peer {
		s.count.Received--
		return s.PostRecvs(1, s.slot())
	}
	if n := int(wc.ByteLen) - verbs.GRHLen; n != s.cfg.Size {
		return fmt.Errorf("the two sides run different tests: messages (-S) have %d bytes here, %d there", s.cfg.Size, n)
	}
	return nil
}

func (s *side) result() Result {
	return Result{
		Connections: 1, Sent: s.count.Sent, Received: s.count.Received,
		Bytes: uint64(s.count.Sent+s.count.Received) * uint64(s.cfg.Size), Elapsed: time.Since(s.start),
	}
}
