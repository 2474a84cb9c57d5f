package transport

import "net/netip"

// PortProber is a Link that can learn that the RoCEv2 port of a peer is closed:
// the peer's host says so by ICMP, destination unreachable, port
// unreachable (RFC 792, RFC 4443). A link that wraps another one passes the
// calls on, as Wrapper does.
type PortProber interface {
	// CanProbePort reports whether the link can learn it.
	CanProbePort() bool

	// ProbePort sends a packet (BTH to pad) to a peer, from a UDP port that
	// serves nothing else, now and again after growing pauses. It returns
	// true when the peer's host says that the port that the packet is for
	// is closed, and false when stop is closed, or if the link cannot
	// send or learn it. It takes nothing for an answer that quotes another
	// packet. Still, the network can forge what it says: it is a reason to
	// give up what has no answer yet, and nothing else.
	//
	// The call blocks. It may run beside every other method.
	ProbePort(peer netip.Addr, packet []byte, stop <-chan struct{}) (refused bool)
}

// CanProbePort reports whether l can learn that the port of a peer is closed.
func CanProbePort(l Link) bool {
	p, ok := l.(PortProber)
	return ok && p.CanProbePort()
}

// ProbePort asks l to find out whether the port of a peer is closed; see
// PortProber. It returns false at once for a link that cannot.
func ProbePort(l Link, peer netip.Addr, packet []byte, stop <-chan struct{}) bool {
	p, ok := l.(PortProber)
	return ok && p.ProbePort(peer, packet, stop)
}
