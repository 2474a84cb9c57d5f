package hca

import (
	"errors"

	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// Reasons for which a device drops a datagram before any queue pair sees it.
const (
	dropShort = iota
	dropOpcode
	dropVersion
	dropLength
	dropPad
	dropMalformed
	dropBadICRC
	dropUnknownQP
	dropSourcePort
	deviceDrops
)

var deviceDropNames = [deviceDrops]string{
	dropShort:      "short_packet",
	dropOpcode:     "unknown_opcode",
	dropVersion:    "wrong_version",
	dropLength:     "wrong_length",
	dropPad:        "wrong_pad",
	dropMalformed:  "malformed",
	dropBadICRC:    "bad_icrc",
	dropUnknownQP:  "unknown_qpn",
	dropSourcePort: "wrong_source_port",
}

// dropCounters counts what a shard drops.
type dropCounters struct {
	device [deviceDrops]uint64
	qp     [qp.NumDrops]uint64 // by qp.Drop
}

func (c *dropCounters) malformed(err error) {
	switch {
	case errors.Is(err, rocev2.ErrShort):
		c.device[dropShort]++
	case errors.Is(err, rocev2.ErrOpcode):
		c.device[dropOpcode]++
	case errors.Is(err, rocev2.ErrVersion):
		c.device[dropVersion]++
	case errors.Is(err, rocev2.ErrLength):
		c.device[dropLength]++
	case errors.Is(err, rocev2.ErrPad):
		c.device[dropPad]++
	default:
		c.device[dropMalformed]++
	}
}

// Stats is a snapshot of a device's counters.
type Stats struct {
	Link        transport.LinkStats
	Drops       map[string]uint64 // received datagrams dropped, by reason; reasons that never occurred are absent
	LoopPackets uint64            // packets that passed inside the device (Config.Loopback); Link counts none of them
	LoopBytes   uint64            // of these, BTH to ICRC, which is not computed
	SendErrors  uint64            // batches of which the link refused a part
	QPs         int
	MRs         int
	Events      uint64 // asynchronous events dropped because nobody read them
}

// Stats returns the device's counters since it was opened.
func (d *Device) Stats() Stats {
	st := Stats{Drops: map[string]uint64{}}
	for _, s := range d.shards {
		ls := s.link.Stats()
		st.Link.Add(&ls)
		s.mu.Lock()
		for i, n := range s.drops.device {
			if n > 0 {
				st.Drops[deviceDropNames[i]] += n
			}
		}
		for i, n := range s.drops.qp {
			if n > 0 {
				st.Drops[qp.Drop(i).String()] += n
			}
		}
		st.SendErrors += s.txErrs
		st.LoopPackets += s.loopPackets
		st.LoopBytes += s.loopBytes
		s.mu.Unlock()
	}
	d.mu.Lock()
	st.QPs, st.MRs = d.nQP, d.nMR
	d.mu.Unlock()
	d.events.mu.Lock()
	st.Events = d.events.dropped
	d.events.mu.Unlock()
	return st
}

// QPStats returns the sum of the counters of all queue pairs since the device
// was opened, those that are closed included. It looks at every queue pair:
// with thousands of them it takes some milliseconds of the datapath's time.
func (d *Device) QPStats() qp.Stats {
	var sum qp.Stats
	for _, s := range d.shards {
		s.mu.Lock()
		sum.Add(&s.past)
		s.qps.each(func(q *QP) { sum.Add(q.core.Stats()) })
		s.mu.Unlock()
	}
	return sum
}
