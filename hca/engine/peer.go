package engine

import (
	"math"
	"net/netip"
	"slices"

	"github.com/gosoftroce/rocev2/internal/list"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/transport"
)

// peer is another host, as far as the queue pairs of an engine share it: they
// all fill the same socket buffer there. IBTA has credits for receives
// (9.7.7.2) and nothing for buffers, so the limit is this side's own.
type peer struct {
	addr     netip.Addr
	users    int        // queue pairs connected to it
	accounts [2]account // of queue pairs that it answers, and of silent ones
	pauses   qp.Pauses
	notices  qp.NoticeGate // see qp.NotifyPerPeer

	paths []*transport.Path // some, to be shared by queue pairs that want the same
}

// maxPeerPaths is how many paths are kept to share. Each connection may have a
// flow label of its own, and a peer is there as long as any of them.
const maxPeerPaths = 64

// account is what some of the queue pairs have in flight to a peer. What went
// to a silent one long ago does not lie in the peer's buffer any more, or else
// all are silent: so they have an account of their own, and take nothing from
// others.
type account struct {
	inFlight int           // bytes unacknowledged, of all of them
	busy     int           // queue pairs with anything in flight
	limit    int           // how many bytes may be in flight
	waiting  list.List[QP] // queue pairs that the limit has stopped
	admitted *QP           // of them, the one whose turn it is to take what is left
	listed   bool          // in peers.limited
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
			have.FlowLabel == c.FlowLabel && have.KernelPeer == c.KernelPeer && have.Slot == c.Slot && have.SPI == c.SPI {
			return have
		}
	}
	made := transport.NewPath(src, c)
	if len(p.paths) == maxPeerPaths {
		clear(p.paths)
		p.paths = p.paths[:0]
	}
	p.paths = append(p.paths, made)
	return made
}

// linuxPath returns the path that is like p, but for a peer that is Linux.
func (p *peer) linuxPath(src netip.Addr, path *transport.Path) *transport.Path {
	return p.path(src, transport.Path{
		Dst:          path.Dst,
		TrafficClass: path.TrafficClass,
		HopLimit:     path.HopLimit,
		FlowLabel:    path.FlowLabel,
		SrcPort:      path.SrcPort,
		KernelPeer:   true,
		Slot:         path.Slot,
		SPI:          path.SPI,
	})
}

// take records that q has n bytes in flight now.
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
	if waited = q.limited.In(); waited {
		a.waiting.Remove(&q.limited)
	}
	if a.admitted == q {
		a.admitted = nil
	}
	return waited
}

// account is where q counts; it has a peer.
func (q *QP) account() *account { return &q.peer.accounts[q.silent] }

// allowance returns how many bytes of requests q may send to its peer: what is
// left of the limit, unless others wait for that, or a request that fits into
// the share that q has in any case. With very many queue pairs the share is one
// packet, for as many of them as fit. A silent one always has one packet to ask
// with.
func (q *QP) allowance() int {
	if q.peer == nil {
		return math.MaxInt
	}
	a := q.account()
	left, packet := a.limit-a.inFlight, int(q.mtu)+qp.PacketOverhead
	switch {
	case left > 0 && a.waiting.Len() == 0: // a READ may be larger
		return left
	case left > 0 && a.admitted == q && q.quantum > 0:
		return min(left, q.quantum)
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

// endAdmitted ends the turn of q to take what is left of the limit, if it had
// that. With more to send, q keeps its place until its quantum is used up.
func (p *peers) endAdmitted(q *QP, more bool) {
	if q.peer == nil || q.account().admitted != q {
		return
	}
	q.account().admitted = nil
	if more && q.quantum > 0 {
		p.stop(q, true)
	}
}

// peers are the peers of an engine.
type peers struct {
	limit   int // bytes in flight to each
	byAddr  map[netip.Addr]*peer
	limited []*account    // with queue pairs that their limit has stopped
	cursor  int           // of them, the next to be looked at
	notices qp.NoticeGate // of a peer, to begin with
}

// connect makes q a user of the peer at addr.
func (p *peers) connect(q *QP, addr netip.Addr) {
	p.disconnect(q)
	to := p.byAddr[addr]
	if to == nil {
		to = &peer{addr: addr, notices: p.notices}
		to.accounts[accountLive] = account{limit: p.limit}
		to.accounts[accountSilent] = account{limit: p.limit / silentPart}
		if p.byAddr == nil {
			p.byAddr = map[netip.Addr]*peer{}
		}
		p.byAddr[addr] = to
	}
	to.users++
	q.peer = to
}

// disconnect ends what q has in flight to its peer.
func (p *peers) disconnect(q *QP) {
	from := q.peer
	if from == nil {
		return
	}
	q.account().leave(q)
	q.peer, q.silent = nil, accountLive
	if from.users--; from.users == 0 {
		delete(p.byAddr, from.addr)
	}
}

// count records that q has n bytes in flight now, and whether its peer is
// silent. It reports whether q was waiting for an account that it has left, and
// should go on.
func (q *QP) count(n int, silent bool) (resume bool) {
	account := uint8(accountLive)
	if silent {
		account = accountSilent
	}
	if q.peer == nil || n == 0 && q.inFlight == 0 && q.silent == accountLive {
		return false
	}
	if account != q.silent {
		resume = q.account().leave(q)
		q.silent = account
	}
	q.peer.accounts[q.silent].take(q, n)
	return resume
}

// stop puts q, which the limit holds back, on its peer's list. With first it
// goes on there with what is left of its quantum.
func (p *peers) stop(q *QP, first bool) {
	a := q.account()
	switch {
	case first:
		if q.limited.In() {
			a.waiting.Remove(&q.limited)
		}
		a.waiting.PushFront(&q.limited)
	case !q.limited.In():
		q.quantum = mostTurn
		a.waiting.PushBack(&q.limited)
	}
	if !a.listed {
		a.listed = true
		p.limited = append(p.limited, a)
	}
}

// admitLook is how many peers are looked at before each turn, unless no queue
// pair has anything to send.
const admitLook = 8

// admits reports whether admit would let a queue pair go on.
func (p *peers) admits() bool {
	return slices.ContainsFunc(p.limited, func(a *account) bool {
		return a.admitted == nil && a.waiting.Len() > 0 && a.inFlight < a.limit
	})
}

// admit lets the queue pairs that a peer's limit has stopped go on when there
// is room again, one after the other: what an acknowledgement frees is for the
// one that has waited longest, not for the one that was acknowledged. Each
// keeps its place until it has had a turn's bytes (deficit round robin): if
// each got what happens to be free, those that have much in flight would find
// much free, and so on for ever.
func (p *peers) admit(t *turns) {
	n := len(p.limited)
	if t.front(AllClasses) != nil {
		n = min(n, admitLook)
	}
	for range n {
		last := len(p.limited) - 1
		i := p.cursor % (last + 1)
		switch a := p.limited[i]; {
		case a.admitted == nil && a.waiting.Len() == 0:
			a.listed = false
			p.limited[i], p.limited[last] = p.limited[last], nil
			p.limited = p.limited[:last]
			if last == 0 {
				return
			}
			continue
		case a.admitted == nil && a.inFlight < a.limit:
			a.admitted = a.waiting.PopFront()
			t.push(a.admitted)
		}
		p.cursor = i + 1
	}
}
