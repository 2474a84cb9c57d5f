package transport

import "net/netip"

// LinkMTUReader is a Link whose MTU the system may change, or whose packets to
// some peers leave by another interface than its own. A link that wraps another
// one passes the call on, as Wrapper does.
type LinkMTUReader interface {
	// ReadLinkMTU asks the system how many bytes an IP packet from here to
	// peer may have now; an invalid peer stands for any. Capabilities
	// returns from then on what the link's own interface has. It may be
	// called beside every other method.
	ReadLinkMTU(peer netip.Addr) int
}

// ReadLinkMTU asks l for the bytes that an IP packet to peer may have. For
// links that cannot tell it is what Capabilities say.
func ReadLinkMTU(l Link, peer netip.Addr) int {
	if r, ok := l.(LinkMTUReader); ok {
		return r.ReadLinkMTU(peer)
	}
	return l.Capabilities().LinkMTU
}
