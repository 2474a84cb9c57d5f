package hca

import (
	"slices"
	"sync"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// use remembers what a device was used for, since its queue pairs go.
type use struct {
	mu          sync.Mutex
	types       []transport.UsedType
	peers       []transport.UsedPeer
	connections []transport.UsedConnection
	requests    func() []transport.UsedOperation // of the program; nil: they are not counted
}

// create counts a queue pair.
func (u *use) create(t ib.QPType) {
	u.mu.Lock()
	defer u.mu.Unlock()
	i := slices.IndexFunc(u.types, func(k transport.UsedType) bool { return k.Type == t.String() })
	if i < 0 {
		u.types = append(u.types, transport.UsedType{Type: t.String()})
		i = len(u.types) - 1
	}
	u.types[i].Made++
}

// reach remembers a peer.
func (u *use) reach(av *ib.AddressVector) {
	u.mu.Lock()
	defer u.mu.Unlock()
	p := transport.UsedPeer{Addr: av.DGID.Unmap().WithZone(""), Native: av.Native}
	i := slices.IndexFunc(u.peers, func(k transport.UsedPeer) bool { return k.Addr == p.Addr })
	switch {
	case i >= 0:
		u.peers[i].Native = u.peers[i].Native || p.Native
	case len(u.peers) < transport.MostUsedPeers:
		u.peers = append(u.peers, p)
	}
}

// connect remembers the peer of a queue pair.
func (u *use) connect(t ib.QPType, n rocev2.QPN, a *ib.Attr) {
	u.reach(&a.AV)
	u.mu.Lock()
	defer u.mu.Unlock()
	c := transport.UsedConnection{Type: t.String(), QPN: uint32(n), Peer: a.AV.DGID.Unmap().WithZone(""), PeerQPN: uint32(a.DestQPN)}
	if len(u.connections) < transport.MostUsedConnections && !slices.Contains(u.connections, c) {
		u.connections = append(u.connections, c)
	}
}

// report returns what a device has been used for up to now: it has a number of
// queue pairs, and these parts.
func (u *use) report(qps int, parts []*locked) transport.Use {
	out := transport.Use{QPs: qps}
	for _, s := range parts {
		st := s.link.Stats()
		out.Link.Add(&st)
		s.lock()
		c := s.eng.Counters()
		s.unlock()
		out.Work.LoopPackets += c.LoopPackets
		out.Work.LoopBytes += c.LoopBytes
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	out.Peers = slices.Clone(u.peers)
	out.Work.Types, out.Work.Connections = slices.Clone(u.types), slices.Clone(u.connections)
	for _, t := range u.types {
		out.Made += t.Made
	}
	if u.requests != nil {
		out.Work.Requests = u.requests()
	}
	return out
}
