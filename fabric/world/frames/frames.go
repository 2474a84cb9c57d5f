// Package frames keeps the packets of devices while they cross a simulated
// network (package fabric/network), which carries a small value for each: where
// it goes, how long it is, and the number of its record here. It also says
// which host has which address. Packages world and worldtest stand on it.
//
// Cables and switches change no bits, so the ICRC is neither computed nor
// checked. A Store is not safe for concurrent use.
package frames

import (
	"cmp"
	"net/netip"

	"github.com/gosoftroce/rocev2/fabric/network"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// Addr returns the address of a host: 10.0.0.0/8, and its number.
func Addr(host int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 0, byte(host >> 8), byte(host)})
}

// Number returns which of a number of hosts has an address, if one has.
func Number(a netip.Addr, hosts int) (uint16, bool) {
	if !a.Is4() {
		return 0, false
	}
	b := a.As4()
	n := uint16(b[2])<<8 | uint16(b[3])
	return n, b[0] == 10 && b[1] == 0 && int(n) < hosts
}

// LinkMTU returns how many bytes an IP packet may have on a network whose
// largest packet has wire bytes; 0 stands for network.DefaultMTU.
func LinkMTU(wire int) int {
	if wire == 0 {
		wire = network.DefaultMTU
	}
	return wire - (network.WireSize(1<<12) - 1<<12)
}

// IPHeaders is what an IP packet has before the BTH: IPv4 and UDP.
const IPHeaders = 20 + 8

// record is a packet under way.
type record struct {
	data         []byte // BTH to ICRC, which is not computed
	trafficClass uint8
	spoiled      bool // the ICRC is wrong
}

// Store keeps packets under way.
type Store struct {
	all   []record
	free  []uint32             // handles
	spare [len(sizes)][][]byte // memory, by its size
}

// sizes are those of the memory of packets, so that acknowledgements do not
// take that of data.
var sizes = [...]int{128, 1280, rocev2.MaxPacketLen}

// Put stores a packet, data from BTH to pad, that goes to a host, and sets what
// the network is to know of it. It returns the length from BTH to ICRC.
func (s *Store) Put(p *network.Packet, dst uint16, data []byte, path *transport.Path) int {
	n := len(data) + rocev2.ICRCLen
	p.Handle, p.Dst = s.put(data, n, path.TrafficClass), dst
	p.Size = uint16(network.WireSize(IPHeaders + n))
	p.SrcPort = cmp.Or(path.SrcPort, rocev2.UDPPort)
	p.DSCP, p.ECN, p.Hops = path.TrafficClass>>2, path.TrafficClass&3, path.HopLimit
	return n
}

// put stores a packet of n bytes, the first of which are data, and returns its
// handle.
func (s *Store) put(data []byte, n int, trafficClass uint8) uint32 {
	handle := uint32(len(s.all))
	if last := len(s.free) - 1; last >= 0 {
		handle = s.free[last]
		s.free = s.free[:last]
	} else {
		s.all = append(s.all, record{})
	}
	b := s.memory(n)
	copy(b, data)
	s.all[handle] = record{data: b[:n], trafficClass: trafficClass}
	return handle
}

func (s *Store) memory(n int) []byte {
	i := sizeOf(n)
	last := len(s.spare[i]) - 1
	if last < 0 {
		return make([]byte, sizes[i])
	}
	b := s.spare[i][last]
	s.spare[i] = s.spare[i][:last]
	return b
}

func sizeOf(n int) int {
	i := 0
	for sizes[i] < n {
		i++
	}
	return i
}

// Received returns a packet as a device gets it. Its Data is valid until
// Release.
func (s *Store) Received(p *network.Packet) transport.RxPacket {
	k := &s.all[p.Handle]
	icrc := transport.ICRCAbsent
	if k.spoiled {
		icrc = transport.ICRCBad
	}
	return transport.RxPacket{
		Data: k.data[:len(k.data):len(k.data)], Src: Addr(int(p.Src)), Dst: Addr(int(p.Dst)), SrcPort: p.SrcPort,
		TrafficClass: k.trafficClass&^3 | p.ECN, HopLimit: p.Hops, ICRC: icrc,
	}
}

// Spoil has a packet arrive with a wrong ICRC.
func (s *Store) Spoil(handle uint32) { s.all[handle].spoiled = true }

// Release gives back a packet's handle and memory.
func (s *Store) Release(handle uint32) {
	k := &s.all[handle]
	i := sizeOf(len(k.data))
	s.spare[i] = append(s.spare[i], k.data[:sizes[i]])
	s.all[handle] = record{}
	s.free = append(s.free, handle)
}

// Len returns how many packets are kept.
func (s *Store) Len() int { return len(s.all) - len(s.free) }
