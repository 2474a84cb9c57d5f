package hca

import (
	"errors"
	"fmt"
	"net/netip"

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
