//go:build linux

package ucma

import (
	"net/netip"
	"sync"

	"github.com/gosoftroce/rocev2/verbs"
)

// peerKey is what a queue pair and a connection have in common before the
// connection manager knows the number of the queue pair.
type peerKey struct {
	local, peer netip.Addr
	qpn         verbs.QPN // of the peer
}

// natives has the connections of all clients whose peer is this software.
type natives struct {
	mu   sync.Mutex
	uses map[peerKey]int
}

var registry = natives{uses: map[peerKey]int{}}

func (n *natives) has(k peerKey) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.uses[k] > 0
}

func (n *natives) add(k peerKey, by int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.uses[k] += by; n.uses[k] <= 0 {
		delete(n.uses, k)
	}
}

// know registers the peer of an ID, whose attributes of RTR are a.
func (i *ident) know(local netip.Addr, a *verbs.Attr) {
	if i.known != nil || !a.AV.Native {
		return
	}
	i.known = &peerKey{local.Unmap().WithZone(""), a.AV.DGID.Unmap().WithZone(""), a.DestQPN}
	registry.add(*i.known, 1)
}

func (i *ident) unknow() {
	if i.known != nil {
		registry.add(*i.known, -1)
		i.known = nil
	}
}

// Known reports whether the queue pair of a peer, to which a program of this
// process is being connected, is one of this software, which takes more in
// flight than others do (verbs.AddressVector.Native). A program connects its
// queue pair itself, with the attributes that INIT_QP_ATTR gave it, and they
// cannot say so. local and peer are the addresses, qpn is the peer's number.
func Known(local, peer netip.Addr, qpn verbs.QPN) bool {
	return registry.has(peerKey{local.Unmap().WithZone(""), peer.Unmap().WithZone(""), qpn})
}
