package tcp

import (
	"errors"
	"fmt"

	"github.com/gosoftroce/rocev2/fabric/event"
)

// Ports of connections: those of clients follow each other at a host, and the
// server's is one of its own where a pair of them is taken.
const (
	firstPort  = 1024
	serverPort = 5001
	mostServer = 1 << 16
)

// Stream is bytes from one host to another one, over a connection of their own.
type Stream struct {
	src, dst *end
}

// Calls are what a Stream calls at its ends; nil: nothing.
type Calls struct {
	Acknowledged func() // at the sending host, when all bytes are
	Arrived      func() // at the other one, when all bytes have
}

// Connect has a host open a connection to another one now, and send bytes by
// it: up to 2^50, or without an end if they are 0. It is called between two
// events of the network, or by what runs in a network of one part.
func (s *Stack) Connect(from, to int, bytes int64, c Config, calls Calls) (*Stream, error) {
	c, err := c.withDefaults()
	switch {
	case err != nil:
		return nil, err
	case from == to:
		return nil, fmt.Errorf("tcp: host %d is to be connected to itself", from)
	case bytes < 0 || bytes > 1<<50:
		return nil, fmt.Errorf("tcp: a stream of %d bytes: it has up to 2^50", bytes)
	}
	src, err := s.host(from)
	if err != nil {
		return nil, err
	}
	dst, err := s.host(to)
	if err != nil {
		return nil, err
	}
	k, err := src.free(to, c.SrcPort)
	if err != nil {
		return nil, err
	}
	class := s.a.Network().ClassOf(c.DSCP)
	x := src.add(&end{key: k, port: k.own, class: class, cfg: &c, done: calls.Acknowledged})
	y := dst.add(&end{key: key{from, k.far, k.own}, port: k.own, class: class, cfg: &c, done: calls.Arrived})
	numbers := s.rand.Uint64()
	snd, rcv := newSender(&c, bytes, uint32(numbers), &x.stats), newReceiver(&c, uint32(numbers>>32), &y.stats)
	x.snd, y.rcv = &snd, &rcv
	x.changed()
	src.a.Ready()
	return &Stream{x, y}, nil
}

// free returns ports that no connection to a host has.
func (h *host) free(to int, port uint16) (key, error) {
	if port == 0 {
		if h.port++; h.port < firstPort {
			h.port = firstPort
		}
		port = h.port
	}
	for server := serverPort; server < mostServer; server++ {
		if k := (key{to, port, uint16(server)}); h.ends[k] == nil {
			return k, nil
		}
	}
	return key{}, errors.New("tcp: all ports of the two hosts are taken")
}

// Close takes the connection away, at both ends. What it still had is lost, and
// neither end is told. It is called between two events of the network.
func (s *Stream) Close() {
	s.src.host.remove(s.src)
	s.dst.host.remove(s.dst)
}

// Received returns how many bytes have come in order.
func (s *Stream) Received() int64 { return s.dst.rcv.received() }

// Stats returns the counters of both ends.
func (s *Stream) Stats() Stats {
	sum := s.src.stats
	sum.Add(&s.dst.stats)
	return sum
}

// State is how a sender stands.
type State struct {
	InFlight  int64      // bytes in the network, as the sender counts them
	Window    int64      // bytes that may be there
	Threshold int64      // below it the window is in slow start
	RTT       event.Time // smoothed; 0: none was measured
	RTO       event.Time // the timeout
	Timeout   event.Time // when it is; Never: none runs
}

// State returns how the sender stands.
func (s *Stream) State() State {
	x := s.src.snd
	return State{InFlight: x.pipe, Window: min(x.w.cwnd, max(x.room, x.w.mss)), Threshold: x.w.ssthresh, RTT: x.rto.srtt, RTO: x.rto.value, Timeout: x.deadline}
}
