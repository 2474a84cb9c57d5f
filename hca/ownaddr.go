package hca

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// ownAddr is the address of a device and the link there, which say what peers
// it can have, and by what ways.
type ownAddr struct {
	netip.Addr
	link transport.Link
}

// checkPeer checks the address of a host.
func (o ownAddr) checkPeer(peer netip.Addr) error {
	linkLocal := func(a netip.Addr) bool { return a.Is6() && a.IsLinkLocalUnicast() }
	switch {
	case !peer.IsValid():
		return errors.New("the peer has no address: its Endpoint, or AV.DGID, was not filled in")
	case peer.IsUnspecified():
		return fmt.Errorf("peer address %v is not an address of a host", peer)
	case peer.IsMulticast():
		return fmt.Errorf("peer address %v is a multicast group; a connected queue pair has one peer", peer)
	case peer.Unmap().Is4() != o.Unmap().Is4():
		return fmt.Errorf("peer address %v and device address %v are of different IP versions", peer, o.Addr)
	case linkLocal(peer) && !linkLocal(o.Addr):
		return fmt.Errorf("peer address %v is link-local and device address %v is not, so that no link is named: open the device on the link-local address of that interface", peer, o.Addr)
	}
	return nil
}

// checkDestination checks where datagrams go: to a host, or to a group.
func (o ownAddr) checkDestination(dgid netip.Addr) error {
	switch {
	case !dgid.IsValid():
		return errors.New("DGID is not set")
	case dgid.Unmap().IsMulticast() && dgid.Unmap().Is4() == o.Unmap().Is4():
		return nil
	}
	return o.checkPeer(dgid)
}

// zoned returns an address with the device's zone if it is link-local: then it
// is on the device's link. The peer's own name for that link, which may have
// come with its address, says nothing here.
func (o ownAddr) zoned(peer netip.Addr) netip.Addr {
	peer = peer.Unmap()
	zone := ""
	if peer.Is6() && peer.IsLinkLocalUnicast() {
		zone = o.Zone()
	}
	return peer.WithZone(zone)
}

// linkMTU returns how many bytes an IP packet to peer may have, an invalid peer
// being any. The system is asked each time.
func (o ownAddr) linkMTU(peer netip.Addr) int {
	return transport.ReadLinkMTU(o.link, peer)
}

// checkPathMTU checks a path MTU towards a peer.
func (o ownAddr) checkPathMTU(m rocev2.MTU, peer netip.Addr) error {
	link := o.linkMTU(peer)
	most := rocev2.LargestMTU(link)
	switch {
	case m <= most:
		return nil
	case peer.IsValid() && link < o.linkMTU(netip.Addr{}):
		return fmt.Errorf("path MTU %d is more than the way from %v to %v carries: the MTU of %d there leaves room for %d; both sides need the same path MTU",
			m.Bytes(), o.Addr, peer, link, most.Bytes())
	}
	return fmt.Errorf("path MTU %d is more than the link of %v carries: its MTU of %d leaves room for %d",
		m.Bytes(), o.Addr, link, most.Bytes())
}
