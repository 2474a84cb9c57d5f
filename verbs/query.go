package verbs

import (
	"hash/fnv"
	"net/netip"
	"time"

	"github.com/gosoftroce/rocev2/hca"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/transport"
)

// DeviceAttr describes a device, in the terms of ibv_query_device.
type DeviceAttr struct {
	NodeGUID        uint64 // made from the address: the same at every opening
	VendorID        uint32 // 0xffffff: none
	MaxQP           int    // queue pairs
	MaxQPWR         int    // entries of one send or receive queue
	MaxSGE          int    // entries of one scatter/gather list
	MaxReadSGE      int    // of that of a READ
	MaxInline       int    // bytes
	MaxCQ           int    // completion queues
	MaxCQE          int    // entries of one completion queue
	MaxMR           int    // memory regions
	MaxMW           int    // memory windows
	MaxMRSize       uint64 // bytes of one memory region
	MaxPD           int    // protection domains
	MaxAH           int    // address handles
	MaxXRCD         int    // XRC domains
	MaxSRQ          int    // shared receive queues
	MaxSRQWR        int    // entries of one shared receive queue
	MaxGroup        int    // multicast groups; a link may have a smaller limit
	MaxAttach       int    // queue pairs attached to groups, one in several groups several times
	MaxRdAtomic     int    // largest Attr.MaxRdAtomic
	MaxDestRdAtomic int    // largest Attr.MaxDestRdAtomic
	PortCount       int    // 1

	CompletionVectors   int           // see WithVector
	CoreClock           int           // kHz: what Device.Now and WC.Timestamp count in
	MaxModerationCount  int           // of CQ.SetModeration
	MaxModerationPeriod time.Duration // of CQ.SetModeration
}

// PortState is the logical state of a port, with the numbers of ibv_port_state.
type PortState uint8

// States of a port.
const (
	PortDown   PortState = 1
	PortActive PortState = 4 // it carries traffic
)

// String returns the name as ibv_devinfo prints it.
func (s PortState) String() string {
	if s == PortActive {
		return "PORT_ACTIVE"
	}
	return "PORT_DOWN"
}

// PhysState is the physical state of a port, with the numbers of ibv_devinfo.
type PhysState uint8

// Physical states, in the sense that Linux rxe gives them.
const (
	PhysPolling  PhysState = 2 // the interface is up and has no carrier
	PhysDisabled PhysState = 3 // it is down, or has the address no longer
	PhysLinkUp   PhysState = 5
)

// String returns the name as ibv_devinfo prints it.
func (s PhysState) String() string {
	switch s {
	case PhysPolling:
		return "POLLING"
	case PhysDisabled:
		return "DISABLED"
	case PhysLinkUp:
		return "LINK_UP"
	}
	return "invalid physical state"
}

// PortAttr describes the port of a device, in the terms of ibv_query_port.
type PortAttr struct {
	State      PortState // whether it carries traffic
	PhysState  PhysState // of the interface
	DownReason string    // why State is PortDown, in words; else empty
	Interface  string    // the one that has the address; empty if not known
	Speed      int       // of the interface, in Mb/s; 0 if not known
	MaxMTU     MTU       // MTU4096
	ActiveMTU  MTU       // the largest path MTU that the link carries
	LinkMTU    int       // bytes of an IP packet
	GIDTable   int       // entries
	PKeyTable  int       // entries; entry 0 is 0xffff
	MaxMessage uint64    // bytes
	LinkLayer  string    // "Ethernet"
	UDPPort    int       // where the device receives

	FullICRC       bool // the ICRC of any peer is checked in all 32 bits
	NativeOnly     bool // only peers that run this software take what is sent: the system (Windows, OpenBSD) chooses the IPv4 Identification, which the ICRC covers
	ECN            bool // traffic classes (DSCP and ECN) are sent and received
	SourcePorts    bool // queue pairs can have UDP source ports of their own
	SegmentOffload bool // packets leave in segmentation-offload buffers (GSO)
	ReceiveOffload bool // packets arrive in coalesced buffers (GRO)
	RecvBuffer     int  // bytes of the receive buffer as granted; 0 if not known
	SendBuffer     int  // bytes of the send buffer as granted; 0 if not known
}

// GID is an entry of the GID table: an address that the device answers to.
type GID struct {
	Addr netip.Addr // of the device
	Type string     // "RoCE v2"
}

// Bytes returns the GID in network order; an IPv4 address is mapped to IPv6.
func (g GID) Bytes() [16]byte { return g.Addr.As16() }

// Query returns what the device can do.
func (d *Device) Query() DeviceAttr {
	most := d.core.Limits()
	return DeviceAttr{
		NodeGUID:        NodeGUID(d.Addr()),
		VendorID:        0xffffff,
		MaxQP:           most.QP,
		MaxQPWR:         most.WR,
		MaxSGE:          most.SGE,
		MaxReadSGE:      most.ReadSGE,
		MaxInline:       most.Inline,
		MaxCQ:           most.CQ,
		MaxCQE:          most.CQE,
		MaxMR:           most.MR,
		MaxMW:           most.MW,
		MaxMRSize:       most.MRSize,
		MaxPD:           most.PD,
		MaxAH:           ib.MaxAH,
		MaxXRCD:         ib.MaxXRCD,
		MaxSRQ:          most.SRQ,
		MaxSRQWR:        most.SRQWR,
		MaxGroup:        ib.MaxGroup,
		MaxAttach:       ib.MaxAttach,
		MaxRdAtomic:     most.RdAtomic,
		MaxDestRdAtomic: most.RdAtomic,
		PortCount:       1,

		CompletionVectors:   d.core.CompletionVectors(),
		CoreClock:           1e6,
		MaxModerationCount:  hca.MaxModerationCount,
		MaxModerationPeriod: hca.MaxModerationPeriod,
	}
}

// NodeGUID returns the GUID of a device on an address: an EUI-64 with the local
// bit set, made from the address.
func NodeGUID(a netip.Addr) uint64 {
	h := fnv.New64a()
	b := a.As16()
	h.Write(b[:])
	return h.Sum64()&^(0x03<<56) | 0x02<<56
}

// QueryPort returns the state of the device's port. It asks the system for the
// interface as it is now, which takes some 100 µs.
func (d *Device) QueryPort() PortAttr {
	caps := d.core.Capabilities()
	status := d.core.PortStatus()
	p := PortAttr{
		State:      PortActive,
		PhysState:  PhysLinkUp,
		Interface:  status.Interface,
		Speed:      status.Speed,
		MaxMTU:     MTU4096,
		ActiveMTU:  caps.MTU,
		LinkMTU:    caps.LinkMTU,
		GIDTable:   1,
		PKeyTable:  1,
		MaxMessage: ib.MaxMessage,
		LinkLayer:  "Ethernet",
		UDPPort:    int(caps.Port),

		FullICRC:       caps.FullICRC,
		NativeOnly:     caps.NativeOnly,
		ECN:            caps.ECN,
		SourcePorts:    caps.SourcePorts,
		SegmentOffload: caps.SegmentOffload,
		ReceiveOffload: caps.ReceiveOffload,
		RecvBuffer:     caps.RecvBuffer,
		SendBuffer:     caps.SendBuffer,
	}
	switch status.State {
	case transport.PortDisabled:
		p.State, p.PhysState = PortDown, PhysDisabled
		p.DownReason = "interface " + status.Interface + " is down"
	case transport.PortNoCarrier:
		p.State, p.PhysState = PortDown, PhysPolling
		p.DownReason = "interface " + status.Interface + " has no carrier"
	case transport.PortNoAddress:
		p.State, p.PhysState = PortDown, PhysDisabled
		p.DownReason = "no interface has the address " + d.Addr().String() + " any more"
	}
	return p
}

// SharedPeers returns the addresses of the peers with which the device
// exchanges packets through shared memory at the moment, in order; see
// Config.SharedMemory.
func (d *Device) SharedPeers() []netip.Addr { return d.core.SharedPeers() }

// PathMTU returns the largest path MTU that the way from here to peer carries,
// as far as this host knows: the device's interface, and the one that packets
// leave by. The system is asked, which takes some microseconds.
func (d *Device) PathMTU(peer netip.Addr) MTU { return d.core.PathMTU(peer) }

// GIDs returns the GID table. A device has one address, so it has one entry.
func (d *Device) GIDs() []GID { return []GID{{Addr: d.Addr(), Type: "RoCE v2"}} }
