package conn

// counter is a field of Stats with its name.
type counter struct {
	name  string
	value *uint64
}

// counters lists every field of s but Drops.
func (s *Stats) counters() [42]counter {
	return [...]counter{
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

// Each calls f for every counter with its name, in fixed order. A reason of
// Drops has the name drop_ and its String.
func (s *Stats) Each(f func(name string, value uint64)) {
	for _, c := range s.counters() {
		f(c.name, *c.value)
	}
	for d := DropNone + 1; d < numDrops; d++ {
		f("drop_"+d.String(), s.Drops[d])
	}
}

// Add adds the counters of o, for the sum over several queue pairs.
func (s *Stats) Add(o *Stats) {
	theirs := o.counters()
	for i, c := range s.counters() {
		*c.value += *theirs[i].value
	}
	for i, n := range o.Drops {
		s.Drops[i] += n
	}
}
