package cm

import (
	"cmp"
	"errors"
	"net/netip"
	"time"

	"github.com/gosoftroce/rocev2/rdma/cm/agent"
	"github.com/gosoftroce/rocev2/rocev2/mad"
	"github.com/gosoftroce/rocev2/verbs"
)

// Greeting is a request that a listener answers itself.
type Greeting struct {
	Remote      netip.AddrPort
	Params      Params
	PrivateData []byte // as Request.PrivateData, valid during the call
}

// Greeter decides about a request before anything is made for it. It returns
// how the request is accepted, or an error for which it is rejected: the peer
// is told its text, or the reason and the private data of a *RejectedError; or
// ErrUndecided. Attackers can forge any number of requests, so it must return
// at once and remember nothing. A request that comes again is asked about
// again, and the answer must be the same. It must not use the listener.
type Greeter func(*Greeting) (AcceptConfig, error)

// ErrUndecided of a Greeter leaves a request to the program: Accept returns it
// before its peer was told anything, and Request.QPN is 0. That is for requests
// whose answer depends on a queue pair that exists already.
var ErrUndecided = errors.New("cm: the program decides about the request")

// Greet has the listener, of RC or UC, answer requests itself from now on,
// before there is a queue pair. Accept then returns those whose peer has
// answered that, so that it exists: make a queue pair with the number
// Request.QPN, and call Request.Accept with the AcceptConfig that g has
// returned. It fails with ErrGone where the connection is over already. What a
// peer costs before is a few hundred bytes, for at most 20 s, and the oldest
// makes room for others: first the one of the same source. A nil g ends it, as
// Close does: peers that have not answered by then are rejected when they do.
func (l *Listener) Greet(g Greeter) {
	l.m.lock()
	defer l.m.unlock()
	if l.closed || l.m.closed {
		return
	}
	var answer agent.Greeter
	if g != nil {
		answer = (&greeting{l: l, greet: g}).answer
	}
	if answer != nil || l.entrance != nil {
		answer = l.entrance.guard(l.m, answer)
	}
	l.m.agent.Greet(l.service(), answer)
}

// greeting is what a listener says to requests.
type greeting struct {
	l     *Listener
	greet Greeter
	mtu   verbs.MTU // of the device
	asked time.Duration
}

// answer implements agent.Greeter. The manager is locked.
func (h *greeting) answer(path *agent.Path, req *mad.REQ) (*mad.REP, *mad.REJ) {
	var a asked
	if reason := a.read(&agent.Event{Path: *path, Request: req}, h.l.cfg.Type, h.l.addr.Addr()); reason != 0 {
		return nil, &mad.REJ{Reason: reason}
	}
	if reason, info := a.limit(h.most(path.Remote)); reason != 0 {
		return nil, &mad.REJ{Reason: reason, ARI: info}
	}
	cfg, err := h.greet(&Greeting{Remote: a.remote, Params: a.params, PrivateData: a.data})
	switch {
	case errors.Is(err, ErrUndecided):
		return nil, nil
	case err == nil:
		err = tooLong("REP", len(cfg.PrivateData), MaxAcceptPrivate)
	}
	if err != nil {
		return nil, refusal(err, a.ece)
	}
	_, rep := acceptance(a.remote.Addr(), a.params, a.ece, 0, &cfg, mostRdAtomic(h.l.m.dev))
	return rep, nil
}

// of reads a request for a listener: as fit does, or by the terms that the peer
// was told.
func (a *asked) of(l *Listener, e *agent.Event) (Reason, []byte) {
	if e.QPN == 0 {
		return a.fit(e, l.cfg.Type, l.addr.Addr(), l.mostMTU)
	}
	reason := a.read(e, l.cfg.Type, l.addr.Addr())
	a.params.PathMTU = ECE(e.ECE).mtu(a.params.PathMTU)
	return reason, nil
}

// fewHalfOpen are so few that the system can be asked about the way to each.
const fewHalfOpen = 64

// most returns the largest path MTU of the way to a peer. In a crowd it is that
// of the device, as it was within the last second: to ask the system takes
// longer than all else.
func (h *greeting) most(peer netip.Addr) verbs.MTU {
	m := h.l.m
	if m.agent.Stats().HalfOpen < fewHalfOpen {
		return h.l.mostMTU(peer)
	}
	if now := m.tasks.Since(m.base); h.mtu == 0 || now-h.asked > time.Second {
		h.mtu, h.asked = h.l.mostMTU(netip.Addr{}), now
	}
	return h.mtu
}

// refusal is the REJ of a request that a Greeter refuses.
func refusal(err error, peer ECE) *mad.REJ {
	r := &mad.REJ{Reason: ReasonConsumer, Private: []byte(err.Error())}
	if said := (*RejectedError)(nil); errors.As(err, &said) {
		r.Reason, r.Private = cmp.Or(said.Reason, ReasonConsumer), said.PrivateData
	}
	if peer.native() {
		r.ARI = marker
	}
	r.Private = r.Private[:min(len(r.Private), MaxRejectPrivate)]
	return r
}

// QPN returns the number that the peer was told, of the queue pair that is to
// be made for it (verbs.QPConfig.Number); or 0 if it was told nothing yet, as
// without Listener.Greet.
func (r *Request) QPN() verbs.QPN { return r.number }

// adopt is accept of a request whose peer was told all, and has answered.
func (r *Request) adopt(qp *verbs.QP, cfg *AcceptConfig) (*Conn, error) {
	if qp.QPN() != r.number {
		return nil, errors.New("the queue pair needs the number that the peer was told: set verbs.QPConfig.Number to Request.QPN")
	}
	if err := r.take(); err != nil {
		return nil, err
	}
	w, _ := acceptance(r.remote.Addr(), r.params, r.ece, r.psn, cfg, mostRdAtomic(r.m.dev))
	c := &Conn{m: r.m, id: r.id, qp: qp, local: r.l.addr, remote: r.remote, data: r.data, ece: r.ece, params: w.params, control: r.control}
	w.seal = r.control.seal(r.peerID, mad.CommID(r.id))
	err := w.apply(qp)
	if w.stayReceiver {
		verbs.HCA(r.m.dev).ReleaseQPN(r.number)
	}
	if err = r.m.adopt(c, err); err != nil {
		fail(qp)
		return nil, err
	}
	return c, nil
}

// adopt has a connection that is established get its events from now on, or
// ends it if its queue pair could not be set up.
func (m *manager) adopt(c *Conn, setup error) error {
	m.lock()
	defer m.unlock()
	switch {
	case m.closed:
		return m.errOver()
	case setup == nil && m.agent.State(c.id) != agent.StateEstablished:
		setup = ErrGone
	case setup == nil:
		m.ids[c.id] = c
		return nil
	}
	m.release(c.id)
	return setup
}

// decline ends a request whose peer was told all, locked: it is disconnected.
func (r *Request) decline() {
	r.m.release(r.id)
	verbs.HCA(r.m.dev).ReleaseQPN(r.number)
}
