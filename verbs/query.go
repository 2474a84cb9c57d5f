package verbs

import (
	"hash/fnv"
	"net/netip"

	"github.com/gosoftroce/rocev2/hca"
)

// DeviceAttr describes a device, in the terms of ibv_query_device.
type DeviceAttr struct {
	NodeGUID        uint64 // made from the address: the same at every opening
	VendorID        uint32
	MaxQP           int
	MaxQPWR         int // entries of one send or receive queue
	MaxSGE          int
	MaxInline       int // bytes
	MaxCQ           int
	MaxCQE          int
	MaxMR           int
	MaxMRSize       uint64
	MaxPD           int
	MaxQPRdAtomic   int // READs and atomics that a peer may have outstanding on one queue pair
	MaxQPInitRdAtom int // READs and atomics that one queue pair may have outstanding
	PortCount       int
}

// PortState is the state of a port.
type PortState uint8

// PortActive is the state of a port that carries traffic.
const PortActive PortState = 4

func (s PortState) String() string {
	if s == PortActive {
		return "PORT_ACTIVE"
	}
	return "PORT_DOWN"
}

// PortAttr describes the port of a device, in the terms of ibv_query_port.
type PortAttr struct {
	State      PortState
	MaxMTU     MTU
	ActiveMTU  MTU // the largest path MTU that the link carries
	LinkMTU    int // bytes of an IP packet
	GIDTable   int // entries
	PKeyTable  int // entries; entry 0 is 0xffff
	MaxMessage uint64
	LinkLayer  string
	UDPPort    int
	FullICRC   bool // the ICRC of any peer is checked in all 32 bits
}

// GID is an entry of the GID table: an address that the device answers to.
type GID struct {
	Addr netip.Addr
	Type string // "RoCE v2"
}

// Bytes returns the GID in network order; an IPv4 address is mapped to IPv6.
func (g GID) Bytes() [16]byte { return g.Addr.As16() }

// Query returns what the device can do.
func (d *Device) Query() DeviceAttr {
	return DeviceAttr{
		NodeGUID:        nodeGUID(d.Addr()),
		VendorID:        0xffffff,
		MaxQP:           hca.MaxQP,
		MaxQPWR:         hca.MaxWR,
		MaxSGE:          hca.MaxSGE,
		MaxInline:       hca.MaxInline,
		MaxCQ:           hca.MaxCQ,
		MaxCQE:          hca.MaxCQE,
		MaxMR:           hca.MaxMR,
		MaxMRSize:       1<<63 - 1,
		MaxPD:           hca.MaxPD,
		MaxQPRdAtomic:   hca.MaxRdAtomic,
		MaxQPInitRdAtom: hca.MaxRdAtomic,
		PortCount:       1,
	}
}

// nodeGUID makes an EUI-64 with the local bit set.
func nodeGUID(a netip.Addr) uint64 {
	h := fnv.New64a()
	b := a.As16()
	h.Write(b[:])
	return h.Sum64()&^(0x03<<56) | 0x02<<56
}

// QueryPort returns the state of the device's port.
func (d *Device) QueryPort() PortAttr {
	caps := d.core.Capabilities()
	return PortAttr{
		State:      PortActive,
		MaxMTU:     MTU4096,
		ActiveMTU:  caps.MTU,
		LinkMTU:    caps.LinkMTU,
		GIDTable:   1,
		PKeyTable:  1,
		MaxMessage: hca.MaxMessage,
		LinkLayer:  "Ethernet",
		UDPPort:    int(caps.Port),
		FullICRC:   caps.FullICRC,
	}
}

// GIDs returns the GID table. A device has one address, so it has one entry.
func (d *Device) GIDs() []GID { return []GID{{Addr: d.Addr(), Type: "RoCE v2"}} }
