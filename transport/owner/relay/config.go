package relay

import (
	"fmt"
	"net/netip"

	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// Slots is the most slots that an address has: the low 8 bits of an ID.
const Slots = 256

// Config says whose port it is. Addr, GUID and Random are required.
type Config struct {
	Addr netip.Addr // the local address; a zone is ignored
	GUID mad.GUID   // of the channel adapter that the address is
	// Random returns 32 random bits, which cannot be predicted.
	Random func() uint32
	// Identity is what is said to those who ask (agent.Config.Identity).
	Identity mad.ECE
	// Farewells is how many peers of leases that have gone are told at
	// once: 65536. Beyond it the oldest is told no more.
	Farewells int
}

// Limits bound what is kept for a lease, and what passes. A field of 0 has its
// default.
type Limits struct {
	Connections int // that are followed: 65536. Beyond it requests are not sent
	Requests    int // requests of peers that are not yet connections: 8192. Beyond it the oldest is followed no more
	Services    int // service IDs: 65536
	MADs        int // in a second to the lease, from it, and requests of peers: 20000 each
}

func (l *Limits) fill() {
	or(&l.Connections, 65536)
	or(&l.Requests, 8192)
	or(&l.Services, 65536)
	or(&l.MADs, 20000)
}

func or(v *int, standard int) {
	if *v <= 0 {
		*v = standard
	}
}

// Network is the slot of a datagram that is for the network.
const Network = -1

// Action says what becomes of a datagram.
type Action uint8

// The actions.
const (
	Drop    Action = iota // it goes nowhere, for a reason
	ToLease               // the lease of Verdict.Slot gets it
	Forward               // the network gets it
	Taken                 // it was for the relay itself
)

var actions = [...]string{"drop", "to lease", "forward", "taken"}

// String returns the name of the action.
func (a Action) String() string { return actions[a] }

// Reason says why a datagram is dropped.
type Reason uint8

// The reasons.
const (
	None        Reason = iota
	Malformed          // no datagram between queue pairs 1 with a MAD in it
	Unsupported        // a message, or a management class, that is not for this software
	OwnAddress         // from the network, with the own address as its source
	NoLease            // from, or for, a slot that no lease has
	NoPeer             // for an address that is none of one host, or not of the port's IP version
	WrongID            // of a lease, with an ID that is not of its slot
	Unexpected         // without the receiver's ID, about no request that is known
	TooMany            // more in a second than the lease may have
	NoRoom             // a request of a lease that has as many connections as it may
	reasons
)

var reasonNames = [reasons]string{
	"none", "malformed", "unsupported", "own address", "no lease", "no peer", "wrong ID", "unexpected", "too many", "no room",
}

// String returns the name of the reason, as for a label.
func (r Reason) String() string {
	if r < reasons {
		return reasonNames[r]
	}
	return fmt.Sprintf("Reason(%d)", uint8(r))
}

// Reasons returns all reasons for which datagrams are dropped.
func Reasons() (all []Reason) {
	for r := None + 1; r < reasons; r++ {
		all = append(all, r)
	}
	return all
}

// Verdict says what becomes of a datagram.
type Verdict struct {
	Action Action
	Slot   int    // of ToLease
	Reason Reason // of Drop
}

func drop(r Reason) Verdict { return Verdict{Action: Drop, Reason: r} }

// Source is where a datagram has come from.
type Source struct {
	Addr         netip.Addr
	TrafficClass uint8
	FlowLabel    uint32
}

// Datagram is what Send gives: to a lease, as if it had come from Addr, or to
// Addr in the network, where Slot is Network.
type Datagram struct {
	Slot         int
	Addr         netip.Addr
	TrafficClass uint8
	HopLimit     uint8
	FlowLabel    uint32
}

// ServiceError says that a service ID cannot be had.
type ServiceError struct {
	ID, Mask uint64
	Holder   int // the slot of the lease that has it; Network: there are too many
}

// Error says which lease has it.
func (e *ServiceError) Error() string {
	if e.Holder == Network {
		return "relay: the lease has as many services as it may have; release some"
	}
	return fmt.Sprintf("relay: service ID %v is reserved by the lease of slot %d", mad.ServiceID(e.ID), e.Holder)
}

// LeaseStats are counters of one lease.
type LeaseStats struct {
	ToLease, FromLease uint64       // datagrams that passed
	Drops              uint64       // of those for it and from it
	Connections        int          // gauge: established ones
	Opening            int          // gauge: those that are being made, or ended
	Peers              []netip.Addr // of the established ones, in order
	Services           []uint64     // in order
}

// Stats are the counters of a relay.
type Stats struct {
	In, Out     uint64          // datagrams of the network, and of leases
	ToLeases    uint64          // passed on to leases, those among leases too
	ToNetwork   uint64          // passed on
	Taken       uint64          // for the relay itself
	Drops       [reasons]uint64 // by Reason
	Sent        uint64          // of its own
	Stale       uint64          // connections that their peer had forgotten
	Forgotten   uint64          // requests that were followed no more because there were too many
	Farewells   uint64          // peers told of the end of a lease
	Unanswered  uint64          // of those, DREQs without an answer
	Leases      int             // gauge
	Connections int             // gauge: all that are followed
	Parting     int             // gauge: peers that are being told
	Untold      int             // gauge: of those, the ones that were not told yet
	Services    int             // gauge
}
