package transport

import "net/netip"

// LinkMTUReader is a Link whose MTU the system may change, or whose packets to
// some peers leave by another interface than its own. A link that wraps another
// one passes the call on, as Wrapper does.
type LinkMTUReader interface {
	// ReadLinkMTU asks the system how many bytes an IP packet from here to
	// peer may have now. An invalid peer stands for any. From then on
	// Capabilities returns the MTU of the link's own interface. The call
	// may run beside every other method.
	ReadLinkMTU(peer netip.Addr) int
}

// ReadLinkMTU asks l for the bytes that an IP packet to peer may have. For a
// link that cannot tell it returns the LinkMTU of its Capabilities.
func ReadLinkMTU(l Link, peer netip.Addr) int {
	if r, ok := l.(LinkMTUReader); ok {
		return r.ReadLinkMTU(peer)
	}
	return l.Capabilities().LinkMTU
}
