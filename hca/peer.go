package hca

import (
	"math"
	"net/netip"

	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/transport"
)

// peer is another host, as far as the queue pairs of a shard share it: they all
// fill the same socket buffer there. Its fields belong to the shard's lock.
type peer struct {
	addr   netip.Addr
	users  int        // queue pairs connected to it
	acct   [2]account // of queue pairs that it answers, and of silent ones
	pauses qp.Pauses

	paths []*transport.Path // one for all queue pairs that want the same
}

// account is what some of the queue pairs have in flight to a peer. What went to
// a silent one long ago does not lie in the peer's buffer any more, or else all
// are silent: so they have an account of their own, and take nothing from others.
type account struct {
	inFlight int    // bytes unacknowledged, of all of them
	busy     int    // queue pairs with anything in flight
	limit    int    // how many bytes may be in flight
	waiting  qpList // queue pairs that the limit has stopped
	admitted *QP    // of them, the one whose turn it is to take what is left
	listed   bool   // in shard.stopped
}

const (
	accountLive   = 0
	accountSilent = 1

	silentPart = 4 // 1/silentPart of the limit is for the silent ones
	sharePart  = 4 // 1/sharePart of it is shared out beyond it
)

// path returns how to send to the peer with the addressing of c. Packets of
// several queue pairs can leave as one run if they have the same path.
func (p *peer) path(src netip.Addr, c transport.Path) *transport.Path {
	for _, have := range p.paths {
		if have.SrcPort == c.SrcPort && have.TrafficClass == c.TrafficClass && have.HopLimit == c.HopLimit &&
			have.FlowLabel == c.FlowLabel {
			return have
		}
	}
	made := transport.NewPath(src, c)
	p.paths = append(p.paths, made)
	return made
}

// connectPeer makes q a user of the peer at addr.
func (s *shard) connectPeer(q *QP, addr netip.Addr) {
	s.disconnectPeer(q)
	p := s.peers[addr]
	if p == nil {
		limit := s.dev.window().MaxBytes
		p = &peer{addr: addr}
		p.acct[accountLive] = account{limit: limit, waiting: qpList{kind: listStopped}}
		p.acct[accountSilent] = account{limit: limit / silentPart, waiting: qpList{kind: listStopped}}
		s.peers[addr] = p
	}
	p.users++
	q.peer = p
}

// disconnectPeer ends what q has in flight to its peer.
func (s *shard) disconnectPeer(q *QP) {
	p := q.peer
	if p == nil {
		return
	}
	q.account().leave(q)
	q.peer, q.silent = nil, accountLive
	if p.users--; p.users == 0 {
		delete(s.peers, p.addr)
	}
}

// account is where q counts; it has a peer.
func (q *QP) account() *account { return &q.peer.acct[q.silent] }

// take takes note that q has n bytes in flight now.
func (a *account) take(q *QP, n int) {
	if q.inFlight == 0 && n > 0 {
		a.busy++
	} else if q.inFlight > 0 && n == 0 {
		a.busy--
	}
	a.inFlight += n - q.inFlight
	q.inFlight = n
}

// leave takes q out, and reports whether it was waiting.
func (a *account) leave(q *QP) (waited bool) {
	a.take(q, 0)
	waited = q.links[listStopped].in
	a.waiting.remove(q)
	if a.admitted == q {
		a.admitted = nil
	}
	return waited
}

// count takes note of what q has in flight now.
func (s *shard) count(q *QP) {
	if q.peer == nil {
		return
	}
	n, silent := q.core.InFlight(), accountLive
	if n == 0 && q.inFlight == 0 && q.silent == accountLive {
		return
	}
	if q.core.Silent() {
		silent = accountSilent
	}
	if silent != q.silent {
		if q.account().leave(q) {
			s.ready.push(q)
		}
		q.silent = silent
	}
	q.account().take(q, n)
}

// allowance returns how many bytes of requests q may send to its peer: what is
// left of the limit, unless others wait for that, or a request that fits into the
// share that q has in any case. With very many queue pairs the share is one
// packet, for as many of them as fit. A silent one always has one packet to ask
// with.
func (q *QP) allowance() int {
	if q.peer == nil {
		return math.MaxInt
	}
	a := q.account()
	left, packet := a.limit-a.inFlight, q.mtu+qp.PacketOverhead
	switch {
	case left > 0 && (a.waiting.empty() || a.admitted == q): // a READ may be larger
		return left
	case q.silent == accountSilent && q.inFlight == 0:
		return packet // else it would learn that its peer is gone only when all before it have
	case q.silent == accountSilent || a.inFlight >= a.limit*3/2:
		return 0
	}
	share := a.limit / sharePart / q.peer.users
	if share < packet {
		share = 0
		if a.busy*packet < a.limit/sharePart {
			share = packet
		}
	}
	if q.inFlight+q.core.NextCost() > share {
		return 0
	}
	return 1
}

// stop puts q, which the limit holds back, on its peer's list.
func (s *shard) stop(q *QP) {
	a := q.account()
	a.waiting.push(q)
	if !a.listed {
		a.listed = true
		s.stopped = append(s.stopped, a)
	}
}

// admitLook is how many peers are looked at before each turn, unless nobody has
// anything to send.
const admitLook = 8

// admit lets those that a peer's limit has stopped go on when there is room again,
// one after the other: what an acknowledgement makes free is for who has waited
// longest, not for who it came to.
func (s *shard) admit() {
	n := len(s.stopped)
	if s.ready.front() != nil {
		n = min(n, admitLook)
	}
	for range n {
		last := len(s.stopped) - 1
		i := s.stoppedAt % (last + 1)
		switch a := s.stopped[i]; {
		case a.admitted == nil && a.waiting.empty():
			a.listed = false
			s.stopped[i], s.stopped[last] = s.stopped[last], nil
			s.stopped = s.stopped[:last]
			if last == 0 {
				return
			}
			continue
		case a.admitted == nil && a.inFlight < a.limit:
			a.admitted = a.waiting.pop()
			s.ready.push(a.admitted)
		}
		s.stoppedAt = i + 1
	}
}

// endAdmitted ends the turn of q to take what is left of the limit, if it had that.
func (q *QP) endAdmitted() {
	if q.peer != nil && q.account().admitted == q {
		q.account().admitted = nil
	}
}

// next returns the queue pair whose turn it is to send, nil if there is none.
func (s *shard) next() *QP {
	if len(s.stopped) > 0 {
		s.admit()
	}
	return s.ready.front()
}

// Window limits. A peer that is not known to be of our own kind gets what Linux
// keeps in flight itself. One of our own kind has a large socket buffer, of which
// it takes packets in batches.
const (
	foreignPSNs  = 128
	foreignBytes = foreignPSNs * (4096 + qp.PacketOverhead)
	ownPSNs      = qp.MaxReorder
)

// window fits what a queue pair, and all to one peer together, may have in
// flight to the socket buffers: the peer's is not known, so ours stands for it.
func (d *Device) window() qp.WindowConfig {
	w := d.cfg.Window
	if w.MaxBytes == 0 {
		w.MaxBytes = maxWindow
		if b := d.caps.RecvBuffer; b > 0 {
			w.MaxBytes = min(w.MaxBytes, max(b/2, 16<<10))
		}
	}
	return w
}

// maxWindow is a window beyond which more in flight only grows queues: 2 MiB of
// data with what the packets count beyond it.
const maxWindow = 9 << 18

// foreignWindow is the window towards a peer of unknown kind.
func (d *Device) foreignWindow() qp.WindowConfig {
	w := d.window()
	w.MaxBytes = min(w.MaxBytes, foreignBytes)
	if w.MaxPSNs == 0 {
		w.MaxPSNs = foreignPSNs
	}
	return w
}

// meet takes note of a new peer. Whether it is of our own kind the program must
// say: no packet can prove it.
func (s *shard) meet(q *QP, own bool) {
	if q.wide { // for the peer before
		q.wide = false
		q.core.SetWindow(s.dev.foreignWindow())
	}
	if q.own {
		q.core.KeepPackets(nil)
	}
	q.own, q.proven, q.peerPort = own, false, 0
	if own {
		s.widen(q)
		q.core.KeepPackets(s.store)
	}
	if q.local {
		q.proven, q.peerPort = true, s.dev.caps.Port
	}
}

// fromPeer reports whether d comes from the port of the peer. One of our own kind
// sends from one port only, which the first packet with the right PSN shows; any
// process of the peer's host can send from another. Other peers may use several.
func (q *QP) fromPeer(d *transport.RxPacket) bool {
	return q.peerPort == 0 || q.peerPort == d.SrcPort
}

// prove learns the port of the peer from the first packet whose PSN was right,
// which one in millions of guesses is. One of our own kind sends from there from
// now on. Another that uses the well-known port, as Linux never does, gets the
// wide window, and nothing else: its port anybody can choose.
func (s *shard) prove(q *QP, d *transport.RxPacket) {
	q.proven = true
	switch {
	case q.own:
		q.peerPort = d.SrcPort
	case d.SrcPort == s.dev.caps.Port:
		s.widen(q)
	}
}

// widen opens the window for a peer of our own kind.
func (s *shard) widen(q *QP) {
	q.wide = true
	w := s.dev.window()
	if w.MaxPSNs == 0 {
		w.MaxPSNs = ownPSNs
	}
	q.core.SetWindow(w)
}
