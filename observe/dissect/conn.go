package dissect

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/gosoftroce/rocev2/rocev2"
)

// Endpoint is one end of a connection.
type Endpoint struct {
	Addr netip.Addr
	QPN  rocev2.QPN
	// Known is false as long as the capture does not tell the QPN: packets
	// name the queue pair that they go to, not the one they come from.
	Known bool
}

// String returns the address and the QPN.
func (e Endpoint) String() string {
	if !e.Known {
		return fmt.Sprintf("%v qp ?", e.Addr)
	}
	return fmt.Sprintf("%v qp %v", e.Addr, e.QPN)
}

// State is what connection management says of a connection.
type State uint8

// The states.
const (
	StateUnmanaged     State = iota // no connection management was seen
	StateRequested                  // REQ or SIDR_REQ
	StateReplied                    // REP
	StateEstablished                // RTU, or SIDR_REP with success
	StateRejected                   // REJ, or SIDR_REP with another status
	StateDisconnecting              // DREQ
	StateDisconnected               // DREP
)

var stateNames = [...]string{
	StateUnmanaged: "", StateRequested: "requested", StateReplied: "replied", StateEstablished: "established",
	StateRejected: "rejected", StateDisconnecting: "disconnecting", StateDisconnected: "disconnected",
}

// String returns the name of the state; that of StateUnmanaged is empty.
func (s State) String() string { return stateNames[s] }

// Connection is two queue pairs that talk to each other: a connection, or two
// queue pairs that exchange datagrams. A is the one that was seen to send
// first.
type Connection struct {
	ID      int // from 1, in the order in which they were seen
	Service rocev2.Service
	A, B    Endpoint
	State   State
	Purpose string // service of connection management, such as tcp:7471
	MTU     int    // path MTU in bytes; 0 = not known

	First, Last time.Duration // offsets of the first and the last packet

	// Requests[0] is what A asks of B, with what B answers; Requests[1]
	// the reverse.
	Requests [2]Side

	Management uint64 // packets of connection management
	CNPs       uint64 // congestion notifications, both ways
	Marked     uint64 // packets with congestion experienced (ECN), both ways
	BadICRC    uint64 // packets with a wrong ICRC, both ways
	Malformed  uint64

	// Sealed[0] is what A has sealed, Sealed[1] what B has.
	Sealed [2]SealedSide

	spoken       spoken
	newer, older *Connection // in the order of the last packet
	streams      []streamKey // that lead here
	ids          []cmKey     // that lead here
	ports        [2]uint16   // UDP source ports
	seen         [2]bool     // the side has sent on a connection
	messages     uint32      // of connection management that were seen, a bit each
	gone         bool        // forgotten, or merged into another
	counted      bool        // by Stats
}

// Totals returns the sum of both sides.
func (c *Connection) Totals() Counters {
	sum := c.Requests[0].Counters
	sum.Add(&c.Requests[1].Counters)
	return sum
}

// End returns the end that packets of a direction come from: from is 0 for A.
func (c *Connection) End(from int) Endpoint {
	if from == 0 {
		return c.A
	}
	return c.B
}

// Protocol returns what programs speak on the connection, as they agreed in
// their REQ and REP.
func (c *Connection) Protocol() Protocol { return c.spoken.protocol }

// Name returns the connection's name in lines and filters, such as c3.
func (c *Connection) Name() string { return fmt.Sprintf("c%d", c.ID) }

// Counters count what a side requests, and what answers it.
type Counters struct {
	Packets, Bytes uint64 // of requests; bytes from BTH to ICRC
	Payload        uint64 // bytes of requests, sent again or not
	Retransmitted  uint64 // requests that were seen before
	Duplicates     uint64 // of these, requests that were acknowledged already
	Gaps           uint64 // requests in front of which PSNs were missing
	Missing        uint64 // PSNs that were missing there
	OutOfOrder     uint64 // requests that closed such a gap

	Responses, ResponseBytes uint64
	ResponsePayload          uint64
	Repeated                 uint64 // responses to READs and atomics that were seen before
	ResponseGaps             uint64 // responses in front of which some were missing
	Acks, DuplicateAcks      uint64
	Unseen                   uint64 // responses to what the capture does not have
	NAKSequence              uint64
	NAKErrors                uint64 // NAKs that end the connection
	RNRs                     uint64

	Messages, Completed uint64
	RTTs                uint64 // round trips that were measured
	RTTSum              time.Duration
	RTTMin, RTTMax      time.Duration
}

// Add adds o to c.
func (c *Counters) Add(o *Counters) {
	for _, v := range [...]struct{ to, from *uint64 }{
		{&c.Packets, &o.Packets},
		{&c.Bytes, &o.Bytes},
		{&c.Payload, &o.Payload},
		{&c.Retransmitted, &o.Retransmitted},
		{&c.Duplicates, &o.Duplicates},
		{&c.Gaps, &o.Gaps},
		{&c.Missing, &o.Missing},
		{&c.OutOfOrder, &o.OutOfOrder},
		{&c.Responses, &o.Responses},
		{&c.ResponseBytes, &o.ResponseBytes},
		{&c.ResponsePayload, &o.ResponsePayload},
		{&c.Repeated, &o.Repeated},
		{&c.ResponseGaps, &o.ResponseGaps},
		{&c.Acks, &o.Acks},
		{&c.DuplicateAcks, &o.DuplicateAcks},
		{&c.Unseen, &o.Unseen},
		{&c.NAKSequence, &o.NAKSequence},
		{&c.NAKErrors, &o.NAKErrors},
		{&c.RNRs, &o.RNRs},
		{&c.Messages, &o.Messages},
		{&c.Completed, &o.Completed},
	} {
		*v.to += *v.from
	}
	if o.RTTs > 0 {
		if c.RTTs == 0 || o.RTTMin < c.RTTMin {
			c.RTTMin = o.RTTMin
		}
		c.RTTMax = max(c.RTTMax, o.RTTMax)
	}
	c.RTTs += o.RTTs
	c.RTTSum += o.RTTSum
}

// RTT returns the mean round trip time; 0 if none was measured.
func (c *Counters) RTT() time.Duration {
	if c.RTTs == 0 {
		return 0
	}
	return c.RTTSum / time.Duration(c.RTTs)
}

func (c *Counters) addRTT(d time.Duration) {
	if c.RTTs == 0 || d < c.RTTMin {
		c.RTTMin = d
	}
	c.RTTMax = max(c.RTTMax, d)
	c.RTTs++
	c.RTTSum += d
}

// Flags say what is particular about a packet on its connection.
type Flags uint16

// The flags.
const (
	// Retransmitted packets were seen before: requests, messages of
	// connection management, and responses that are given again.
	Retransmitted Flags = 1 << iota
	// Duplicate requests are retransmitted although the capture has their
	// acknowledgement.
	Duplicate
	// Gap: packets in front of it are missing.
	Gap
	// OutOfOrder packets close a gap.
	OutOfOrder
	// DuplicateAck acknowledges nothing new.
	DuplicateAck
	// Unseen responses answer what the capture does not have.
	Unseen
	// Replayed packets are sealed with an IV that has come before:
	// receivers drop them.
	Replayed
)

var flagNames = []struct {
	flag Flags
	name string
}{
	{Retransmitted, "retransmitted"},
	{Duplicate, "duplicate"},
	{Gap, "gap"},
	{OutOfOrder, "out_of_order"},
	{DuplicateAck, "duplicate_ack"},
	{Unseen, "unseen"},
	{Replayed, "replayed"},
}

// Names returns the names of the flags that are set.
func (f Flags) Names() (names []string) {
	for _, n := range flagNames {
		if f&n.flag != 0 {
			names = append(names, n.name)
		}
	}
	return names
}

// Analysis is what a packet means on its connection.
type Analysis struct {
	Conn *Connection // nil if the packet is malformed, or on none
	From int         // 0 if A sent it, 1 if B
	// Index is the side of Conn.Requests that the packet belongs to: that
	// of its sender for a request, that of its receiver for a response.
	Index int

	Flags   Flags
	Missing int           // with Gap: how many PSNs
	Cause   string        // with Retransmitted: "nak", "rnr" or "timeout"
	Since   time.Duration // with Retransmitted: since it was first sent

	// Message is the one that the packet belongs to, if HasMessage, as far
	// as it is known, and At the place of the payload in it: -1 if not
	// known.
	Message    Message
	HasMessage bool
	At         int64

	// Acked is how many PSNs the response acknowledges for the first time.
	Acked int
	RTT   time.Duration // from the request to the response, if Timed
	Timed bool          // RTT was measured: 0 is an answer at once
	// Completes is the messages that the packet completes: for the
	// requester with a reliable service, for the receiver with an
	// unreliable one. Count of them end with message Last.
	Completes struct {
		Count int
		Last  Message
	}

	App Application
}
