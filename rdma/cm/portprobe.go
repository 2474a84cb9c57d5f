package cm

import (
	"net/netip"
	"time"

	"github.com/gosoftroce/rocev2/rdma/cm/agent"
	"github.com/gosoftroce/rocev2/rocev2/mad"
	"github.com/gosoftroce/rocev2/verbs"
)

// portProbe finds out whether the UDP port of RoCEv2 is closed at a peer. It
// serves all requests to the peer that have no answer.
type portProbe struct {
	conns map[*Conn]struct{}
	stop  chan struct{} // closed when no request waits any more
}

const (
	// probeAfter is after how long without an answer the peer is probed.
	// Most are answered sooner.
	probeAfter = 20 * time.Millisecond
	// maxProbes bounds the peers that are probed at once: each takes a
	// socket.
	maxProbes = 256
)

// probing tells the waiter of a request that stays unanswered when the peer's
// host says that the UDP port is closed. The caller ends that by the returned
// function.
func (c *Conn) probing() (end func()) {
	m := c.m
	if !verbs.HCA(m.dev).CanProbePort() {
		return func() {}
	}
	over := false // guarded by the lock of m: the timer may have gone off already
	timer := m.tasks.AfterFunc(probeAfter, func() { m.probe(c, &over) })
	return func() {
		timer.Stop()
		m.lock()
		defer m.unlock()
		over = true
		m.leaveProbe(c)
	}
}

// probe has c share the probe of its peer, and begins it if there is none. It
// does nothing if c waits no more.
func (m *manager) probe(c *Conn, over *bool) {
	m.lock()
	defer m.unlock()
	if *over || m.closed || c.waiter == nil || !m.agent.Unanswered(c.id) {
		return
	}
	peer := c.remote.Addr()
	p := m.probes[peer]
	if p == nil {
		if len(m.probes) == maxProbes {
			return
		}
		p = &portProbe{conns: map[*Conn]struct{}{}, stop: make(chan struct{})}
		m.probes[peer] = p
		m.tasks.Go(func() { m.runProbe(p, peer) })
	}
	p.conns[c] = struct{}{}
}

// leaveProbe is called when c waits no more, locked.
func (m *manager) leaveProbe(c *Conn) {
	p := m.probes[c.remote.Addr()]
	if p == nil {
		return
	}
	if delete(p.conns, c); len(p.conns) == 0 {
		delete(m.probes, c.remote.Addr())
		close(p.stop)
	}
}

// runProbe sends the peer what no connection manager answers, a REJ of no
// connection, and tells those that wait if its host says that the port is
// closed.
func (m *manager) runProbe(p *portProbe, peer netip.Addr) {
	adapter := verbs.HCA(m.dev)
	rej := mad.REJ{TransactionID: uint64(adapter.Random())<<32 | uint64(adapter.Random()),
		Message: mad.StageOther, Reason: mad.ReasonInvalidCommID}
	if !adapter.ProbePort(peer, rej.AppendTo(nil), p.stop) {
		return
	}
	m.lock()
	defer m.unlock()
	if m.probes[peer] == p {
		delete(m.probes, peer)
	}
	for c := range p.conns {
		if c.waiter != nil && m.agent.Unanswered(c.id) {
			c.waiter.noDevice = true
			c.wake(&agent.Event{})
		}
	}
}
