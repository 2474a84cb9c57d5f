package pingpong

import (
	"cmp"
	"net"
	"time"

	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/verbs"
)

// Defaults of Config, those of the originals. Others depend on the Service.
const (
	DefaultRxDepth = 500
	DefaultMTU     = verbs.MTU1024
)

// MaxSize is the largest message.
const MaxSize = 1 << 30

// MaxDepth is the largest number of receives kept posted.
const MaxDepth = 1 << 16

// Config says what to run. Service, Size, Iterations, QPs and MTU must be the
// peer's too.
type Config struct {
	Service    Service
	Size       int       // bytes of a message; 0 means the service's default
	Iterations int       // messages in each direction, all queue pairs together; 0 means the service's default
	QPs        int       // queue pairs, for SRQ only; 0 means the service's default
	RxDepth    int       // receives kept posted; 0 means DefaultRxDepth
	MTU        verbs.MTU // path MTU, not for UD; 0 means DefaultMTU
	Events     bool      // sleep on a completion channel instead of polling
	Validate   bool      // check the content of the buffer at the end
	SourcePort uint16    // as in verbs.ConnectConfig; 0 means the device's

	TrafficClass uint8 // of what this side sends, as in verbs.ConnectConfig

	// Peers says which address the peer may name for its traffic; the zero
	// value allows only the one of the control connection.
	Peers interop.Peers

	// HandshakeTimeout bounds each step of the exchange of addresses, once
	// the connection stands; 0 means 30 s, or IdleTimeout if that is less.
	HandshakeTimeout time.Duration
	// IdleTimeout ends a run in which nothing completes for so long; 0
	// means 60 s.
	IdleTimeout time.Duration
	// LossTimeout ends a run over UC or UD in which nothing came for so
	// long: then a message was lost. 0 means 5 s, or IdleTimeout if that is
	// less.
	LossTimeout time.Duration
	// Linger is how long this side still answers after its last completion,
	// in case the acknowledgement of the peer's last message was lost; 0
	// means 200 ms, a negative number not at all.
	Linger time.Duration

	// OnRefused, if set, is called by Serve for every client that it does
	// not take.
	OnRefused func(from net.Addr, why error)
	// OnAddresses, if set, is called when the addresses have been
	// exchanged, with one for each queue pair.
	OnAddresses func(local, remote []Address)
	// OnProgress, if set, is called a few times a second, from another
	// goroutine, with the messages that were sent and received so far.
	OnProgress func(done, total uint64)
}

// Check returns nil if the configuration can be run on dev, else an
// *interop.ConfigError.
func (c Config) Check(dev *verbs.Device) error {
	_, err := c.withDefaults(dev)
	return err
}

func (c *Config) traits() *traits { return &allTraits[c.Service] }

func (c Config) withDefaults(dev *verbs.Device) (Config, error) {
	if int(c.Service) >= len(allTraits) {
		return c, interop.BadConfig("pingpong: there is no %v", c.Service)
	}
	t := c.traits()
	c.Size = cmp.Or(c.Size, t.size)
	c.Iterations = cmp.Or(c.Iterations, t.iterations)
	c.QPs = cmp.Or(c.QPs, t.lanes)
	c.RxDepth = cmp.Or(c.RxDepth, DefaultRxDepth)
	c.MTU = cmp.Or(c.MTU, DefaultMTU)
	c.IdleTimeout = cmp.Or(c.IdleTimeout, 60*time.Second)
	c.LossTimeout = cmp.Or(c.LossTimeout, min(5*time.Second, c.IdleTimeout))
	c.HandshakeTimeout = cmp.Or(c.HandshakeTimeout, min(30*time.Second, c.IdleTimeout))
	c.Linger = cmp.Or(c.Linger, 200*time.Millisecond)
	port := dev.QueryPort()
	switch {
	case c.Size < 1 || c.Size > MaxSize:
		return c, interop.BadConfig("pingpong: size is %d; it must be between 1 and %d bytes", c.Size, MaxSize)
	case c.Size > t.largest(port.ActiveMTU):
		return c, interop.BadConfig("pingpong: size is %d; a datagram is one packet, of at most %d bytes on the link of %v",
			c.Size, t.largest(port.ActiveMTU), dev.Addr())
	case c.Iterations < 1:
		return c, interop.BadConfig("pingpong: the number of iterations is %d; it must be at least 1", c.Iterations)
	case c.QPs != 1 && t.addresses == 1:
		return c, interop.BadConfig("pingpong: the number of queue pairs is %d; %v has one", c.QPs, c.Service)
	case c.QPs < 1 || c.QPs > t.addresses:
		return c, interop.BadConfig("pingpong: the number of queue pairs is %d; %v has between 1 and %d", c.QPs, c.Service, t.addresses)
	case c.RxDepth < 1 || c.RxDepth > MaxDepth:
		return c, interop.BadConfig("pingpong: receive depth is %d; it must be between 1 and %d", c.RxDepth, MaxDepth)
	case c.RxDepth < c.QPs:
		return c, interop.BadConfig("pingpong: receive depth is %d; it must be at least one receive for each of %d queue pairs", c.RxDepth, c.QPs)
	case !c.MTU.Valid():
		return c, interop.BadConfig("pingpong: the path MTU must be 256, 512, 1024, 2048 or 4096 bytes")
	case c.HandshakeTimeout < 0 || c.IdleTimeout < 0 || c.LossTimeout < 0:
		return c, interop.BadConfig("pingpong: a timeout is negative")
	}
	// An original with several queue pairs sends a message more on each.
	c.RxDepth = min(c.RxDepth, c.Iterations+c.QPs-1)
	return c, nil
}

// patience returns for how long nothing may come.
func (c *Config) patience() time.Duration {
	if c.traits().service.Reliable() {
		return c.IdleTimeout
	}
	return c.LossTimeout
}
