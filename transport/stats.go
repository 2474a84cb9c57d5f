package transport

import (
	"sync/atomic"

	"github.com/gosoftroce/rocev2/internal/counters"
	"github.com/gosoftroce/rocev2/rocev2"
)

// LinkStats are the counters of a link. Bytes count BTH to ICRC. Each field has
// the name that Each gives it, and what it counts, as tags.
type LinkStats struct {
	TxPackets     uint64 `name:"tx_packets" help:"packets handed to the network"`
	TxBytes       uint64 `name:"tx_bytes" help:"bytes handed to the network"`
	TxBuffers     uint64 `name:"tx_buffers" help:"buffers that packets left in: single ones or segmentation runs"`
	TxErrors      uint64 `name:"tx_errors" help:"packets that could not be sent"`
	TxWaits       uint64 `name:"tx_waits" help:"times that sending had to wait for room"`
	RxPackets     uint64 `name:"rx_packets" help:"packets received, bad ones included"`
	RxBytes       uint64 `name:"rx_bytes" help:"bytes received"`
	RxBuffers     uint64 `name:"rx_buffers" help:"buffers that packets came in: datagrams or coalesced runs"`
	RxBadICRC     uint64 `name:"rx_bad_icrc" help:"packets received with a wrong ICRC"`
	RxWeakICRC    uint64 `name:"rx_weak_icrc" help:"packets received and accepted with a 16-bit check of the ICRC"`
	RxMalformed   uint64 `name:"rx_malformed" help:"datagrams dropped: too short, too long, or fragmented"`
	RxOverflow    uint64 `name:"rx_overflow" help:"datagrams lost because the receive buffer was full"`
	SocketErrors  uint64 `name:"socket_errors" help:"pending socket errors (ICMP) that were ignored"`
	OffloadFaults uint64 `name:"offload_faults" help:"times that the device refused segmentation offload"`
	TxShm         uint64 `name:"tx_shm" help:"packets sent through memory shared with another process of this host, see Config.SharedMemory"`
	RxShm         uint64 `name:"rx_shm" help:"packets received through memory shared with another process of this host"`
	TxStrays      uint64 `name:"tx_strays" help:"packets that the kernel coalesced after those of this process and are for another process of the port, handed over"`
	RxStrays      uint64 `name:"rx_strays" help:"packets received that another process of the port has handed over"`
	StraysDropped uint64 `name:"strays_dropped" help:"packets for another process of the port that were dropped"`
}

// Each calls f for every counter with its name, such as "tx_packets", in fixed
// order.
func (s *LinkStats) Each(f func(name string, value uint64)) { counters.Each(s, f) }

// Help returns what the counter of a name of Each counts.
func (s *LinkStats) Help(name string) string { return counters.Help(s, name) }

// Add adds the counters of o, as a device with several links does.
func (s *LinkStats) Add(o *LinkStats) { counters.Add(s, o) }

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
