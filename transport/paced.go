package transport

// PacedLink is a link that may have a Pacer. A link that wraps another one
// passes the call on, as Wrapper does.
type PacedLink interface {
	Link
	// Pacer returns nil where Send paces its callers, by blocking.
	Pacer() Pacer
}

// Pacer says when a link takes more packets, in the place of a Send that
// blocks: in a simulated network the time may stand still for one that is
// blocked with a lock held. A Send that comes all the same is carried out.
type Pacer interface {
	// Room reports whether to send. After false the function of OnRoom is
	// called, once, when there is room again.
	Room() bool

	// OnRoom sets the function, before the first call of Room. It must not
	// block, and call nothing of the link.
	OnRoom(f func())
}

// PacerOf returns the Pacer of a link, or nil.
func PacerOf(l Link) Pacer {
	if p, ok := l.(PacedLink); ok {
		return p.Pacer()
	}
	return nil
}
