package cm

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/gosoftroce/rocev2/rdma/cm/agent"
	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/rocev2/mad"
	"github.com/gosoftroce/rocev2/verbs"
)

const (
	// At the address of this software may soon be something else, which is
	// not understood then. So the answer does not last, and the next one
	// costs a round trip. That of another peer lasts, as does silence.
	nativeAge  = time.Second
	foreignAge = 10 * time.Second

	// How long a call waits for an answer: four round trips, if the time of
	// one is known. What comes later is for the next call.
	leastPatience = 2 * time.Millisecond
	mostPatience  = 50 * time.Millisecond

	maxAcquaintances = 1024
	maxQuestions     = 64 // that are not answered
)

// Native reports whether a peer says that it is this software, so that
// [verbs.AddressVector.Native] may be set in the address of a queue pair there.
// It is for queue pairs whose program exchanges addresses in a way that does
// not say so (see [verbs.Endpoint.Native]). Its own address is.
//
// It asks the connection manager of the peer. Other software answers only that
// there is no such service, or does not answer. Answers are kept for a while.
// Native waits for one 2 ms, and longer if the peer is known to be further
// away, at most 50 ms. After that the peer counts as another.
//
// Attackers who see the question, or guess its 32 random bits, can forge the
// answer. Towards a peer that is wrongly taken for this software, data may be
// sent again, or the connection may fail; no data is damaged.
func Native(dev *verbs.Device, peer netip.Addr) bool {
	peer = peer.Unmap().WithZone("")
	if dev == nil || checkPeer(dev, peer) != nil {
		return false
	}
	if peer == dev.Addr().Unmap().WithZone("") {
		return true
	}
	m, err := managerOf(dev)
	if err != nil {
		return false
	}
	m.lock()
	a, w, patience := m.meet(peer)
	native := a.native
	m.unlock()
	if w == nil {
		return native
	}
	ctx, cancel := m.tasks.WithTimeout(context.Background(), patience)
	defer cancel()
	m.await(ctx, w) // a is false without an answer
	m.lock()
	defer m.unlock()
	return a.native
}

// Met says that a peer is this software, as a connection has said: for as long
// as an answer is kept, [Native] does not ask. It is for programs that take the
// attributes of a connection ([ID.InitQPAttr]) to a queue pair by something
// that does not carry [verbs.AddressVector.Native].
func Met(dev *verbs.Device, peer netip.Addr) {
	peer = peer.Unmap().WithZone("")
	m, err := managerOf(dev)
	if err != nil || checkPeer(dev, peer) != nil {
		return
	}
	m.lock()
	defer m.unlock()
	a := m.peers.of[peer]
	if a == nil {
		a = &acquaintance{m: m}
		m.peers.add(peer, a)
	}
	if a.asking {
		m.agent.Release(m.now(), a.id)
		a.answered(m.now(), true)
	}
	a.native, a.since = true, m.now()
}

// acquaintances are the peers that were asked what they are.
type acquaintances struct {
	of        map[netip.Addr]*acquaintance
	questions []*acquaintance // not answered, oldest first
}

// acquaintance is what a peer says of itself. The manager's lock guards it.
type acquaintance struct {
	m       *manager
	native  bool // not while it is asked
	asking  bool
	id      agent.ID   // of the question
	since   clock.Time // of the question; of the answer if there is one
	rtt     time.Duration
	waiters []*waiter
}

// meet returns what is known of a peer. If the answer may still come in time it
// returns a waiter for it, and how long that should wait.
func (m *manager) meet(peer netip.Addr) (*acquaintance, *waiter, time.Duration) {
	now := m.now()
	a := m.peers.of[peer]
	if a == nil {
		a = &acquaintance{m: m}
		m.peers.add(peer, a)
	}
	if !a.asking {
		if a.since != 0 && now.Sub(a.since) < a.age() || !a.ask(now, peer) {
			return a, nil, 0
		}
	}
	rest := min(max(4*a.rtt, leastPatience), mostPatience) - now.Sub(a.since)
	if rest <= 0 {
		return a, nil, 0
	}
	w := newWaiter()
	a.waiters = append(a.waiters, w)
	return a, w, rest
}

// add keeps a, in the place of another if there are many.
func (k *acquaintances) add(peer netip.Addr, a *acquaintance) {
	if k.of == nil {
		k.of = map[netip.Addr]*acquaintance{}
	}
	if len(k.of) >= maxAcquaintances {
		for other, b := range k.of {
			if !b.asking { // few are
				delete(k.of, other)
				break
			}
		}
	}
	k.of[peer] = a
}

func (a *acquaintance) age() time.Duration {
	if a.native {
		return nativeAge
	}
	return foreignAge
}

// ask sends the question. Where too many are out, the oldest is given up.
func (a *acquaintance) ask(now clock.Time, peer netip.Addr) bool {
	m := a.m
	a.native = false
	if q := m.peers.questions; len(q) >= maxQuestions {
		oldest := q[0]
		m.agent.Release(now, oldest.id)
		oldest.answered(0, false) // it is asked again when it matters
	}
	id, err := m.ask(a, agent.IdentityRequest(agent.Path{Local: m.dev.Addr().Unmap().WithZone(""), Remote: peer}, mad.ECE(own)))
	if err != nil {
		return false
	}
	m.peers.questions = append(m.peers.questions, a)
	a.id, a.asking, a.since = id, true, now
	return true
}

// event implements sink: the answer, or that none has come.
func (a *acquaintance) event(e *agent.Event) {
	now := a.m.now()
	if e.SIDRReply != nil {
		// It may answer the repetition: then this is too long, and does
		// no harm.
		a.rtt = now.Sub(a.since)
	}
	a.answered(now, e.SIDRReply != nil && ECE(e.SIDRReply.ECE).native())
}

// answered ends the question.
func (a *acquaintance) answered(now clock.Time, native bool) {
	delete(a.m.ids, a.id)
	if i := slices.Index(a.m.peers.questions, a); i >= 0 {
		a.m.peers.questions = slices.Delete(a.m.peers.questions, i, i+1)
	}
	a.asking, a.native, a.since = false, native, now
	a.wake(false)
}

// over implements sink.
func (a *acquaintance) over() { a.wake(true) }

func (a *acquaintance) wake(over bool) {
	for _, w := range a.waiters {
		w.over = over
		w.ready <- struct{}{}
		a.m.nudge = true
	}
	a.waiters = nil
}
