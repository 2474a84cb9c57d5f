// Package trace has what the core of a connection decides, as events: what was
// sent, acknowledged and lost and why, how the window and the rate change,
// which timers run out, states, and marks of congestion. The maker of a queue
// pair may have them (Hook); without that they cost a comparison.
//
// A Writer turns them into a file for a viewer.
package trace

import (
	"time"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
)

// Kind is what has happened.
type Kind uint8

const (
	// Sent is Packets requests from PSN on that were sent, with Bytes of
	// payload. Why says whether, and why, they had been sent before.
	Sent Kind = iota
	// Acked is an acknowledgement, or a response, of all before PSN.
	Acked
	// Lost is that Packets are taken for lost, the first of which is PSN or
	// comes after it. Why says what has shown it.
	Lost
	// Window is another bound of what may be in flight, or another rate.
	Window
	// Timer is that a timer has run out. Why says which.
	Timer
	// State is that the queue pair went from State Before to State After.
	State
	// Marked is a sign that the network is congested.
	Marked

	numKinds
)

var kindNames = [numKinds]string{"sent", "acked", "lost", "window", "timer", "state", "marked"}

// String returns the name of the kind, such as "lost".
func (k Kind) String() string {
	if k < numKinds {
		return kindNames[k]
	}
	return "unknown"
}

// Why is the reason for an event.
type Why uint8

const (
	// None: the event needs no reason. A packet is sent for the first time.
	None Why = iota

	// Of Sent, of packets that had been sent before.

	Rewound  // all from the oldest unacknowledged packet on goes again
	Repaired // a few packets from the missing one on go again
	Hole     // the peer lacks this one
	Tail     // its answer shows what the peer lacks
	Missing  // it asks for responses that are missing
	Twin     // it has just been sent, and goes twice because the path loses packets

	// Of Lost.

	Gap       // a packet is missing at the peer, or a response here
	Row       // so is the one right after the one before
	Selective // selective acknowledgements show it
	GoBack    // all in flight goes again: the peer has kept nothing after what is missing
	Silence   // the peer does not answer

	// Of Timer.

	AckTimeout // the local ACK timeout
	Probe      // the peer was silent for longer than its round trips take
	Late       // what is missing has been for longer than a round trip
	RNRWait    // the wait that the peer has asked for (RNR NAK) is over

	// Of Marked.

	Notified // the peer sent a notification (CNP)
	Response // a response came marked

	numWhys
)

var whyNames = [numWhys]string{
	"", "rewound", "repaired", "hole", "tail", "missing", "twin",
	"gap", "row", "selective", "go back", "silence",
	"ACK timeout", "probe", "late", "RNR wait",
	"notified", "response",
}

// String returns the name of the reason, such as "ACK timeout"; of None it is
// empty.
func (w Why) String() string {
	if w < numWhys {
		return whyNames[w]
	}
	return "unknown"
}

// Event is one event of one queue pair. Which fields besides the first three
// say something depends on Kind; Window, PSNs, Rate and SRTT always do.
type Event struct {
	QPN  rocev2.QPN
	Kind Kind
	Why  Why

	PSN           rocev2.PSN
	Packets       int
	Bytes         int // of payload
	Before, After ib.State

	Flow
}

// Hook gets events. It may be that of several queue pairs which are not used at
// once.
type Hook struct {
	take  func(*Event)
	event Event
}

// NewHook returns a hook that calls take with each event. The event is take's
// until it returns. It must not call the queue pair.
func NewHook(take func(*Event)) *Hook { return &Hook{take: take} }

// Take hands over an event. It does not allocate.
func (h *Hook) Take(e Event) {
	h.event = e
	h.take(&h.event)
}

// Flow is how the sending half stands.
type Flow struct {
	InFlight uint64        // bytes on the way, as far as is known, each packet with cc.PacketOverhead; of Sent, Acked, Lost and Timer
	Window   uint64        // bound of InFlight
	PSNs     uint32        // bound of packets in flight
	Rate     uint64        // bits per second, 0 without a bound
	SRTT     time.Duration // smoothed round trip time, 0 while it is not known
}
