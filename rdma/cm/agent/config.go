package agent

import (
	"net/netip"
	"time"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// Config says what an agent is, and what it holds at most. A zero field has the
// default that its comment names.
type Config struct {
	// GUID is the CA GUID, which no other host has. Peers take two
	// connections with one GUID and one QPN for one that is stale.
	GUID mad.GUID
	// Random returns 32 random bits, which no peer can predict. It must be
	// set.
	Random func() uint32
	// Identity is what the agent says of itself to those who ask (see
	// IdentityRequest): nothing if it is zero.
	Identity mad.ECE

	// Shared says that other agents are at the address, each with a Slot of
	// its own. The slot is the low 8 bits of all IDs and transaction IDs
	// that the agent chooses, so that what answers them finds the agent.
	// The others are as random as they are without.
	Shared bool
	Slot   uint8

	// FirstTimeout is after how long a message goes again for the first
	// time: 250 ms. Linux waits 4.6 s.
	FirstTimeout time.Duration
	// MaxTimeout is the longest time between two transmissions: 4.6 s. What
	// peers ask for is cut to it.
	MaxTimeout time.Duration
	// ServiceTimeout is the code of the time that an MRA asks for while the
	// program has a request: 20, 4.3 s.
	ServiceTimeout uint8
	// MaxService is the longest that an MRA of a peer makes the agent wait:
	// 74 s, enough for what Linux asks for.
	MaxService time.Duration
	// RequestLife is how long a request waits for the program after the
	// last time that the peer has sent it: 150 s.
	RequestLife time.Duration
	// MaxTimewait is the longest time in timewait: 2 s. The ACK timeout of
	// the connection says how long it takes.
	MaxTimewait time.Duration

	// HalfOpen is how many requests of peers there are at once that are not
	// yet connections: 4096.
	HalfOpen int
	// HalfOpenPerSource is how many of them one address may have: 1024.
	HalfOpenPerSource int
	// Candidates is how many peers that a Greeter has accepted are waited
	// for: 32768, of which a source has a quarter. The oldest makes room.
	Candidates int
	// Hold returns the number of a queue pair that is made later, and 0 if
	// there is none. Release gives one back of which none is to be made.
	// They must be set where Greet is used.
	Hold    func() rocev2.QPN
	Release func(rocev2.QPN)
	// Heard reports whether a packet with a PSN has come from an address
	// for a number that is held: then the RTU was lost. It may be nil.
	Heard func(rocev2.QPN, netip.Addr, rocev2.PSN) bool
	// Idle is told of a control connection when it has no connection any
	// more (see Path.Control). It may be nil, where there is none.
	Idle func(control uint32)
	// Refusal returns how a request is rejected whose service has no
	// listener; nil is the usual way. It may be nil itself.
	Refusal func(mad.ServiceID) *mad.REJ
	// Backlog is how many requests wait for the program at a listener that
	// does not say: 1024.
	Backlog int
	// Timewaits is how many connections are in timewait at once: 16384.
	// Beyond it they end without.
	Timewaits int
	// Answers is how many answers strangers get in a second: 20000, and as
	// many more for requests that have come before. One source gets half of
	// the first at most.
	Answers int
	// Replies is how many answers to strangers wait for Send: 1024. Others
	// are not answered.
	Replies int
}

func or[T comparable](v *T, standard T) {
	var zero T
	if *v == zero {
		*v = standard
	}
}

func (c *Config) fill() {
	or(&c.FirstTimeout, 250*time.Millisecond)
	or(&c.MaxTimeout, 4608*time.Millisecond)
	or(&c.ServiceTimeout, 20)
	or(&c.MaxService, 74*time.Second)
	or(&c.RequestLife, 150*time.Second)
	or(&c.MaxTimewait, 2*time.Second)
	or(&c.HalfOpen, 4096)
	or(&c.HalfOpenPerSource, 1024)
	or(&c.Candidates, 32768)
	or(&c.Backlog, 1024)
	or(&c.Timewaits, 16384)
	or(&c.Answers, 20000)
	or(&c.Replies, 1024)
}

// Stats are counters, and some gauges, of an agent.
type Stats struct {
	Received, Sent uint64 // MADs
	Resent         uint64 // of those sent, by timer

	Malformed    uint64 // dropped: no MAD of connection management
	WrongAddress uint64 // dropped: not from the address of the connection's peer
	Unexpected   uint64 // dropped: unknown IDs, or not in this state
	Duplicates   uint64 // messages that had come before
	Unsupported  uint64 // dropped: LAP and APR
	Overloaded   uint64 // requests dropped: a bound was reached
	Evicted      uint64 // requests that have made room for others
	Refused      uint64 // requests that the agent rejected
	Unanswered   uint64 // answers to strangers that found no room
	Stale        uint64 // connections whose peer has forgotten them

	Connections int // gauge: all IDs, with those in timewait and released ones
	HalfOpen    int // gauge: requests of peers that are not yet connections
	Timewait    int // gauge
	Timers      int // gauge
}
