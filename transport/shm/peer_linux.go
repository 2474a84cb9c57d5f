//go:build !portable

package shm

import (
	"encoding/binary"
	"net/netip"
	"sync/atomic"
	"time"
)

// peer is an address to which packets go.
type peer struct {
	dev    *device
	addr   netip.Addr
	routes []atomic.Pointer[route] // for each link of the device; replaced under dev.mu
	count  atomic.Int32            // links of the peer, 0 if not known

	// Guarded by dev.mu.
	asking int           // agreements that this side has begun
	wait   time.Duration // before the next one, while they fail
	next   time.Time     // when that is
}

// route is how packets of one link reach a peer: a connection for each link
// of the peer, or nil.
type route struct{ conns []*conn }

// An agreement that has failed is tried again after a while, if there are
// packets. Mostly there is no such peer on this host. One that starts later
// asks itself.
const (
	firstWait = 50 * time.Millisecond
	lastWait  = 30 * time.Second
)

// peerAt returns the peer of an address.
func (d *device) peerAt(addr netip.Addr) *peer {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.peers[addr]
	if p == nil {
		if len(d.peers) >= maxPeers {
			d.forgetPeers()
		}
		p = &peer{dev: d, addr: addr, routes: make([]atomic.Pointer[route], len(d.links))}
		d.peers[addr] = p
	}
	return p
}

// forgetPeers forgets those without a connection. The caller holds mu.
func (d *device) forgetPeers() {
	for addr, p := range d.peers {
		if p.asking == 0 && !p.connected() {
			delete(d.peers, addr)
		}
	}
	d.generation.Add(1)
}

func (p *peer) connected() bool {
	for i := range p.routes {
		if p.routes[i].Load() != nil {
			return true
		}
	}
	return false
}

// prefersOwn reports whether, of two agreements that both sides have begun at
// once, the one of this side counts.
func (p *peer) prefersOwn() bool { return p.dev.local.Addr().Less(p.addr) }

// shards is how many links the peer has.
func (p *peer) shards() int { return int(p.count.Load()) }

// conn returns the connection by which a packet of a link goes, or nil.
func (p *peer) conn(link int, packet []byte) *conn {
	r := p.routes[link].Load()
	if r == nil {
		return nil
	}
	return r.conns[destQPN(packet)&(len(r.conns)-1)]
}

// connOf returns the connection to a link of the peer. The caller holds dev.mu.
func (p *peer) connOf(link, shard int) *conn {
	r := p.routes[link].Load()
	if r == nil || shard >= len(r.conns) {
		return nil
	}
	return r.conns[shard]
}

// set makes c the connection of a link to one of the peer's. The caller holds
// dev.mu.
func (p *peer) set(link int, c *conn, shards int) {
	r := &route{make([]*conn, shards)}
	if old := p.routes[link].Load(); old != nil {
		copy(r.conns, old.conns)
	}
	r.conns[c.peerShard] = c
	p.count.Store(int32(shards))
	p.routes[link].Store(r)
	p.wait = 0
	p.next = time.Time{}
}

// remove takes out a connection that has ended.
func (p *peer) remove(c *conn) {
	p.dev.mu.Lock()
	defer p.dev.mu.Unlock()
	link := &p.routes[c.link.index]
	old := link.Load()
	if old == nil || c.peerShard >= len(old.conns) || old.conns[c.peerShard] != c {
		return // another one has taken its place
	}
	r := &route{make([]*conn, len(old.conns))}
	left := false
	for i, o := range old.conns {
		if o != c {
			r.conns[i] = o
			left = left || o != nil
		}
	}
	if !left {
		r = nil
	}
	link.Store(r)
}

// destQPN reads the destination of a packet.
func destQPN(b []byte) int { return int(binary.BigEndian.Uint32(b[4:]) & 0xffffff) }
