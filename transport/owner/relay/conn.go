package relay

import (
	"net/netip"
	"time"

	"github.com/gosoftroce/rocev2/internal/list"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// state is how far a connection is, as its messages say.
type state uint8

const (
	requested   state = iota // the peer has sent a REQ
	replied                  // the lease has sent a REP to it
	asking                   // the lease has sent a REQ
	answered                 // the peer has sent a REP to it
	established              // the RTU has passed
	closing                  // a DREQ has passed
)

const (
	// silence is after how long without a message a connection that is
	// being made, or ended, is followed no more: longer than a request
	// waits for a program (agent.Config.RequestLife).
	silence = 160 * time.Second
)

// conn is a connection of a lease.
type conn struct {
	lease         *lease
	local, remote mad.CommID // the lease's and the peer's; 0 as long as it is not known
	peer          netip.Addr
	own, qpn      rocev2.QPN // the lease's and the peer's; 0 as long as it is not known
	guid          mad.GUID   // the lease's while asking, and then the peer's
	transaction   uint64
	flowLabel     uint32
	class         uint8
	state         state
	turn          uint8      // how often the peer was told, where the lease has gone
	at            clock.Time // when it is forgotten; when the peer is told
	in            *list.List[conn]
	place         list.Element[conn] // there
}

// remoteKey finds a request of a peer, qpnKey a connection.
type remoteKey struct {
	peer   netip.Addr
	remote mad.CommID
}

type qpnKey struct {
	peer netip.Addr
	guid mad.GUID
	qpn  rocev2.QPN
}

// joinList adds c to a list, after the others.
func (c *conn) joinList(l *list.List[conn]) {
	c.in, c.place.Value = l, c
	l.PushBack(&c.place)
}

// leaveList takes c out of the list that it is in, if it is in one.
func (c *conn) leaveList() {
	if c.in != nil {
		c.in.Remove(&c.place)
		c.in = nil
	}
}

// open begins to follow a connection.
func (r *Relay) open(l *lease, c *conn) *conn {
	c.lease = l
	l.conns++
	if c.local != 0 {
		r.byLocal[c.local] = c
	}
	if c.state == requested {
		r.byRemote[remoteKey{c.peer, c.remote}] = c
	}
	r.enter(c, c.state)
	return c
}

// enter has a connection be in a state from now on.
func (r *Relay) enter(c *conn, s state) {
	if c.state == established && s != established {
		r.unknow(c)
	}
	c.state = s
	c.leaveList()
	l := c.lease
	switch s {
	case requested, replied:
		c.joinList(&l.asked)
	case established:
		c.joinList(&l.settled)
		if c.qpn != 0 {
			r.byQPN[qpnKey{c.peer, c.guid, c.qpn}] = c
		}
	default:
		c.joinList(&l.opening)
	}
	c.at = r.now.Add(silence)
}

// unknow has no other connection show that c is stale.
func (r *Relay) unknow(c *conn) {
	if k := (qpnKey{c.peer, c.guid, c.qpn}); r.byQPN[k] == c {
		delete(r.byQPN, k)
	}
}

// forget follows a connection no more.
func (r *Relay) forget(c *conn) {
	r.unknow(c)
	if r.byLocal[c.local] == c {
		delete(r.byLocal, c.local)
	}
	if k := (remoteKey{c.peer, c.remote}); r.byRemote[k] == c {
		delete(r.byRemote, k)
	}
	c.leaveList()
	c.lease.conns--
}

// unheard ends waiting for the next message of a connection that is being made,
// or ended. One with a REP that the lease has not taken back is established:
// the RTU was lost, and data stood for it (IBTA 12.9.7).
func (r *Relay) unheard(c *conn) {
	if c.state == replied {
		r.enter(c, established)
		return
	}
	r.forget(c)
}

// refer has the lease's ID find a request of a peer.
func (r *Relay) refer(c *conn, local mad.CommID) {
	if c.local != local && r.byLocal[c.local] == c {
		delete(r.byLocal, c.local)
	}
	c.local = local
	r.byLocal[local] = c
}

// fitting returns the connection of a lease that has both IDs and the peer, or
// nil. The peer's ID may be one that is not known yet.
func (r *Relay) fitting(peer netip.Addr, local, remote mad.CommID) *conn {
	c := r.byLocal[local]
	if c == nil || c.peer != peer || c.remote != remote && c.state != asking {
		return nil
	}
	return c
}
