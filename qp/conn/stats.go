package conn

import (
	"strconv"
	"strings"
	"unsafe"

	"github.com/gosoftroce/rocev2/internal/counters"
)

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

// dropNames are those of QPDrops, whose fields stand in the order of the
// reasons.
var dropNames = append([]string{"none"}, counters.Names[QPDrops]()...)

// String returns the reason as one word, fit for the label of a counter.
func (d Drop) String() string {
	if d < numDrops {
		return dropNames[d]
	}
	return "drop " + strconv.Itoa(int(d))
}

// NumDrops is the number of reasons, DropNone included.
const NumDrops = int(numDrops)

// Stats is a snapshot of the counters of a queue pair since it was made, or
// their sum over several. Bytes are those of messages: payload without headers.
// Each field has the name that Each gives it, and what it counts, as tags.
type Stats struct {
	TxPackets           uint64 `name:"tx_packets" help:"requests and responses sent, retransmissions included"`
	TxBytes             uint64 `name:"tx_bytes" help:"bytes of payload sent"`
	RxPackets           uint64 `name:"rx_packets" help:"requests and responses received, dropped ones included"`
	RxBytes             uint64 `name:"rx_bytes" help:"bytes of payload received"`
	SendPosted          uint64 `name:"send_posted" help:"send requests accepted"`
	RecvPosted          uint64 `name:"recv_posted" help:"receives accepted"`
	SendDone            uint64 `name:"send_done" help:"send requests that succeeded, unsignaled ones too"`
	RecvDone            uint64 `name:"recv_done" help:"receives that succeeded"`
	Retransmits         uint64 `name:"retransmits" help:"request packets sent again"`
	SpuriousRetransmits uint64 `name:"spurious_retransmits" help:"request packets sent again without need: the peer was silent for long, but nothing was lost"`
	Timeouts            uint64 `name:"timeouts" help:"local ACK timeouts"`
	Probes              uint64 `name:"probes" help:"packets sent again before the timeout, see Config.MinProbe"`
	Restarts            uint64 `name:"restarts" help:"retransmissions without a timeout, because of sequence NAKs and lost responses"`
	RNRWaits            uint64 `name:"rnr_waits" help:"receiver-not-ready NAKs that this side waited for"`
	CreditStalls        uint64 `name:"credit_stalls" help:"times that sending stopped for lack of the peer's credits"`
	WindowCuts          uint64 `name:"window_cuts" help:"times that the send window was made smaller"`
	RateCuts            uint64 `name:"rate_cuts" help:"times that congestion control made the rate lower"`
	RateWaits           uint64 `name:"rate_waits" help:"times that data had to wait for its rate, that of QP.SetRateLimit included"`
	ECNMarked           uint64 `name:"ecn_marked" help:"packets with data that the network had marked"`
	CNPsSent            uint64 `name:"cnps_sent" help:"congestion notifications sent for packets that the network had marked"`
	CNPsReceived        uint64 `name:"cnps_received" help:"congestion notifications received"`
	Repairs             uint64 `name:"repairs" help:"restarts and probes that sent a few packets, instead of all from there on"`
	Reordered           uint64 `name:"reordered" help:"packets that were kept in the reorder buffer until the gap before them was closed"`
	ReorderDiscarded    uint64 `name:"reorder_discarded" help:"packets of the reorder buffer that were dropped unused: too old, or in conflict with another packet for the same PSN"`
	ReadReplays         uint64 `name:"read_replays" help:"READ requests answered again"`
	AtomicReplays       uint64 `name:"atomic_replays" help:"atomics and ATOMIC WRITEs answered again, without executing them"`
	FlushReplays        uint64 `name:"flush_replays" help:"FLUSHes answered again"`
	AcksSent            uint64 `name:"acks_sent" help:"acknowledgements sent"`
	AcksMerged          uint64 `name:"acks_merged" help:"acknowledgements that a later one replaced"`
	NAKSeqSent          uint64 `name:"nak_seq_sent" help:"NAKs sent: sequence error"`
	NAKSeqReceived      uint64 `name:"nak_seq_received" help:"NAKs received: sequence error"`
	NAKInvalidSent      uint64 `name:"nak_invalid_sent" help:"NAKs sent: invalid request"`
	NAKInvalidReceived  uint64 `name:"nak_invalid_received" help:"NAKs received: invalid request"`
	NAKAccessSent       uint64 `name:"nak_access_sent" help:"NAKs sent: remote access error"`
	NAKAccessReceived   uint64 `name:"nak_access_received" help:"NAKs received: remote access error"`
	NAKOpSent           uint64 `name:"nak_op_sent" help:"NAKs sent: remote operational error"`
	NAKOpReceived       uint64 `name:"nak_op_received" help:"NAKs received: remote operational error"`
	NAKOtherReceived    uint64 `name:"nak_other_received" help:"NAKs received with a reserved code"`
	RNRSent             uint64 `name:"rnr_sent" help:"NAKs sent: receiver not ready"`
	RNRReceived         uint64 `name:"rnr_received" help:"NAKs received: receiver not ready"`
	MessagesDropped     uint64 `name:"messages_dropped" help:"messages over UC of which a part came, and not the rest"`
	CQOverflows         uint64 `name:"cq_overflows" help:"completions lost because a completion queue was full"`

	// Drops counts received packets that had no effect, by reason.
	Drops QPDrops
}

// QPDrops counts the received packets that had no effect on a queue pair, by
// reason. A dropped packet may have been answered all the same: those of
// Duplicate and OutOfOrder usually are.
type QPDrops struct {
	State       uint64 `name:"state" help:"the state of the queue pair takes no such packet"`
	Service     uint64 `name:"service" help:"the opcode is of another service, or not supported"`
	Peer        uint64 `name:"peer" help:"not from the peer's address"`
	PKey        uint64 `name:"pkey" help:"of another partition"`
	QPN         uint64 `name:"qpn" help:"for another queue pair"`
	Duplicate   uint64 `name:"duplicate" help:"requests that were executed before"`
	OutOfOrder  uint64 `name:"out_of_order" help:"requests after a gap"`
	RNR         uint64 `name:"rnr" help:"no receive was posted: the peer was told to wait"`
	Invalid     uint64 `name:"invalid" help:"requests that broke the rules: NAK, state ERR"`
	Busy        uint64 `name:"busy" help:"too many answers were waiting; it is as if lost"`
	Ghost       uint64 `name:"ghost" help:"responses to what was never sent"`
	Stale       uint64 `name:"stale" help:"responses to what has completed"`
	Gap         uint64 `name:"gap" help:"responses after a lost one"`
	BadResponse uint64 `name:"bad_response" help:"responses that do not fit their request"`
	RdAtomic    uint64 `name:"rd_atomic" help:"requests that came while too many READs or atomics were unanswered: the peer was told to send them again"`
	Conflict    uint64 `name:"conflict" help:"packets that differed from the one kept for their PSN, and were dropped with it: one of the two is forged"`
	NotPresent  uint64 `name:"not_present" help:"requests for memory whose page had to be fetched first: they are asked for again then"`
	QKey        uint64 `name:"qkey" help:"datagrams that came with another Q_Key than the queue pair's"`
	TooLong     uint64 `name:"too_long" help:"datagrams that the receive had no room for: the receive stayed in the queue"`
}

// The counters of each are nothing but counters, so that they can be added and
// found as those of an array.
const (
	numCounters = int(unsafe.Sizeof(Stats{}) / unsafe.Sizeof(uint64(0)))
	_           = uint(unsafe.Sizeof(QPDrops{})/unsafe.Sizeof(uint64(0))) - uint(numDrops-1) // a field for each reason
	_           = uint(numDrops-1) - uint(unsafe.Sizeof(QPDrops{})/unsafe.Sizeof(uint64(0)))
)

func (s *Stats) all() *[numCounters]uint64 { return (*[numCounters]uint64)(unsafe.Pointer(s)) }

func (d *QPDrops) all() *[numDrops - 1]uint64 { return (*[numDrops - 1]uint64)(unsafe.Pointer(d)) }

// Of returns the counter of a reason, which is not DropNone.
func (d *QPDrops) Of(r Drop) *uint64 { return &d.all()[r-1] }

// Total returns how many packets were dropped, for any reason.
func (d *QPDrops) Total() (n uint64) {
	for _, of := range d.all() {
		n += of
	}
	return n
}

// Each calls f for every counter with its name, such as "tx_packets", in fixed
// order. Those of Drops follow, as "drop_" and the reason.
func (s *Stats) Each(f func(name string, value uint64)) {
	counters.Each(s, f)
	counters.Each(&s.Drops, func(name string, value uint64) { f("drop_"+name, value) })
}

// Help returns what the counter of a name of Each counts.
func (s *Stats) Help(name string) string {
	if reason, ok := strings.CutPrefix(name, "drop_"); ok {
		return counters.Help(&s.Drops, reason)
	}
	return counters.Help(s, name)
}

// Add adds the counters of o, for the sum over several queue pairs.
func (s *Stats) Add(o *Stats) {
	to, from := s.all(), o.all()
	for i := range to {
		to[i] += from[i]
	}
}

// Tally is where a connection counts. What counts while nothing goes wrong
// stands in it. The rest is made when the first of it counts: most of many
// connections never get there, and it is four fifths of Stats.
type Tally struct {
	TxPackets, TxBytes, RxPackets, RxBytes     uint64
	SendPosted, RecvPosted, SendDone, RecvDone uint64
	AcksSent, AcksMerged                       uint64
	Retransmits                                uint64 // rare, but asked for

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
	if d != DropNone {
		*t.Rare().Drops.Of(d)++
	}
}

// Run counts n packets that came with size bytes each.
func (t *Tally) Run(n, size int) {
	t.RxPackets += uint64(n)
	t.RxBytes += uint64(n) * uint64(size)
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
}

// Stats returns what t has counted.
func (t *Tally) Stats() (s Stats) {
	t.AddTo(&s)
	return s
}
