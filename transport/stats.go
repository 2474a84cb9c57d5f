package transport

// Add adds the counters of o, as a device with several links does.
func (s *LinkStats) Add(o *LinkStats) {
	s.TxPackets += o.TxPackets
	s.TxBytes += o.TxBytes
	s.TxBuffers += o.TxBuffers
	s.TxErrors += o.TxErrors
	s.TxWaits += o.TxWaits
	s.RxPackets += o.RxPackets
	s.RxBytes += o.RxBytes
	s.RxBuffers += o.RxBuffers
	s.RxBadICRC += o.RxBadICRC
	s.RxWeakICRC += o.RxWeakICRC
	s.RxMalformed += o.RxMalformed
	s.RxOverflow += o.RxOverflow
	s.SocketErrors += o.SocketErrors
	s.OffloadFaults += o.OffloadFaults
}
