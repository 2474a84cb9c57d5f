package metrics

import "github.com/gosoftroce/rocev2/verbs"

// source is what a scrape reads of a device, once.
type source struct {
	stats verbs.Stats
	qps   verbs.QPStats
	guard *verbs.GuardCounters // nil: not all packets are sealed
	seals *verbs.SealCounters  // nil: queue pairs cannot seal
}

func sourceOf(d *verbs.Device) *source {
	s := &source{stats: d.Stats(), qps: d.QPStats()}
	if c, secured := d.GuardCounters(); secured {
		s.guard = &c
	}
	if d.SealedMTU(d.Addr()) > 0 {
		c := d.SealCounters()
		s.seals = &c
	}
	return s
}

// sealing calls f for every counter of what seals packets.
func (s *source) sealing(f func(name string, value uint64)) {
	if s.guard != nil {
		s.guard.Each(f)
	}
	if s.seals != nil {
		s.seals.Each(f)
	}
}

// Counter is a metric under a name that operators know.
type Counter struct {
	Name string // without prefix and suffix
	From string // which drivers have it, too: "rxe", "mlx5", "rxe, mlx5"
	Help string

	value func(*source) uint64
}

// Known lists the counters that Linux rxe and mlx5 have as well, with what they
// count here.
var Known = []Counter{
	{"sent_pkts", "rxe", "packets handed to the network", func(s *source) uint64 { return s.stats.Link.TxPackets }},
	{"rcvd_pkts", "rxe", "packets received, bad ones included", func(s *source) uint64 { return s.stats.Link.RxPackets }},
	{"rx_icrc_encapsulated", "mlx5", "packets received with a wrong ICRC", func(s *source) uint64 { return s.stats.Link.RxBadICRC }},
	{"duplicate_request", "rxe, mlx5", "requests received again that were executed before", func(s *source) uint64 { return s.qps.Drops.Duplicate }},
	{"out_of_seq_request", "rxe", "requests received after a gap", func(s *source) uint64 { return s.qps.Drops.OutOfOrder + s.qps.Reordered }},
	{"out_of_sequence", "mlx5", "packets received after a gap, responses included", func(s *source) uint64 {
		return s.qps.Drops.OutOfOrder + s.qps.Drops.Gap + s.qps.Reordered
	}},
	{"packet_seq_err", "mlx5", "sequence NAKs received: the peer has not got a packet", func(s *source) uint64 { return s.qps.NAKSeqReceived }},
	{"rcvd_seq_err", "rxe", "sequence NAKs received: the peer has not got a packet", func(s *source) uint64 { return s.qps.NAKSeqReceived }},
	{"implied_nak_seq_err", "mlx5", "responses received after a lost one", func(s *source) uint64 { return s.qps.Drops.Gap }},
	{"out_of_buffer", "mlx5", "messages that found no receive posted", func(s *source) uint64 { return s.qps.RNRSent }},
	{"send_rnr_err", "rxe", "receiver-not-ready NAKs sent", func(s *source) uint64 { return s.qps.RNRSent }},
	{"rcvd_rnr_err", "rxe", "receiver-not-ready NAKs received", func(s *source) uint64 { return s.qps.RNRReceived }},
	{"local_ack_timeout_err", "mlx5", "local ACK timeouts", func(s *source) uint64 { return s.qps.Timeouts }},
	{"completer_retry_err", "rxe", "times that the requester went back and sent again", func(s *source) uint64 { return s.qps.Restarts + s.qps.Timeouts + s.qps.Probes }},
	{"ack_deferred", "rxe", "acknowledgements that a later one replaced", func(s *source) uint64 { return s.qps.AcksMerged }},
	{"req_remote_access_errors", "mlx5", "remote access NAKs received", func(s *source) uint64 { return s.qps.NAKAccessReceived }},
	{"req_remote_invalid_request", "mlx5", "invalid request NAKs received", func(s *source) uint64 { return s.qps.NAKInvalidReceived }},
	{"resp_remote_access_errors", "mlx5", "remote access NAKs sent", func(s *source) uint64 { return s.qps.NAKAccessSent }},
	{"resp_local_length_error", "mlx5", "datagrams that their receive had no room for", func(s *source) uint64 { return s.qps.Drops.TooLong }},
	{"np_ecn_marked_roce_packets", "mlx5", "packets received that the network had marked", func(s *source) uint64 { return s.qps.ECNMarked }},
	{"np_cnp_sent", "mlx5", "congestion notifications sent", func(s *source) uint64 { return s.qps.CNPsSent }},
	{"rp_cnp_handled", "mlx5", "congestion notifications received", func(s *source) uint64 { return s.qps.CNPsReceived }},
	{"send_err", "rxe", "packets that could not be sent", func(s *source) uint64 { return s.stats.Link.TxErrors }},
	{"rdma_sends", "rxe", "send requests that succeeded, WRITEs and READs included", func(s *source) uint64 { return s.qps.SendDone }},
	{"rdma_recvs", "rxe", "receives that succeeded", func(s *source) uint64 { return s.qps.RecvDone }},
	{"port_xmit_data_bytes", "mlx5", "bytes handed to the network, BTH to ICRC", func(s *source) uint64 { return s.stats.Link.TxBytes }},
	{"port_rcv_data_bytes", "mlx5", "bytes received, BTH to ICRC", func(s *source) uint64 { return s.stats.Link.RxBytes }},
}
