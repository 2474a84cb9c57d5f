package perftest

import (
	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/verbs"
)

// Serves reports whether the test exists over a transport service: READ and
// atomics need a reliable one, and datagrams are for SEND.
func (t Test) Serves(s interop.Service) bool {
	switch s {
	case interop.UD:
		return t.Verb == Send
	case interop.UC:
		return t.Verb <= Write
	}
	return s.Valid()
}

// checkService checks what the transport service allows, by the rules of
// perftest.
func (c *Config) checkService() error {
	switch {
	case !c.Service.Valid():
		return interop.BadConfig("there is no transport service %v", c.Service)
	case c.Test.Serves(c.Service):
	case c.Service == interop.UD:
		return interop.BadConfig("%v over UD: datagrams are for the tests of SEND only", c.Test)
	default:
		return interop.BadConfig("%v over UC: READ and atomics need a reliable service (RC or XRC)", c.Test)
	}
	switch {
	case c.SharedReceives && c.Test.Verb != Send:
		return interop.BadConfig("%v with a shared receive queue: nothing but SEND uses receives", c.Test)
	case c.shared() && c.QPs > c.RxDepth:
		return interop.BadConfig("the receive depth is %d; a shared receive queue must have at least one receive for each of %d queue pairs", c.RxDepth, c.QPs)
	}
	return nil
}

// shared reports whether the queue pairs of this side share their receives.
func (c *Config) shared() bool { return c.SharedReceives || c.Service == interop.XRC }

// duplex reports whether every queue pair, or pair of them, has traffic in both
// directions.
func (c *Config) duplex() bool { return c.Bidirectional || c.Test.Kind == Latency }

// maxUnreliableRx is the largest number of receives that a side of an
// unreliable service keeps posted if the user does not say: what finds none is
// lost.
const maxUnreliableRx = 16000

// defaultRxDepth returns the receive depth if the user does not say.
func (c *Config) defaultRxDepth() int {
	switch {
	case c.Service.Reliable():
		return DefaultRxDepth
	case c.Duration > 0:
		return maxUnreliableRx
	}
	return min(c.iterationsOfQueue(), maxUnreliableRx)
}

// fitMTU makes the size fit a service whose messages are one packet. Without a
// size from the user it is the path MTU that both sides have agreed on.
func (c *Config) fitMTU(mtu verbs.MTU) error {
	if c.Service != interop.UD || c.Size <= mtu.Bytes() {
		return nil
	}
	if c.sizeGiven {
		return interop.BadConfig("the message size is %d bytes (-s); a datagram is one packet, of at most %d bytes between these two sides", c.Size, mtu.Bytes())
	}
	c.Size = mtu.Bytes()
	return nil
}

// records returns how many addresses each side tells the other: one for each
// queue pair. With XRC and traffic in both directions those that send come
// first, then as many that receive.
func (c *Config) records() int { return c.QPs + c.receivers() }

// receivers is the index of the address of the first queue pair that receives.
func (c *Config) receivers() int {
	if c.Service == interop.XRC && c.duplex() {
		return c.QPs
	}
	return 0
}
