package hca

import (
	"slices"
	"sync"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/transport"
)

// use remembers what a device was used for, since its queue pairs go.
type use struct {
	mu    sync.Mutex
	made  uint64
	peers []transport.UsedPeer
}

// create counts a queue pair.
func (u *use) create() {
	u.mu.Lock()
	u.made++
	u.mu.Unlock()
}

// connect remembers the peer of a queue pair.
func (u *use) connect(av *ib.AddressVector) {
	p := transport.UsedPeer{Addr: av.DGID.Unmap().WithZone(""), Native: av.Native}
	u.mu.Lock()
	defer u.mu.Unlock()
	i := slices.IndexFunc(u.peers, func(k transport.UsedPeer) bool { return k.Addr == p.Addr })
	switch {
	case i >= 0:
		u.peers[i].Native = u.peers[i].Native || p.Native
	case len(u.peers) < transport.MostUsedPeers:
		u.peers = append(u.peers, p)
	}
}

// report returns what a device has been used for up to now: it has a number of
// queue pairs, and these parts.
func (u *use) report(qps int, parts []*locked) transport.Use {
	out := transport.Use{QPs: qps}
	for _, s := range parts {
		st := s.link.Stats()
		out.Link.Add(&st)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	out.Made, out.Peers = u.made, slices.Clone(u.peers)
	return out
}
