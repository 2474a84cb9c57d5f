package perftest

import (
	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/internal/lanes"
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
func (s *session) fitMTU() error {
	c := &s.cfg
	if c.Service != interop.UD || c.Size <= s.mtu.Bytes() {
		return nil
	}
	if c.sizeGiven {
		return interop.BadConfig("the message size is %d bytes (-s); a datagram is one packet, of at most %d bytes between these two sides", c.Size, s.mtu.Bytes())
	}
	c.Size = s.mtu.Bytes()
	return nil
}

// makeLanes makes the queue pairs.
func (s *session) makeLanes(rx int) (err error) {
	c := &s.cfg
	client := s.role == interop.Client
	s.lanes, err = lanes.New(lanes.Config{
		Dev: s.dev, PD: s.pd, Service: c.Service, Shared: c.SharedReceives, Count: c.QPs, CQ: s.w.CQ,
		MaxSendWR: c.sendDepth(), MaxRecvWR: rx, MaxInline: c.Inline,
		Sends: client || c.duplex(), Receives: !client || c.duplex(),
	})
	return err
}

// records returns how many addresses each side tells the other: one for each
// queue pair. With XRC and traffic in both directions those that send come
// first, then as many that receive.
func (s *session) records() int { return s.cfg.QPs + s.receivers() }

// receivers is the index of the address of the first queue pair that receives.
func (s *session) receivers() int {
	if s.cfg.Service == interop.XRC && s.cfg.duplex() {
		return s.cfg.QPs
	}
	return 0
}

// recordQP returns the queue pair that address i is of.
func (s *session) recordQP(i int) *verbs.QP {
	l := &s.lanes.Lanes[i%s.cfg.QPs]
	if i >= s.cfg.QPs || l.Send == nil {
		return l.Recv
	}
	return l.Send
}

// remoteOf returns the address of what receives the requests of lane i.
func (s *session) remoteOf(i int) Address { return s.remote[s.receivers()+i] }

// peerOf returns the other end of lane i.
func (s *session) peerOf(i int) lanes.Peer {
	from, to := s.remote[i], s.remoteOf(i)
	return lanes.Peer{
		Addr: to.GID.Addr(), SendQPN: from.QPN, SendPSN: from.PSN, RecvQPN: to.QPN, RecvPSN: to.PSN, SRQN: to.SRQN, Native: s.own,
	}
}
