package transport

import (
	"net/netip"
	"time"
)

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
	_ Leased           = Wrapper{}
	_ PacedLink        = Wrapper{}
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

// BeginPoll passes the call on; see PolledLink and AsPolled.
func (w Wrapper) BeginPoll(fds []int) ([]int, time.Duration) { return w.polled().BeginPoll(fds) }

// EndPoll passes the call on; see PolledLink.
func (w Wrapper) EndPoll() { w.polled().EndPoll() }

// Files passes the call on; see PolledLink.
func (w Wrapper) Files() []int { return w.polled().Files() }

func (w Wrapper) polled() PolledLink { return AsPolled(w.Link) }

// ProbePort passes the call on; see PortProber.
func (w Wrapper) ProbePort(peer netip.Addr, packet []byte, stop <-chan struct{}) bool {
	return ProbePort(w.Link, peer, packet, stop)
}

// Pacer passes the call on; see PacedLink.
func (w Wrapper) Pacer() Pacer { return PacerOf(w.Link) }

// Lease passes the call on; see Leased.
func (w Wrapper) Lease() (Lease, bool) { return LeaseOf(w.Link) }

// ReserveService passes the call on; see Leased.
func (w Wrapper) ReserveService(id, mask uint64) error { return ReserveService(w.Link, id, mask) }

// ReleaseService passes the call on; see Leased.
func (w Wrapper) ReleaseService(id, mask uint64) { ReleaseService(w.Link, id, mask) }

// HandOver passes the call on; see Leased.
func (w Wrapper) HandOver(p *RxPacket) { HandOver(w.Link, p) }

// TellUse passes the call on; see Leased.
func (w Wrapper) TellUse(use func() Use) { TellUse(w.Link, use) }
