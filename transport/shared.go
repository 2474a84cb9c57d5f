package transport

import "net/netip"

// MemorySharer is a Link that reaches some peers through memory that it shares
// with them. A link that wraps another one passes the call on, as Wrapper does.
type MemorySharer interface {
	// SharedPeers returns the peers that are reached so at the moment. It
	// may be called beside every other method, and after Close.
	SharedPeers() []netip.Addr
}

// SharedPeers returns the peers that l reaches through shared memory at the
// moment.
func SharedPeers(l Link) []netip.Addr {
	if s, ok := l.(MemorySharer); ok {
		return s.SharedPeers()
	}
	return nil
}
