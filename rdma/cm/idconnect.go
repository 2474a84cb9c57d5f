package cm

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/gosoftroce/rocev2/rdma/cm/agent"
	"github.com/gosoftroce/rocev2/rocev2/mad"
	"github.com/gosoftroce/rocev2/verbs"
)

// What an ID does with its peer.

// Listen takes requests: rdma_listen. EventConnectRequest comes for each.
// backlog is how many wait at most to be answered; 0 means 1024. An ID that is
// not bound gets a free port on all devices of the channel.
func (id *ID) Listen(backlog int) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if err := id.state.want("Listen", idIdle, idBound); err != nil {
		return err
	}
	if id.state == idIdle {
		if err := id.at.to(id.out.channel(), netip.AddrPort{}); err != nil {
			return fmt.Errorf("cm: listen: %w", err)
		}
		id.state = idBound
	}
	for _, h := range id.at.held {
		err := h.listenFor(id, backlog)
		if err == nil {
			continue
		}
		for _, l := range id.listening {
			l.close()
		}
		id.listening = nil
		if errors.Is(err, agent.ErrListening) { // the port is shared
			err = &PortError{Space: id.at.space, Port: id.at.local.Port()}
		}
		return fmt.Errorf("cm: listen on %v: %w", id.at.local, err)
	}
	id.state, id.backlog = idListening, backlog
	return nil
}

// idListener is a listening ID on one device.
type idListener struct {
	id   *ID
	m    *manager
	typ  verbs.QPType
	addr netip.AddrPort
	held held

	entrance *entrance // of secured connections
}

// listenFor listens for an ID on a device.
func (h held) listenFor(id *ID, backlog int) error {
	m, err := managerOf(h.dev)
	if err != nil {
		return err
	}
	l := &idListener{id: id, m: m, held: h, typ: id.terms.typ, addr: netip.AddrPortFrom(h.dev.Addr(), id.at.local.Port())}
	if err := l.open(backlog); err != nil {
		return err
	}
	id.listening = append(id.listening, l)
	return nil
}

// open begins to listen. The ID is locked.
func (l *idListener) open(backlog int) (err error) {
	t := &l.id.terms
	if t.tls == nil {
		return l.m.listen(l.service(), backlog, l)
	}
	if err := t.checkSealing(l.m.dev); err != nil {
		return err
	}
	if l.entrance, err = l.m.controls.openEntrance(Addr{l.addr, l.id.at.space}, t.tls, nil); err != nil {
		return err
	}
	err = l.m.listen(l.service(), backlog, l)
	l.m.lock()
	defer l.m.unlock()
	switch {
	case err != nil:
		l.entrance.close(0)
	case !l.m.closed:
		l.m.agent.Greet(l.service(), l.entrance.guard(l.m, nil))
	}
	return err
}

func (l *idListener) service() mad.ServiceID { return l.id.at.space.Service(l.addr.Port()) }

func (l *idListener) close() {
	l.m.lock()
	defer l.m.unlock()
	l.m.expect(l.service(), l.id.patience)
	l.entrance.close(l.id.patience)
}

// over implements sink.
func (l *idListener) over() { l.id.over() }

// event implements sink: it makes an ID for a request.
func (l *idListener) event(e *agent.Event) {
	var a asked
	reason, info := a.fit(e, l.typ, l.addr.Addr(), func(peer netip.Addr) verbs.MTU { return mostMTU(l.m.dev, peer, l.entrance != nil) })
	if reason == 0 && l.entrance.admit(l.m, &e.Path) != nil {
		reason = ReasonConsumer
	}
	if reason != 0 {
		l.m.refuse(e, reason, info)
		return
	}
	id := &ID{state: idRequested, peer: a.remote, id: e.ID, terms: terms{typ: l.typ, params: a.params, ece: a.ece},
		at: binding{space: l.id.at.space, m: l.m, held: []held{l.held.share()}, local: l.addr}}
	if c := l.m.controls.of[e.Path.Control]; c != nil {
		id.terms.control, id.terms.ids = c, [2]mad.CommID{e.Request.LocalID, mad.CommID(e.ID)}
	}
	id.out.ch = l.id.out.channel()
	if id.out.ch.enter(id) != nil {
		id.at.held[0].release()
		l.m.agent.Release(l.m.now(), e.ID)
		return
	}
	l.m.ids[e.ID] = id
	event := requestEvent(e, &a.params, a.data)
	event.TLS = id.terms.control.shown()
	event.ID, event.Listener = id, l.id
	id.out.asked = &pending{id: id, event: event}
	id.out.deliver(id.out.asked)
}

// Connect asks the peer for a connection: rdma_connect. With a queue pair of
// CreateQP, EventEstablished follows when all is done, without one
// EventConnectResponse; else EventRejected, EventUnreachable or
// EventConnectError. For datagrams EventEstablished tells of the peer's queue
// pair. A nil p asks for as many READs each way as the device has (128), and
// retries for ever.
func (id *ID) Connect(p *ConnParam) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if err := id.state.want("Connect", idRouteResolved); err != nil {
		return err
	}
	if p == nil {
		most := mostRdAtomic(id.at.m.dev)
		p = &ConnParam{ResponderResources: most, InitiatorDepth: most, RetryCount: 7, RNRRetryCount: 7}
	}
	err := id.terms.offer(p, id.at.m, id.qp, id.at.local, id.peer)
	if err == nil {
		err = id.request()
	}
	if err != nil {
		return fmt.Errorf("cm: connect to %v: %w", id.peer, err)
	}
	id.state = idConnecting
	return nil
}

// request sends the REQ, or the SIDR_REQ, of the terms. If the connection is to
// be secured it makes the control connection first.
func (id *ID) request() (err error) {
	t, m := &id.terms, id.at.m
	path := t.path(id.at.local, id.peer)
	switch {
	case t.typ == verbs.UD:
		m.lock()
		defer m.unlock()
		id.id, err = m.ask(id, &agent.SIDRRequest{Path: path, ServiceID: t.req.ServiceID, Patience: id.patience, Private: t.req.Private})
	case t.tls != nil && t.control == nil:
		id.cancel = t.call(m, Addr{id.at.local, id.at.space}, Addr{id.peer, id.at.space}, id.patience, id.called)
	default:
		path.Control = t.control.name()
		id.id, err = m.connect(id, &agent.ConnectRequest{Path: path, REQ: t.req, Patience: id.patience})
	}
	return err
}

// Accept accepts the request that the ID was made for: rdma_accept. With a
// queue pair of CreateQP that is taken to RTS first; without one, do so by
// InitQPAttr, and set p.QPN. EventEstablished follows when the peer is ready,
// else EventRejected or EventUnreachable. Of datagrams nothing follows. A nil p
// grants what the peer asks for.
func (id *ID) Accept(p *ConnParam) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if err := id.state.want("Accept", idRequested); err != nil {
		return err
	}
	if p == nil {
		p = &ConnParam{ResponderResources: maxRdAtomic, InitiatorDepth: maxRdAtomic, RNRRetryCount: 7, FlowControl: id.terms.params.FlowControl}
	}
	var err error
	if id.terms.typ == verbs.UD {
		err = id.answer(p, mad.SIDRSuccess)
	} else if rep, bad := id.terms.grant(p, id.at.m, id.qp, id.peer.Addr()); bad != nil {
		err = bad
	} else if err = id.at.m.accept(id, id.id, rep); err == nil {
		id.state = idAccepted
	}
	if err != nil {
		return fmt.Errorf("cm: accept %v: %w", id.peer, err)
	}
	return nil
}

// answer sends a SIDR_REP.
func (id *ID) answer(p *ConnParam, status mad.SIDRStatus) error {
	if err := tooLong("SIDR_REP", len(p.PrivateData), MaxAnswerPrivate); err != nil {
		return err
	}
	rep := &mad.SIDRREP{Status: status, QPN: p.QPN, QKey: p.QKey, Private: p.PrivateData}
	if status == mad.SIDRSuccess {
		if id.qp != nil {
			rep.QPN = id.qp.QPN()
		}
		if rep.QPN == 0 {
			return errors.New("there is no queue pair: call CreateQP, or set QPN")
		}
		if rep.QKey == 0 {
			rep.QKey = QKey
		}
	}
	err := id.at.m.answer(id.id, rep)
	if err == nil {
		id.state = idConnected
	}
	return err
}

// Reject refuses the request that the ID was made for, or the peer's answer
// (EventConnectResponse): rdma_reject. data has up to 148 bytes, of datagrams
// 136.
func (id *ID) Reject(data []byte) error { return id.reject(ReasonConsumer, data) }

// RejectECE refuses because of what the peer says of itself: rdma_reject_ece.
func (id *ID) RejectECE(data []byte) error { return id.reject(ReasonVendorOption, data) }

func (id *ID) reject(reason Reason, data []byte) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if err := id.state.want("Reject", idRequested, idReplied); err != nil {
		return err
	}
	var err error
	if id.terms.typ == verbs.UD {
		err = id.answer(&ConnParam{PrivateData: data}, mad.SIDRRejected)
	} else if err = tooLong("REJ", len(data), MaxRejectPrivate); err == nil {
		var info []byte
		if id.terms.ece.native() {
			info = marker
		}
		err = id.at.m.reject(id.id, reason, info, data)
	}
	if err != nil {
		return fmt.Errorf("cm: reject %v: %w", id.peer, err)
	}
	id.state = idOver
	return nil
}

// Take says that the program has the request that the ID was made for in hand:
// see EventChannel.Poll.
func (id *ID) Take() {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.state.want("Take", idRequested) == nil {
		id.at.m.take(id.id)
	}
}

// Ignore ends the ID of a request without a word to the peer, where there is no
// room for it. The peer asks again, and that is a new request.
func (id *ID) Ignore() error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if err := id.state.want("Ignore", idRequested); err != nil {
		return err
	}
	if err := id.at.m.ignore(id.id); err != nil {
		return fmt.Errorf("cm: ignore %v: %w", id.peer, err)
	}
	id.state = idOver
	return nil
}

// Establish says to the peer that this side is ready, after
// EventConnectResponse: rdma_establish.
func (id *ID) Establish() error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if err := id.state.want("Establish", idReplied); err != nil {
		return err
	}
	err := id.at.m.establish(id.id)
	if err == nil {
		id.state = idConnected
	}
	return err
}

// Notify tells of an event of the queue pair: rdma_notify. With
// verbs.EventCommEstablished the connection counts as established, though the
// peer's message was lost.
func (id *ID) Notify(e verbs.Event) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if err := id.state.want("Notify", idAccepted, idConnected); err != nil {
		return err
	}
	if e != verbs.EventCommEstablished {
		return fmt.Errorf("cm: Notify: %v means nothing to the connection manager; only %v does", e, verbs.EventCommEstablished)
	}
	id.at.m.lock()
	defer id.at.m.unlock()
	if !id.at.m.closed {
		id.at.m.agent.Communicated(id.id)
	}
	return nil
}

// Disconnect ends the connection, or answers the peer that does:
// rdma_disconnect. The queue pair goes to ERR first. EventDisconnected follows,
// unless it has come before, and EventTimewaitExit.
func (id *ID) Disconnect() error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if err := id.state.want("Disconnect", idConnected, idAccepted, idDisconnecting); err != nil {
		return err
	}
	if id.terms.typ == verbs.UD {
		return errors.New("cm: Disconnect: datagrams have no connection")
	}
	fail(id.qp)
	id.at.m.lock()
	defer id.at.m.unlock()
	if id.at.m.closed {
		return id.at.m.errOver()
	}
	err := id.at.m.agent.Disconnect(id.at.m.now(), id.id, nil)
	if state := (*agent.StateError)(nil); errors.As(err, &state) {
		if state.State == agent.StateREPSent { // the peer is not ready: as Linux does
			id.at.m.release(id.id)
			id.state = idOver
		}
		return nil // it is under way, or over
	}
	if err == nil {
		id.state = idDisconnecting
	}
	return gone(err)
}

// InitQPAttr returns what a queue pair that the ID has not made takes to go to
// a state: rdma_init_qp_attr. States are INIT, and after EventConnectRequest or
// EventConnectResponse RTR and RTS.
func (id *ID) InitQPAttr(s verbs.State) (*verbs.Attr, verbs.AttrMask, error) {
	id.mu.Lock()
	defer id.mu.Unlock()
	w := id.terms.wiring
	if w == nil && id.state == idRequested {
		w, _ = id.terms.acceptance(id.peer.Addr(), id.at.m.dev, &ConnParam{ResponderResources: maxRdAtomic, InitiatorDepth: maxRdAtomic, RNRRetryCount: 7})
	}
	if w == nil {
		w = &wiring{params: Params{Type: id.terms.typ, ResponderResources: maxRdAtomic}}
		if s != verbs.StateInit {
			return nil, 0, &StateError{Op: "InitQPAttr", State: id.state.String(), Want: "one with a request or a reply of the peer"}
		}
	}
	if id.terms.control != nil && s != verbs.StateInit {
		return nil, 0, errors.New("cm: InitQPAttr: the connection is secured: the ID takes its own queue pair through the states (CreateQP)")
	}
	switch s {
	case verbs.StateInit:
		a, mask := w.initAttr()
		return a, mask, nil
	case verbs.StateRTR:
		a, mask := w.receiveAttr()
		return a, mask, nil
	case verbs.StateRTS:
		a, mask := w.sendAttr()
		return a, mask, nil
	}
	return nil, 0, fmt.Errorf("cm: InitQPAttr: there are attributes for INIT, RTR and RTS, not for %v", s)
}

// JoinMulticast joins a group, for a queue pair of UD that CreateQP has made:
// rdma_join_multicast. EventMulticastJoin says where to send; or
// EventMulticastError follows. An ID without a queue pair joins nothing and
// learns where to send.
func (id *ID) JoinMulticast(group netip.Addr) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if err := id.state.want("JoinMulticast", idBound, idAddrResolved, idRouteResolved, idConnected); err != nil {
		return err
	}
	group = group.Unmap().WithZone("")
	err := id.groups.join(id.at.m, id.qp, group)
	if err != nil {
		id.tell(failure(EventMulticastError, fmt.Errorf("cm: join %v: %w", group, err)))
		return nil
	}
	id.tell(Event{Type: EventMulticastJoin, UD: UDParam{QPN: verbs.MulticastQPN, QKey: QKey,
		AV: verbs.AddressVector{DGID: group, TrafficClass: id.terms.cfg.TrafficClass}}})
	return nil
}

// LeaveMulticast leaves a group: rdma_leave_multicast.
func (id *ID) LeaveMulticast(group netip.Addr) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	group = group.Unmap().WithZone("")
	return id.groups.leave(id.qp, group)
}
