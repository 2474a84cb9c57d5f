package transport

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/gosoftroce/rocev2/rocev2"
)

// Link carries the datagrams of one local address.
//
// Send calls are serialised by the caller, and so are Recv calls. One
// goroutine at a time may be in Wait; Recv, Send, Stats and Close may run
// beside it and beside each other.
type Link interface {
	// Addr is the local address. A link-local IPv6 address has its zone.
	Addr() netip.Addr

	// Capabilities says what the link can do. It may change while the link
	// runs only in MTU and LinkMTU; see ReadLinkMTU.
	Capabilities() Capabilities

	// Wait blocks until something may be there to receive; it may return
	// without reason. After a Recv that failed it waits some time, up to
	// 100 ms: what the link stands on may be broken. Once the link is
	// closed it returns ErrClosed.
	Wait() error

	// Wake makes a Wait return: the one that blocks now, or else the next.
	Wake()

	// Recv resets b and fills it with what is there, without blocking. It
	// returns the number of packets, 0 when nothing is there. Packets with
	// a wrong ICRC are delivered too, marked. What b holds is valid until b
	// is used again. An error but ErrClosed need not be for good: the next
	// call may succeed.
	Recv(b *RxBatch) (int, error)

	// Send seals and transmits the packets of b in order and leaves b
	// otherwise as it is. It blocks while the link is full. Packets that
	// cannot be sent are reported by a *SendError; the others are still
	// sent.
	Send(b *TxBatch) error

	// Close wakes a blocked Wait or Send and releases the link. A second
	// Close returns ErrClosed.
	Close() error

	// Stats returns the counters of the link since it was opened.
	Stats() LinkStats
}

// Capabilities describes a link.
type Capabilities struct {
	MTU            rocev2.MTU // largest path MTU that fits
	LinkMTU        int        // bytes of an IP packet
	Port           uint16     // UDP port that the link is bound to
	FullICRC       bool       // all 32 bits are checked for any peer; else a foreign IPv4 peer's ICRC checks 16 bits
	ECN            bool       // traffic classes (ECN bits included) are sent and reported
	SegmentOffload bool       // runs leave as one buffer; segment i has Identification i
	ReceiveOffload bool       // received runs arrive coalesced
	SourcePorts    bool       // Path.SrcPort other than the link's own is honoured; see OpenSourcePort
	RecvBuffer     int        // bytes that the receive buffer holds, as granted; 0 = unknown
	SendBuffer     int        // bytes that the send buffer holds, as granted; 0 = unknown
}

// ErrClosed is returned by the methods of a closed link. It wraps
// net.ErrClosed.
var ErrClosed = fmt.Errorf("transport: link closed: %w", net.ErrClosed)

// SendError reports that some packets of a batch were not sent.
type SendError struct {
	Index  int   // first packet that failed
	Failed int   // how many failed
	Err    error // why the first one failed
}

func (e *SendError) Error() string {
	return fmt.Sprintf("transport: %d packets not sent, first is %d: %v", e.Failed, e.Index, e.Err)
}

// Unwrap returns the cause of the first failure.
func (e *SendError) Unwrap() error { return e.Err }

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
	RxMalformed   uint64 // datagrams dropped: too short for a packet or too long
	RxOverflow    uint64 // datagrams lost because the receive buffer was full
	SocketErrors  uint64 // pending socket errors (ICMP) swallowed
	OffloadFaults uint64 // times the device refused segmentation offload
}

// Each calls f for every counter with its name, in fixed order.
func (s *LinkStats) Each(f func(name string, value uint64)) {
	f("tx_packets", s.TxPackets)
	f("tx_bytes", s.TxBytes)
	f("tx_buffers", s.TxBuffers)
	f("tx_errors", s.TxErrors)
	f("tx_waits", s.TxWaits)
	f("rx_packets", s.RxPackets)
	f("rx_bytes", s.RxBytes)
	f("rx_buffers", s.RxBuffers)
	f("rx_bad_icrc", s.RxBadICRC)
	f("rx_weak_icrc", s.RxWeakICRC)
	f("rx_malformed", s.RxMalformed)
	f("rx_overflow", s.RxOverflow)
	f("socket_errors", s.SocketErrors)
	f("offload_faults", s.OffloadFaults)
}
