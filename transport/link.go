package transport

import (
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

	// Capabilities says what the link can do. While the link runs, only MTU
	// and LinkMTU may change; see ReadLinkMTU.
	Capabilities() Capabilities

	// Wait blocks until there may be something to receive. It may return
	// too early. After a Recv that failed it waits for up to 100 ms,
	// because the socket or the device may be broken. Once the link is
	// closed it returns ErrClosed.
	Wait() error

	// Wake makes a Wait return: the one that blocks now, or else the next.
	Wake()

	// Recv resets b and fills it with what has arrived, without blocking.
	// It returns the number of packets, which may be 0. Packets with a
	// wrong ICRC are among them, and say so. The packets are valid until b
	// is used again. After any error but ErrClosed the next call may
	// succeed.
	Recv(b *RxBatch) (int, error)

	// Send seals and transmits the packets of b in order. It changes
	// nothing else in b. It blocks while the link is full. A *SendError
	// reports packets that cannot be sent; the others are sent all the
	// same.
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
	NativeOnly     bool       // only peers that run this package take what is sent: the system chooses the Identification
	SourcePorts    bool       // Path.SrcPort other than the link's own is honoured; see OpenSourcePort
	RecvBuffer     int        // bytes that the receive buffer holds, as granted; 0 = unknown
	SendBuffer     int        // bytes that the send buffer holds, as granted; 0 = unknown
	Virtual        bool       // of a simulated network in virtual time: what was sent arrives though the program has ended
}
