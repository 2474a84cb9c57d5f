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
	count  atomic.Int32            // slots of the peer's port, 0 if not known

	// Guarded by dev.mu.
	asked    *question        // what this side has begun, nil if nothing
	attempts map[int]*attempt // by the queue pair number modulo maxSlots
}

// question is what an agreement is under way for.
type question struct{ link, qpn int }

// attempt says when an agreement may be tried again.
type attempt struct {
	wait time.Duration // before the next one, while they fail
	next time.Time     // when that is
}

// route is how packets of one link reach a peer: a connection for each slot of
// the peer's port, or nil. A device that has its port alone has a slot for each
// link.
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
		if p.asked == nil && !p.connected() {
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

// prefersOwn reports whether, of two agreements that a link and a slot of the
// peer have begun at once, the one of this side counts.
func (p *peer) prefersOwn(l *Link, slot int) bool {
	own := p.dev.local.Addr()
	return own.Less(p.addr) || own == p.addr && p.dev.slot(l) < slot
}

// isAsking reports whether an agreement of a link with a slot is under way. The
// caller holds dev.mu.
func (p *peer) isAsking(l *Link, slot, slots int) bool {
	return p.asked != nil && p.asked.link == l.index && p.asked.qpn&(slots-1) == slot
}

// attempt returns when to ask for the link of a queue pair. The caller holds
// dev.mu.
func (p *peer) attempt(qpn int) *attempt {
	key := qpn % maxSlots
	a := p.attempts[key]
	if a == nil {
		if p.attempts == nil {
			p.attempts = map[int]*attempt{}
		}
		a = &attempt{}
		p.attempts[key] = a
	}
	return a
}

// slots is how many slots the peer's port has.
func (p *peer) slots() int { return int(p.count.Load()) }

// conn returns the connection by which a packet of a link goes, or nil.
func (p *peer) conn(link int, packet []byte) *conn {
	r := p.routes[link].Load()
	if r == nil {
		return nil
	}
	return r.conns[destQPN(packet)&(len(r.conns)-1)]
}

// connOf returns the connection to a slot of the peer. The caller holds dev.mu.
func (p *peer) connOf(link, slot, slots int) *conn {
	r := p.routes[link].Load()
	if r == nil || len(r.conns) != slots {
		return nil
	}
	return r.conns[slot]
}

// set makes c the connection of a link to a slot of the peer. Where the port
// has another number of slots than it had, another process has it now: the
// connections from before end. The caller holds dev.mu.
func (p *peer) set(link int, c *conn, slots int) {
	r := &route{make([]*conn, slots)}
	if old := p.routes[link].Load(); old != nil && len(old.conns) == slots {
		copy(r.conns, old.conns)
	}
	r.conns[c.peerSlot] = c
	p.count.Store(int32(slots))
	old := p.routes[link].Swap(r)
	p.attempts = nil
	if old == nil || len(old.conns) == slots {
		return
	}
	for _, o := range old.conns {
		if o != nil {
			o.hangUp()
		}
	}
}

// remove takes out a connection that has ended.
func (p *peer) remove(c *conn) {
	p.dev.mu.Lock()
	defer p.dev.mu.Unlock()
	link := &p.routes[c.link.index]
	old := link.Load()
	if old == nil || c.peerSlot >= len(old.conns) || old.conns[c.peerSlot] != c {
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
