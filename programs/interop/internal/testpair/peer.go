package testpair

import "sync"

// Peer is a connection of the connection manager that ends when the test says
// so.
type Peer struct {
	done  chan struct{}
	leave func()
}

// NewPeer returns a connection.
func NewPeer() Peer {
	done := make(chan struct{})
	return Peer{done, sync.OnceFunc(func() { close(done) })}
}

// Done is closed when the peer has left.
func (p Peer) Done() <-chan struct{} { return p.done }

// Err returns nil: the peer disconnects in order.
func (p Peer) Err() error { return nil }

// Leave ends the connection.
func (p Peer) Leave() { p.leave() }
