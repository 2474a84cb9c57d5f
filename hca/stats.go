package hca

import (
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/transport"
)

// Stats is a snapshot of a device's counters.
type Stats struct {
	Link        transport.LinkStats
	Drops       map[string]uint64 // received datagrams dropped, by reason; reasons that never occurred are absent
	LoopPackets uint64            // packets that passed inside the device (Config.Loopback); Link counts none of them
	LoopBytes   uint64            // of these, BTH to ICRC, which is not computed
	SendErrors  uint64            // batches of which the link refused a part
	QPs         int
	MRs         int
	Events      uint64 // asynchronous events dropped because they were not read
}

// dropForwarded is the reason for packets that were lost between shards: too
// many waited for the one that they belong to.
const dropForwarded = "shard_queue_full"

// Stats returns the device's counters since it was opened.
func (d *Device) Stats() Stats {
	st := Stats{Drops: map[string]uint64{}}
	for _, s := range d.shards {
		ls := s.link.Stats()
		st.Link.Add(&ls)
		if n := s.forwarded.drops(); n > 0 {
			st.Drops[dropForwarded] += n
		}
		s.lock()
		c := s.eng.Counters()
		c.EachDrop(func(reason string, n uint64) { st.Drops[reason] += n })
		st.SendErrors += s.out.txErrs
		st.LoopPackets += c.LoopPackets
		st.LoopBytes += c.LoopBytes
		s.unlock()
	}
	st.QPs, st.MRs = d.stock.has(kindQP), d.stock.has(kindMR)
	st.Events = d.events.lost()
	return st
}

// QPStats returns the sum of the counters of all queue pairs since the device
// was opened, those that are closed included. It looks at every queue pair:
// with thousands of them it takes some milliseconds of the datapath's time.
func (d *Device) QPStats() qp.Stats {
	var sum qp.Stats
	for _, s := range d.shards {
		s.lock()
		part := s.eng.QPStats()
		s.unlock()
		sum.Add(&part)
	}
	return sum
}
