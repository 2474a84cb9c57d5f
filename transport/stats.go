package transport

import (
	"sync/atomic"

	"github.com/gosoftroce/rocev2/rocev2"
)

// LinkStats are the counters of a link. Bytes count BTH to ICRC.
type LinkStats struct {
	TxPackets uint64 // packets handed to the network
	TxBytes   uint64
	TxBuffers uint64 // buffers they left in: packets or segmentation runs
	TxErrors  uint64 // packets that could not be sent
	TxWaits   uint64 // times Send had to wait for room

	RxPackets     uint64 // packets delivered, bad ones included
	RxBytes       uint64
	RxBuffers     uint64 // buffers they came in: datagrams or coalesced runs
	RxBadICRC     uint64 // of these, wrong ICRC
	RxWeakICRC    uint64 // of these, accepted with a 16-bit check
	RxMalformed   uint64 // datagrams dropped: too short for a packet, too long, or fragmented on the way
	RxOverflow    uint64 // datagrams lost because the receive buffer was full
	SocketErrors  uint64 // pending socket errors (ICMP) swallowed
	OffloadFaults uint64 // times the device refused segmentation offload

	TxShm uint64 // of TxPackets, through memory shared with a process of this host
	RxShm uint64 // of RxPackets

	// Of a link that has a part of a port, see Leased: packets that came to
	// another part, because the kernel has coalesced them after its own.
	TxStrays      uint64 // for other parts, that were handed over
	RxStrays      uint64 // of RxPackets, handed over by another part
	StraysDropped uint64 // for other parts, that were dropped
}

// linkStat is one counter of LinkStats.
type linkStat struct {
	name  string
	value *uint64
}

// all lists the counters in the order of the struct. Everything that goes
// through all of them uses it.
func (s *LinkStats) all() [19]linkStat {
	return [...]linkStat{
		{"tx_packets", &s.TxPackets},
		{"tx_bytes", &s.TxBytes},
		{"tx_buffers", &s.TxBuffers},
		{"tx_errors", &s.TxErrors},
		{"tx_waits", &s.TxWaits},
		{"rx_packets", &s.RxPackets},
		{"rx_bytes", &s.RxBytes},
		{"rx_buffers", &s.RxBuffers},
		{"rx_bad_icrc", &s.RxBadICRC},
		{"rx_weak_icrc", &s.RxWeakICRC},
		{"rx_malformed", &s.RxMalformed},
		{"rx_overflow", &s.RxOverflow},
		{"socket_errors", &s.SocketErrors},
		{"offload_faults", &s.OffloadFaults},
		{"tx_shm", &s.TxShm},
		{"rx_shm", &s.RxShm},
		{"tx_strays", &s.TxStrays},
		{"rx_strays", &s.RxStrays},
		{"strays_dropped", &s.StraysDropped},
	}
}

// Each calls f for every counter with its name, in fixed order.
func (s *LinkStats) Each(f func(name string, value uint64)) {
	for _, c := range s.all() {
		f(c.name, *c.value)
	}
}

// Add adds the counters of o, as a device with several links does.
func (s *LinkStats) Add(o *LinkStats) {
	from := o.all()
	for i, c := range s.all() {
		*c.value += *from[i].value
	}
}

// LinkCounters are LinkStats as a link counts them, while others read. Links
// add once per system call, not once per packet.
type LinkCounters struct {
	txPackets, txBytes, txBuffers, txErrors, txWaits atomic.Uint64

	rxPackets, rxBytes, rxBuffers, rxBadICRC, rxWeakICRC, rxMalformed, rxOverflow atomic.Uint64

	socketErrors, offloadFaults atomic.Uint64

	txShm, rxShm atomic.Uint64
}

// Sent counts packets that left in the given number of buffers, with the given
// number of bytes.
func (c *LinkCounters) Sent(packets, buffers, bytes int) {
	c.txPackets.Add(uint64(packets))
	c.txBuffers.Add(uint64(buffers))
	c.txBytes.Add(uint64(bytes))
}

// Received counts the packets of b, which came in the given number of buffers,
// and the datagrams that were dropped because they cannot be packets.
func (c *LinkCounters) Received(b *RxBatch, buffers, malformed int) {
	bytes, bad, weak := 0, 0, 0
	for i := range b.packets {
		p := &b.packets[i]
		bytes += len(p.Data)
		switch p.ICRC {
		case ICRCBad:
			bad++
		case ICRCWeak:
			weak++
		}
	}
	for i := range b.placed {
		r := &b.placed[i]
		bytes += len(r.Payload) + r.N*(rocev2.BTHLen+rocev2.ICRCLen)
	}
	c.rxPackets.Add(uint64(b.Len()))
	c.rxBytes.Add(uint64(bytes))
	c.rxBuffers.Add(uint64(buffers))
	if bad|weak|malformed != 0 {
		c.rxBadICRC.Add(uint64(bad))
		c.rxWeakICRC.Add(uint64(weak))
		c.rxMalformed.Add(uint64(malformed))
	}
}

// SendFailed counts packets that could not be sent.
func (c *LinkCounters) SendFailed(packets int) { c.txErrors.Add(uint64(packets)) }

// SendWaited counts a wait for room.
func (c *LinkCounters) SendWaited() { c.txWaits.Add(1) }

// Overflowed counts a datagram for which the receive buffer had no room.
func (c *LinkCounters) Overflowed() { c.rxOverflow.Add(1) }

// SetOverflow sets the count, for a system that keeps it itself.
func (c *LinkCounters) SetOverflow(datagrams uint64) { c.rxOverflow.Store(datagrams) }

// SocketError counts a pending socket error.
func (c *LinkCounters) SocketError() { c.socketErrors.Add(1) }

// OffloadFault counts a refusal of segmentation offload.
func (c *LinkCounters) OffloadFault() { c.offloadFaults.Add(1) }

// SentShared counts packets that Sent has counted, too.
func (c *LinkCounters) SentShared(packets int) { c.txShm.Add(uint64(packets)) }

// ReceivedShared counts packets that Received has counted, too.
func (c *LinkCounters) ReceivedShared(packets int) { c.rxShm.Add(uint64(packets)) }

// Load returns the counters as they are now.
func (c *LinkCounters) Load() LinkStats {
	return LinkStats{
		TxPackets: c.txPackets.Load(), TxBytes: c.txBytes.Load(), TxBuffers: c.txBuffers.Load(),
		TxErrors: c.txErrors.Load(), TxWaits: c.txWaits.Load(),
		RxPackets: c.rxPackets.Load(), RxBytes: c.rxBytes.Load(), RxBuffers: c.rxBuffers.Load(),
		RxBadICRC: c.rxBadICRC.Load(), RxWeakICRC: c.rxWeakICRC.Load(),
		RxMalformed: c.rxMalformed.Load(), RxOverflow: c.rxOverflow.Load(),
		SocketErrors: c.socketErrors.Load(), OffloadFaults: c.offloadFaults.Load(),
		TxShm: c.txShm.Load(), RxShm: c.rxShm.Load(),
	}
}
