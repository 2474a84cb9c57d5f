package transport

import "net/netip"

// Wrapper is the base of a link that wraps another one. It passes on every call
// that the wrapper does not define itself, those of the optional interfaces
// included, but for PlacingLink: wrappers see packets as a whole.
type Wrapper struct{ Link }

var (
	_ LinkMTUReader    = Wrapper{}
	_ SourcePortOpener = Wrapper{}
	_ PortReporter     = Wrapper{}
	_ GroupJoiner      = Wrapper{}
	_ PortWatcher      = Wrapper{}
	_ MemorySharer     = Wrapper{}
	_ PortProber       = Wrapper{}
)

// ReadLinkMTU passes the call on; see LinkMTUReader.
func (w Wrapper) ReadLinkMTU(peer netip.Addr) int { return ReadLinkMTU(w.Link, peer) }

// OpenSourcePort passes the call on; see SourcePortOpener.
func (w Wrapper) OpenSourcePort(port uint16, exact bool) (uint16, error) {
	return OpenSourcePort(w.Link, port, exact)
}

// PortStatus passes the call on; see PortReporter.
func (w Wrapper) PortStatus() PortStatus { return StatusOf(w.Link) }

// WatchPort passes the call on; see PortWatcher.
func (w Wrapper) WatchPort(changed func(PortChange)) (stop func()) {
	return WatchPort(w.Link, changed)
}

// JoinGroup passes the call on; see GroupJoiner.
func (w Wrapper) JoinGroup(group netip.Addr) error { return JoinGroup(w.Link, group) }

// LeaveGroup passes the call on; see GroupJoiner.
func (w Wrapper) LeaveGroup(group netip.Addr) error { return LeaveGroup(w.Link, group) }

// SharedPeers passes the call on; see MemorySharer.
func (w Wrapper) SharedPeers() []netip.Addr { return SharedPeers(w.Link) }

// CanProbePort passes the call on; see PortProber.
func (w Wrapper) CanProbePort() bool { return CanProbePort(w.Link) }

// ProbePort passes the call on; see PortProber.
func (w Wrapper) ProbePort(peer netip.Addr, packet []byte, stop <-chan struct{}) bool {
	return ProbePort(w.Link, peer, packet, stop)
}
