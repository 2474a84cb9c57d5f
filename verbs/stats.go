package verbs

import (
	"strings"

	"github.com/gosoftroce/rocev2/internal/counters"
)

// Stats is a snapshot of a device's counters since it was opened.
type Stats struct {
	// Link counts what passes the link.
	Link LinkStats

	// Drops counts received packets that had no effect, by reason. Reasons
	// that never occurred are absent.
	//
	// Before a queue pair sees the packet: short_packet, unknown_opcode,
	// wrong_version, wrong_length, wrong_pad, malformed, bad_icrc,
	// unknown_qpn, unknown_group, wrong_source_port. By a queue pair: the
	// fields of QPDrops, as out_of_order for OutOfOrder.
	Drops map[string]uint64

	// LoopPackets counts packets that passed inside the device, see
	// Config.Loopback. Link counts none of them.
	LoopPackets uint64
	LoopBytes   uint64 // bytes in them, BTH to ICRC

	SendErrors uint64 // batches of which the link refused a part

	QPs           int    // open queue pairs
	MRs           int    // open memory regions
	EventsDropped uint64 // asynchronous events dropped because they were not read
}

// QPStats is a snapshot of the counters of a queue pair since it was made, or
// their sum over several. Bytes are those of messages: payload without headers.
// Each field has the name that Each gives it, and what it counts, as tags.
type QPStats struct {
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

// Each calls f for every counter with its name, such as "tx_packets", in fixed
// order. Those of Drops follow, as "drop_" and the reason.
func (s *QPStats) Each(f func(name string, value uint64)) {
	counters.Each(s, f)
	counters.Each(&s.Drops, func(name string, value uint64) { f("drop_"+name, value) })
}

// Help returns what the counter of a name of Each counts.
func (s *QPStats) Help(name string) string {
	if reason, ok := strings.CutPrefix(name, "drop_"); ok {
		return counters.Help(&s.Drops, reason)
	}
	return counters.Help(s, name)
}

// Total returns how many packets were dropped, for any reason.
func (d *QPDrops) Total() (n uint64) {
	counters.Each(d, func(_ string, value uint64) { n += value })
	return n
}

// Stats returns the device's counters since it was opened.
func (d *Device) Stats() Stats { return statsFrom(d.core.Stats()) }

// QPStats returns the sum of the counters of all queue pairs since the device
// was opened, those that are closed included. With thousands of queue pairs it
// costs some milliseconds.
func (d *Device) QPStats() QPStats {
	s := d.core.QPStats()
	return qpStatsFrom(&s)
}

// Stats returns the queue pair's counters.
func (q *QP) Stats() QPStats {
	s := q.core.Stats()
	return qpStatsFrom(&s)
}
