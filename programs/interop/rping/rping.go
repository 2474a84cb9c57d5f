// Package rping speaks the protocol of rping (rdma-core 44), as server and as
// client: over a connection of the connection manager the client offers a
// buffer, the server READs it, the client offers another one, and the server
// WRITEs there what it has read. So each ping shows all three ways that data
// take. The client ends the connection.
//
// The server takes buffers of up to MaxSize bytes, whatever the clients use.
// The original has buffers of its own -S there.
package rping

import (
	"cmp"
	"fmt"
	"net"
	"time"

	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/internal/link"
	"github.com/gosoftroce/rocev2/verbs"
)

// DefaultPort is the port, of the TCP port space of the connection manager.
const DefaultPort = 7174

// Limits of Config, and its default size in bytes, those of the original.
const (
	DefaultSize = 64
	MinSize     = 27 // the longest number of a ping has room
	MaxSize     = 65536
)

// Config says what to run.
type Config struct {
	Size     int  // client: bytes of a ping; 0 means DefaultSize. Server: the most that a client may offer; 0 means MaxSize
	Count    int  // client: pings; 0 means until the context ends
	Validate bool // client: what comes back is compared with what was sent

	// Clients is how many clients a server serves before it ends; 0 means
	// without end.
	Clients int
	// AtOnce bounds the clients that a server serves at a time; 0 means 64,
	// or Clients if that is more. Others are rejected.
	AtOnce int

	TrafficClass uint8
	SourcePort   uint16 // as in verbs.ConnectConfig

	// IdleTimeout ends a connection on which nothing completes for so long;
	// 0 means 60 s.
	IdleTimeout time.Duration

	// OnPing, if set, is called with the data of each ping, without the NUL
	// at the end, which are good until it returns. A server calls it for
	// several clients at once.
	OnPing func(data []byte)
	// OnListen, if set, is called by Serve once clients can connect.
	OnListen func()
	// OnClient, if set, is called by Serve when it is done with a client,
	// served or not, from several goroutines at once.
	OnClient func(from net.Addr, res Result, err error)
}

// Result is what a connection has come to.
type Result struct {
	Pings   int
	Bytes   uint64 // in both directions
	Elapsed time.Duration
}

// Check returns nil if the configuration can be run, else an
// *interop.ConfigError.
func (c Config) Check() error {
	_, err := c.withDefaults(interop.Client)
	return err
}

func (c Config) withDefaults(role interop.Role) (Config, error) {
	size := DefaultSize
	if role == interop.Server {
		size = MaxSize
	}
	c.Size = cmp.Or(c.Size, size)
	c.IdleTimeout = cmp.Or(c.IdleTimeout, time.Minute)
	c.AtOnce = cmp.Or(c.AtOnce, max(64, c.Clients))
	switch {
	case c.Size < MinSize || c.Size > MaxSize:
		return c, interop.BadConfig("rping: invalid size %d (valid range is %d to %d)", c.Size, MinSize, MaxSize)
	case c.Count < 0:
		return c, interop.BadConfig("rping: invalid count %d", c.Count)
	case c.Clients < 0 || c.AtOnce < 0:
		return c, interop.BadConfig("rping: a number of clients is negative")
	case c.IdleTimeout < 0:
		return c, interop.BadConfig("rping: the timeout is negative")
	}
	return c, nil
}

// side is one end of a connection: a link whose memory has the messages, and
// the buffers of the data.
type side struct {
	*link.Link
	cfg  Config
	data *verbs.MR
	sent int // requests whose completions have not been taken yet

	admit func() error // server: called with the first message
}

// depth is how many requests of a queue may be outstanding. The peer sends only
// when it was sent to, so two receives are one more than it uses.
const (
	sendDepth = 16
	recvDepth = 2
)

// newSide makes one end, with data of so many bytes that the peer may access as
// said.
func newSide(dev *verbs.Device, number verbs.QPN, c Config, bytes int, access verbs.Access) (*side, error) {
	l, err := link.New(dev, link.Config{
		QP:     verbs.QPConfig{MaxSendWR: sendDepth, MaxRecvWR: recvDepth, Number: number},
		Memory: recvDepth * messageLen,
	})
	if err != nil {
		return nil, err
	}
	s := &side{Link: l, cfg: c}
	if s.data, err = l.PD.AllocMemory(bytes, access|verbs.LocalWrite); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *side) close() {
	s.End()
	s.QP.Close()
	if s.data != nil {
		s.data.Close()
	}
	s.Close()
}

// prepare posts the receives of a queue pair that is in INIT.
func (s *side) prepare() error {
	for i := range recvDepth {
		if err := s.postRecv(i); err != nil {
			return err
		}
	}
	return nil
}

// postRecv posts receive i. Its number is the ID of the request.
func (s *side) postRecv(i int) error {
	return s.QP.PostRecv(verbs.RecvWR{ID: uint64(i), SGList: []verbs.SGE{s.MR.Slice(i*messageLen, messageLen)}})
}

// requestID is the ID of all that this side sends, which no receive has.
const requestID = recvDepth

// post posts a request.
func (s *side) post(wr verbs.SendWR) error {
	wr.ID, wr.Signaled = requestID, true
	s.sent++
	return s.QP.PostSend(wr)
}

// tell sends a message. What it says is in the request itself.
func (s *side) tell(b buffer) error {
	return s.post(verbs.SendWR{Opcode: verbs.OpSend, Inline: b.append(make([]byte, 0, messageLen))})
}

// hear waits for a message of the peer, and posts its receive again.
func (s *side) hear() (buffer, error) {
	for {
		wc, err := s.Next()
		if err != nil {
			return buffer{}, err
		}
		if wc.ID == requestID {
			s.sent--
			continue
		}
		if wc.ByteLen != messageLen {
			return buffer{}, fmt.Errorf("received bogus data, size %d: a message of rping has %d bytes", wc.ByteLen, messageLen)
		}
		i := int(wc.ID)
		b := parseBuffer(s.MR.Bytes()[i*messageLen:])
		return b, s.postRecv(i)
	}
}

// done waits until all that was posted has completed. The peer must say
// nothing meanwhile.
func (s *side) done() error {
	for s.sent > 0 {
		wc, err := s.Next()
		if err != nil {
			return err
		}
		if wc.ID != requestID {
			return fmt.Errorf("the peer sent a message out of turn")
		}
		s.sent--
	}
	return nil
}
