package verbs

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
	EventsDropped uint64 // asynchronous events dropped because nobody read them
}

// LinkStats are the counters of a link. Bytes count BTH to ICRC.
type LinkStats struct {
	TxPackets uint64 // packets handed to the network
	TxBytes   uint64 // bytes in them
	TxBuffers uint64 // buffers they left in: packets or segmentation runs
	TxErrors  uint64 // packets that could not be sent
	TxWaits   uint64 // times that sending had to wait for room

	RxPackets     uint64 // packets received, bad ones included
	RxBytes       uint64 // bytes in them
	RxBuffers     uint64 // buffers they came in: datagrams or coalesced runs
	RxBadICRC     uint64 // of RxPackets, those with a wrong ICRC
	RxWeakICRC    uint64 // of RxPackets, those accepted with a 16-bit check
	RxMalformed   uint64 // datagrams dropped: too short, too long, or fragmented
	RxOverflow    uint64 // datagrams lost because the receive buffer was full
	SocketErrors  uint64 // pending socket errors (ICMP) that were ignored
	OffloadFaults uint64 // times that the device refused segmentation offload

	// TxShm counts those of TxPackets that went through memory shared with
	// another process of this host, see Config.SharedMemory.
	TxShm uint64
	RxShm uint64 // of RxPackets, those that came through such memory

	// Where the port has an owner: packets that the kernel has coalesced
	// after those of another process, and that came there.
	TxStrays      uint64 // for other processes, that were handed over
	RxStrays      uint64 // of RxPackets, handed over by another process
	StraysDropped uint64 // for other processes, that were dropped
}

// QPStats is a snapshot of the counters of a queue pair since it was made, or
// their sum over several. Bytes are those of messages: payload without headers.
type QPStats struct {
	TxPackets uint64 // requests and responses, retransmissions included
	TxBytes   uint64 // payload in them
	RxPackets uint64 // requests and responses, dropped ones included
	RxBytes   uint64 // payload in them

	SendPosted uint64 // send requests accepted
	RecvPosted uint64 // receives accepted
	SendDone   uint64 // send requests that succeeded, unsignaled ones too
	RecvDone   uint64 // receives that succeeded

	// Retransmits counts request packets sent again.
	Retransmits uint64
	// SpuriousRetransmits counts those of Retransmits that were not needed:
	// the peer was silent for long, but nothing was lost.
	SpuriousRetransmits uint64
	// Timeouts counts local ACK timeouts.
	Timeouts uint64
	// Probes counts packets sent again before the timeout, see
	// Config.MinProbe.
	Probes uint64
	// Restarts counts retransmissions without a timeout, because of
	// sequence NAKs and lost responses.
	Restarts uint64
	// Repairs counts the restarts and probes that sent a few packets,
	// instead of all from there on.
	Repairs uint64
	// RNRWaits counts receiver-not-ready NAKs that this side waited for.
	RNRWaits uint64
	// CreditStalls counts how often sending stopped for lack of the peer's
	// credits.
	CreditStalls uint64
	// WindowCuts counts how often the send window was made smaller.
	WindowCuts uint64
	// RateCuts counts how often congestion control made the rate lower.
	// Flow.Rate is the rate now.
	RateCuts uint64
	// RateWaits counts how often data had to wait for its rate, that of
	// QP.SetRateLimit included.
	RateWaits uint64

	ECNMarked    uint64 // packets with data that the network had marked
	CNPsSent     uint64 // congestion notifications for them
	CNPsReceived uint64 // congestion notifications of the peer

	// Reordered counts packets that were kept in the reorder buffer until
	// the gap before them was closed.
	Reordered uint64
	// ReorderDiscarded counts those of Reordered that were dropped unused:
	// too old, or in conflict with another packet for the same PSN.
	ReorderDiscarded uint64

	ReadReplays   uint64 // READ requests answered again
	AtomicReplays uint64 // atomics and ATOMIC WRITEs answered again, without executing them
	FlushReplays  uint64 // FLUSHes answered again
	AcksSent      uint64 // acknowledgements sent
	AcksMerged    uint64 // acknowledgements that a later one replaced

	NAKSeqSent         uint64 // NAKs sent: sequence error
	NAKSeqReceived     uint64 // NAKs received: sequence error
	NAKInvalidSent     uint64 // NAKs sent: invalid request
	NAKInvalidReceived uint64 // NAKs received: invalid request
	NAKAccessSent      uint64 // NAKs sent: remote access error
	NAKAccessReceived  uint64 // NAKs received: remote access error
	NAKOpSent          uint64 // NAKs sent: remote operational error
	NAKOpReceived      uint64 // NAKs received: remote operational error
	NAKOtherReceived   uint64 // NAKs received with a reserved code
	RNRSent            uint64 // NAKs sent: receiver not ready
	RNRReceived        uint64 // NAKs received: receiver not ready

	// MessagesDropped counts messages over UC of which a part came, and not
	// the rest.
	MessagesDropped uint64

	CQOverflows uint64 // completions lost because a completion queue was full

	// Drops counts received packets that had no effect, by reason.
	Drops QPDrops
}

// QPDrops counts the received packets that had no effect on a queue pair, by
// reason. A dropped packet may have been answered all the same: those of
// Duplicate and OutOfOrder usually are.
type QPDrops struct {
	State       uint64 // the state of the queue pair takes no such packet
	Service     uint64 // the opcode is of another service, or not supported
	Peer        uint64 // not from the peer's address
	PKey        uint64 // of another partition
	QPN         uint64 // for another queue pair
	Duplicate   uint64 // requests that were executed before
	OutOfOrder  uint64 // requests behind a gap
	RNR         uint64 // no receive was posted: the peer was told to wait
	Invalid     uint64 // requests that broke the rules: NAK, state ERR
	Busy        uint64 // too many answers were waiting; it is as if lost
	Ghost       uint64 // responses to what was never sent
	Stale       uint64 // responses to what has completed
	Gap         uint64 // responses behind a lost one
	BadResponse uint64 // responses that do not fit their request

	// RdAtomic counts requests that came while too many READs or atomics
	// were unanswered: the peer was told to send them again.
	RdAtomic uint64

	// Conflict counts packets that differed from the one kept for their
	// PSN. Both were dropped, because one of them is forged.
	Conflict uint64

	// NotPresent counts requests for memory whose page had to be fetched
	// first. They are asked for again then.
	NotPresent uint64
	// QKey counts datagrams that came with another Q_Key than the queue
	// pair's.
	QKey uint64
	// TooLong counts datagrams that the receive had no room for. The
	// receive stayed in the queue.
	TooLong uint64
}

// Each calls f for every counter with its name, such as "tx_packets", in fixed
// order. Those of Drops follow, as "drop_" and the reason.
func (s *QPStats) Each(f func(name string, value uint64)) {
	for _, c := range s.counters() {
		f(c.name, *c.value)
	}
	for _, c := range s.Drops.counters() {
		f("drop_"+c.name, *c.value)
	}
}

type counter struct {
	name  string
	value *uint64
}

// Total returns how many packets were dropped, for whatever reason.
func (d *QPDrops) Total() uint64 {
	var n uint64
	for _, c := range d.counters() {
		n += *c.value
	}
	return n
}

// counters lists every field of d. The names are those of Stats.Drops.
func (d *QPDrops) counters() []counter {
	return []counter{
		{"state", &d.State},
		{"service", &d.Service},
		{"peer", &d.Peer},
		{"pkey", &d.PKey},
		{"qpn", &d.QPN},
		{"duplicate", &d.Duplicate},
		{"out_of_order", &d.OutOfOrder},
		{"rnr", &d.RNR},
		{"invalid", &d.Invalid},
		{"busy", &d.Busy},
		{"ghost", &d.Ghost},
		{"stale", &d.Stale},
		{"gap", &d.Gap},
		{"bad_response", &d.BadResponse},
		{"rd_atomic", &d.RdAtomic},
		{"conflict", &d.Conflict},
		{"not_present", &d.NotPresent},
		{"qkey", &d.QKey},
		{"too_long", &d.TooLong},
	}
}

// counters lists every field of s but Drops.
func (s *QPStats) counters() []counter {
	return []counter{
		{"tx_packets", &s.TxPackets},
		{"tx_bytes", &s.TxBytes},
		{"rx_packets", &s.RxPackets},
		{"rx_bytes", &s.RxBytes},
		{"send_posted", &s.SendPosted},
		{"recv_posted", &s.RecvPosted},
		{"send_done", &s.SendDone},
		{"recv_done", &s.RecvDone},
		{"retransmits", &s.Retransmits},
		{"spurious_retransmits", &s.SpuriousRetransmits},
		{"timeouts", &s.Timeouts},
		{"probes", &s.Probes},
		{"restarts", &s.Restarts},
		{"rnr_waits", &s.RNRWaits},
		{"credit_stalls", &s.CreditStalls},
		{"window_cuts", &s.WindowCuts},
		{"rate_cuts", &s.RateCuts},
		{"rate_waits", &s.RateWaits},
		{"ecn_marked", &s.ECNMarked},
		{"cnps_sent", &s.CNPsSent},
		{"cnps_received", &s.CNPsReceived},
		{"repairs", &s.Repairs},
		{"reordered", &s.Reordered},
		{"reorder_discarded", &s.ReorderDiscarded},
		{"read_replays", &s.ReadReplays},
		{"atomic_replays", &s.AtomicReplays},
		{"flush_replays", &s.FlushReplays},
		{"acks_sent", &s.AcksSent},
		{"acks_merged", &s.AcksMerged},
		{"nak_seq_sent", &s.NAKSeqSent},
		{"nak_seq_received", &s.NAKSeqReceived},
		{"nak_invalid_sent", &s.NAKInvalidSent},
		{"nak_invalid_received", &s.NAKInvalidReceived},
		{"nak_access_sent", &s.NAKAccessSent},
		{"nak_access_received", &s.NAKAccessReceived},
		{"nak_op_sent", &s.NAKOpSent},
		{"nak_op_received", &s.NAKOpReceived},
		{"nak_other_received", &s.NAKOtherReceived},
		{"rnr_sent", &s.RNRSent},
		{"rnr_received", &s.RNRReceived},
		{"messages_dropped", &s.MessagesDropped},
		{"cq_overflows", &s.CQOverflows},
	}
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
