package network

// NumClasses is the number of traffic classes of a port, and of the priorities
// of pause frames.
const NumClasses = 8

// Sizes on the wire, in bytes.
const (
	perPacket = 14 + 4 + 8 + 12 // Ethernet header, FCS, preamble, gap
	minWire   = 64 + 8 + 12     // of the smallest frame
	pauseWire = minWire         // of a pause frame
	headWire  = 8 + 64          // what a cut-through switch waits for

	// DefaultMTU is the largest packet where Config.MTU is 0: a RoCE path
	// MTU of 4096 with all its headers.
	DefaultMTU = 4096 + 128
	maxMTU     = 1<<16 - 1

	defaultHops = 64
)

// WireSize returns the bytes that an IP packet of a length takes on a cable:
// 14 of Ethernet header, 4 of FCS, 8 of preamble and 12 of gap more, and at
// least 84 (IEEE 802.3: a frame has 64).
func WireSize(ip int) int { return max(ip+perPacket, minWire) }

// ECN bits (RFC 3168).
const (
	NotECT = 0
	ECT1   = 1
	ECT0   = 2
	CE     = 3
)

// Packet is a packet under way, a value of 20 bytes.
type Packet struct {
	Handle   uint32 // of the host's own record; the network carries it
	Src, Dst uint16 // hosts; the network sets Src
	Size     uint16 // bytes on the wire: WireSize of the IP packet
	SrcPort  uint16 // UDP source port: the entropy of ECMP
	DSCP     uint8  // 6 bits
	ECN      uint8  // 2 bits
	Class    uint8  // the network sets it from DSCP
	Hops     uint8  // hop limit; 0 stands for 64
	Flags    Flags

	kind uint8
	in   uint16 // port by which the packet came into its switch
}

// Flags are marks that a packet bears for programs and hosts. The network
// itself does nothing by them, but by Lose. Those from 1<<4 on are the hosts'
// own.
type Flags uint8

const (
	Telemetry Flags = 1 << iota // the sender wants hops noted
	Trimmed                     // the payload was cut off
	Lose                        // the host's own cable loses it
	spoiled                     // a bit is wrong; it is no program's
)

// Kinds of packet.
const (
	data   uint8 = iota
	pause        // DSCP: bit set of classes, Hops: which of them are paused
	stored       // data that waits for its last bit at a cut-through switch
	frame        // of programs, see setFrame
)

// identity is what a digest sees of a packet.
func (p *Packet) identity() uint64 {
	return uint64(p.Src)<<48 | uint64(p.Dst)<<32 | uint64(p.Size)<<16 | uint64(p.SrcPort)
}

func (p *Packet) state() uint64 {
	return uint64(p.DSCP)<<24 | uint64(p.ECN)<<16 | uint64(p.Class)<<8 | uint64(p.Hops)
}

// Drop says why a packet did not arrive.
type Drop uint8

const (
	EgressFull   Drop = iota // queue above its threshold, or EgressMax
	IngressFull              // ingress port and class above their threshold
	HeadroomFull             // a lossless class, after XOFF: headroom too small
	HopLimit                 // sent round too often
	NoRoute                  // the table has no port, or there is no such host
	Misrouted                // came to another host than its destination
	TooLong                  // larger than Config.MTU
	CableLoss                // Cable.Loss
	CableDown                // on a cable, or queued for it, that was down
	Watchdog                 // queued where the watchdog saw a storm of pauses
	Programmed               // a program said so
	Corrupted                // a bit was wrong: the FCS said so where the packet came to
	NumDrops
)

var dropNames = [NumDrops]string{
	"egress_full", "ingress_full", "headroom_full", "hop_limit", "no_route",
	"misrouted", "too_long", "cable_loss", "cable_down", "watchdog", "programmed", "corrupted",
}

// String returns the name of the counter.
func (d Drop) String() string {
	if d < NumDrops {
		return dropNames[d]
	}
	return "unknown"
}

// Host is what a cable of the network ends at. The network calls it, from Run
// only, one call at a time.
type Host interface {
	// Pull writes the next packet to p when the port's cable is free, and
	// reports whether there is one. paused has bit c set while class c must
	// not be sent; see Network.ClassOf. After false the port asks again
	// when Kick was called, and when a class is no longer paused. While
	// the cable is down the port goes on asking, and drops. p is zero.
	Pull(now Time, port int, paused uint8, p *Packet) bool
	// Receive takes a packet whose last bit has arrived. p is valid only
	// during the call.
	Receive(now Time, port int, p *Packet)
	// Timer says that the time of SetTimer has come.
	Timer(now Time)
	// Dropped says that a packet that this host has sent will not arrive.
	// It is there to free what Handle stands for, and must do nothing else:
	// no sender of a real network learns of it. It may be called at any
	// time, from inside Pull of another host, too, and later than the drop.
	Dropped(p *Packet, why Drop)
}
