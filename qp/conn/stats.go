package conn

import "strconv"

// Drop is why a packet had no effect.
type Drop uint8

// The reasons. A dropped packet may still have been answered: DropDuplicate and
// DropOutOfOrder usually are.
const (
	DropNone        Drop = iota // the packet was used
	DropState                   // the state takes no such packet
	DropService                 // opcode of another service, or one that is not supported
	DropPeer                    // not from the peer's address
	DropPKey                    // another partition
	DropQPN                     // for another queue pair
	DropDuplicate               // a request that was executed before
	DropOutOfOrder              // a request after a gap
	DropRNR                     // no receive posted: the peer was told to wait, where the service tells it anything
	DropInvalid                 // a request that broke the rules: NAK, state ERR; over UC neither
	DropBusy                    // too many answers are waiting; as if lost
	DropGhost                   // a response to what was never sent
	DropStale                   // a response to what has completed
	DropGap                     // a response after a lost one
	DropBadResponse             // a response that does not fit its request
	DropRdAtomic                // too many READs or atomics are unanswered, or it would pass a FLUSH: the peer was told to send it again
	DropConflict                // not what is kept for its PSN, which is dropped too: one of them is forged
	DropNotPresent              // its page must be fetched: the request is asked for again then
	DropQKey                    // a datagram with another Q_Key (IBTA 10.2.5)
	DropTooLong                 // a datagram that its receive has no room for
	numDrops
)

var dropNames = [numDrops]string{
	"none", "state", "service", "peer", "pkey", "qpn", "duplicate", "out_of_order", "rnr", "invalid", "busy", "ghost",
	"stale", "gap", "bad_response", "rd_atomic", "conflict", "not_present", "qkey", "too_long",
}

// String returns the reason as one word, fit for the label of a counter.
func (d Drop) String() string {
	if d < numDrops {
		return dropNames[d]
	}
	return "drop " + strconv.Itoa(int(d))
}

// NumDrops is the number of reasons, DropNone included.
const NumDrops = int(numDrops)

// Stats are the counters of a queue pair since it was created. Bytes are those
// of messages: payload without headers.
type Stats struct {
	TxPackets uint64 // requests and responses, retransmissions included
	TxBytes   uint64
	RxPackets uint64 // packets handed to HandlePacket
	RxBytes   uint64

	SendPosted uint64 // send requests accepted
	RecvPosted uint64
	SendDone   uint64 // send requests completed with success, unsignaled ones too
	RecvDone   uint64

	SpuriousRetransmits uint64 // of Retransmits: the peer was silent for long, but nothing had been lost
	Retransmits         uint64 // request packets sent again
	Timeouts            uint64 // local ACK timeouts
	Probes              uint64 // packets sent again before the timeout, see qp.Config.MinProbe
	Restarts            uint64 // packets sent again without a timeout: sequence NAKs, lost responses
	RNRWaits            uint64 // receiver-not-ready NAKs that we wait for
	CreditStalls        uint64 // times that sending stopped for lack of the peer's credits
	WindowCuts          uint64 // times that the send window was made smaller
	RateCuts            uint64 // times that the rate was made lower because of congestion
	RateWaits           uint64 // times that data had to wait for its rate
	ECNMarked           uint64 // packets with data that the network had marked
	CNPsSent            uint64 // congestion notifications for them
	CNPsReceived        uint64 // congestion notifications of the peer
	Repairs             uint64 // restarts and probes that sent a few packets instead of going back, see qp.QP.SetReorder
	Reordered           uint64 // packets kept until the gap before them is closed
	ReorderDiscarded    uint64 // of these, given back unused: too old, or in conflict with another for the same PSN
	ReadReplays         uint64 // READ requests answered again
	AtomicReplays       uint64 // atomics and ATOMIC WRITEs answered again without executing
	FlushReplays        uint64 // FLUSHes answered again
	AcksSent            uint64
	AcksMerged          uint64 // acknowledgements that a later one made superfluous before they were sent

	NAKSeqSent, NAKSeqReceived         uint64
	NAKInvalidSent, NAKInvalidReceived uint64
	NAKAccessSent, NAKAccessReceived   uint64
	NAKOpSent, NAKOpReceived           uint64
	NAKOtherReceived                   uint64 // reserved codes
	RNRSent, RNRReceived               uint64

	MessagesDropped uint64 // messages over UC of which a part came, and not the rest

	CQOverflows uint64 // completions that a sink refused

	Drops [NumDrops]uint64 // packets by result; index DropNone counts those that were used
}

// Tally is where a connection counts. What counts while nothing goes wrong
// stands in it. The rest is made when the first of it counts: most of many
// connections never get there, and it is four fifths of Stats.
type Tally struct {
	TxPackets, TxBytes, RxPackets, RxBytes     uint64
	SendPosted, RecvPosted, SendDone, RecvDone uint64
	AcksSent, AcksMerged                       uint64
	Retransmits                                uint64 // rare, but asked for

	used uint64 // Drops[DropNone]
	rare *Stats // all others
}

// Rare returns the counters that are not in t itself, to be counted in.
func (t *Tally) Rare() *Stats {
	if t.rare == nil {
		t.rare = new(Stats)
	}
	return t.rare
}

// Result counts what became of a packet.
func (t *Tally) Result(d Drop) {
	if d == DropNone {
		t.used++
	} else {
		t.Rare().Drops[d]++
	}
}

// Run counts n packets that came with size bytes each, and were used.
func (t *Tally) Run(n, size int) {
	t.RxPackets += uint64(n)
	t.RxBytes += uint64(n) * uint64(size)
	t.used += uint64(n)
}

// Reordered returns Stats.Reordered.
func (t *Tally) Reordered() uint64 {
	if t.rare == nil {
		return 0
	}
	return t.rare.Reordered
}

// AddTo adds what t has counted to sum.
func (t *Tally) AddTo(sum *Stats) {
	if t.rare != nil {
		sum.Add(t.rare)
	}
	sum.TxPackets += t.TxPackets
	sum.TxBytes += t.TxBytes
	sum.RxPackets += t.RxPackets
	sum.RxBytes += t.RxBytes
	sum.SendPosted += t.SendPosted
	sum.RecvPosted += t.RecvPosted
	sum.SendDone += t.SendDone
	sum.RecvDone += t.RecvDone
	sum.AcksSent += t.AcksSent
	sum.AcksMerged += t.AcksMerged
	sum.Retransmits += t.Retransmits
	sum.Drops[DropNone] += t.used
}

// Stats returns what t has counted.
func (t *Tally) Stats() (s Stats) {
	t.AddTo(&s)
	return s
}
