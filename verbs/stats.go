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
	// unknown_qpn, unknown_group, wrong_source_port, wrong_security. By a
	// queue pair: the fields of QPDrops, as out_of_order for OutOfOrder.
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

// Stats returns the device's counters since it was opened.
func (d *Device) Stats() Stats { return statsFrom(d.core.Stats()) }

// QPStats returns the sum of the counters of all queue pairs since the device
// was opened, those that are closed included. With thousands of queue pairs it
// costs some milliseconds.
func (d *Device) QPStats() QPStats { return d.core.QPStats() }

// Stats returns the queue pair's counters.
func (q *QP) Stats() QPStats { return q.core.Stats() }
