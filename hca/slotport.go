package hca

import (
	"net/netip"
	"slices"
	"sync"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/internal/ifaddrs"
	"github.com/gosoftroce/rocev2/rocev2"
)

// slotPorts are the peers on other hosts whose port consists of several
// sockets. A network adapter may coalesce packets of one flow, whatever their
// QPN, and the host puts them all where the first one belongs. So the first
// socket of a peer that queue pairs are connected to gets packets from the
// device's own port, and each other one from a source port of its own.
type slotPorts struct {
	mu    sync.Mutex
	of    map[netip.Addr]*slotPeer
	users map[*QP]netip.Addr // whose peers they are
}

// slotPeer is one of them.
type slotPeer struct {
	home  uint16 // the slot that packets go to from the device's own port
	users int    // queue pairs
}

// enter counts a queue pair, and reports whether it has the device's own port.
func (s *slotPorts) enter(q *QP, peer netip.Addr, slot uint16) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of, s.users = map[netip.Addr]*slotPeer{}, map[*QP]netip.Addr{}
	}
	p := s.of[peer]
	if p == nil {
		p = &slotPeer{home: slot}
		s.of[peer] = p
	}
	p.users++
	s.users[q] = peer
	return p.home == slot
}

// leave takes a queue pair out.
func (s *slotPorts) leave(q *QP) {
	s.mu.Lock()
	defer s.mu.Unlock()
	peer, ok := s.users[q]
	delete(s.users, q)
	if p := s.of[peer]; ok {
		if p.users--; p.users == 0 {
			delete(s.of, peer)
		}
	}
}

// slotPort returns the source port for packets to a queue pair where none was
// asked for: 0 is the device's own. Within a host nothing is coalesced but what
// is sent as one.
func (q *QP) slotPort(av *ib.AddressVector, to rocev2.QPN) uint16 {
	d := q.owner.dev
	q.leaveSlots()
	peer := av.DGID.Unmap().WithZone("")
	if !av.Native || av.Slots <= 1 || av.Slots&(av.Slots-1) != 0 || !q.shard.link.Capabilities().SourcePorts || peer == d.own.Addr.Unmap().WithZone("") || ofThisHost(peer) {
		return 0
	}
	slot := ib.SlotOf(to, av.Slots)
	q.slotted.Store(true)
	if d.slotPorts.enter(q, peer, slot) {
		return 0
	}
	// Leases of one address have ports of their own, as far as there are
	// some.
	return ib.MinSrcPort | uint16(d.slot)<<8&0x3f00 | slot&0xff
}

// leaveSlots ends what slotPort has begun.
func (q *QP) leaveSlots() {
	if q.slotted.Load() && q.slotted.Swap(false) {
		q.owner.dev.slotPorts.leave(q)
	}
}

// ofThisHost reports whether an address is one of an interface of this host. It
// is asked when a queue pair is connected to a peer with several sockets.
func ofThisHost(a netip.Addr) bool {
	if a.IsLoopback() {
		return true
	}
	list, _ := ifaddrs.All()
	return slices.ContainsFunc(list, func(i ifaddrs.Interface) bool {
		return slices.ContainsFunc(i.Addrs, func(own ifaddrs.Addr) bool { return own.WithZone("") == a })
	})
}
