package cm

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

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
	if err := id.want("Listen", idIdle, idBound); err != nil {
		return err
	}
	if id.state == idIdle {
		if err := id.bind(netip.AddrPort{}); err != nil {
			return fmt.Errorf("cm: listen: %w", err)
		}
		id.state = idBound
	}
	for _, h := range id.held {
		err := listenOn(h, id, backlog)
		if err == nil {
			continue
		}
		for _, l := range id.listening {
			l.close()
		}
		id.listening = nil
		if errors.Is(err, agent.ErrListening) { // the port is shared
			err = &PortError{Space: id.space, Port: id.local.Port()}
		}
		return fmt.Errorf("cm: listen on %v: %w", id.local, err)
	}
	id.state, id.backlog = idListening, backlog
	return nil
}

// listenOn has an ID listen on a device.
func listenOn(h held, id *ID, backlog int) error {
	m, err := managerOf(h.dev)
	if err != nil {
		return err
	}
	l := &idListener{id: id, m: m, held: h, typ: id.typ, addr: netip.AddrPortFrom(h.dev.Addr(), id.local.Port())}
	if err := m.listen(l.service(), backlog, l); err != nil {
		return err
	}
	id.listening = append(id.listening, l)
	return nil
}

// idListener is a listening ID on one device.
type idListener struct {
	id   *ID
	m    *manager
	typ  verbs.QPType
	addr netip.AddrPort
	held held
}

func (l *idListener) service() mad.ServiceID { return l.id.space.Service(l.addr.Port()) }

func (l *idListener) close() {
	l.m.lock()
	defer l.m.unlock()
	l.m.expect(l.service(), l.id.patience)
}

// over implements sink.
func (l *idListener) over() { l.id.over() }

// event implements sink: it makes an ID for a request.
func (l *idListener) event(e *agent.Event) {
	var a asked
	if reason, info := a.fit(l.m, e, l.typ, l.addr.Addr()); reason != 0 {
		l.m.refuse(e, reason, info)
		return
	}
	id := &ID{space: l.id.space, typ: l.typ, state: idRequested, m: l.m,
		held: []held{l.held.share()}, local: l.addr, peer: a.remote, id: e.ID, params: a.params, ece: a.ece}
	id.out.ch = l.id.out.channel()
	if id.out.ch.enter(id) != nil {
		id.held[0].release()
		l.m.agent.Release(l.m.now(), e.ID)
		return
	}
	l.m.ids[e.ID] = id
	event := requestEvent(e, &a.params, a.data)
	event.ID, event.Listener = id, l.id
	id.out.asked = &pending{id: id, event: event}
	id.out.deliver(id.out.asked)
}

// Connect asks the peer for a connection: rdma_connect. With a queue pair of
// CreateQP, EventEstablished follows when all is done, without one
// EventConnectResponse; else EventRejected, EventUnreachable or
// EventConnectError. For datagrams EventEstablished tells of the peer's queue
// pair. A nil p asks for 128 READs each way and retries for ever.
func (id *ID) Connect(p *ConnParam) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if err := id.want("Connect", idRouteResolved); err != nil {
		return err
	}
	if p == nil {
		p = &ConnParam{ResponderResources: maxRdAtomic, InitiatorDepth: maxRdAtomic, RetryCount: 7, RNRRetryCount: 7}
	}
	var err error
	if id.typ == verbs.UD {
		err = askFor(id, p)
	} else {
		err = connect(id, p)
	}
	if err != nil {
		return fmt.Errorf("cm: connect to %v: %w", id.peer, err)
	}
	id.state = idConnecting
	return nil
}

func connect(id *ID, p *ConnParam) error {
	if err := tooLong("REQ of RDMA-CM", len(p.PrivateData), MaxDialPrivate); err != nil {
		return err
	}
	c := &id.cfg
	c.ResponderResources, c.InitiatorDepth = verbs.Set(p.ResponderResources), verbs.Set(p.InitiatorDepth)
	c.RetryCount, c.RNRRetry, c.FlowControl, c.PrivateData = verbs.Set(p.RetryCount), verbs.Set(p.RNRRetryCount), p.FlowControl, p.PrivateData
	id.req = c.request(id.typ, id.local, id.peer, randomPSN(id.m.dev))
	c.PrivateData = nil
	id.req.ECE = id.m.withSlots(id.req.ECE)
	id.req.PathMTU = uint8(id.m.dev.PathMTU(id.peer.Addr()))
	if id.req.LocalQPN, id.req.SRQ = p.QPN, p.SRQ; id.qp != nil {
		id.req.LocalQPN, id.req.SRQ = id.qp.QPN(), id.qp.Config().SRQ != nil
	}
	if id.req.LocalQPN == 0 {
		return errors.New("there is no queue pair: call CreateQP, or set QPN")
	}
	return sendRequest(id)
}

// sendRequest sends the REQ.
func sendRequest(id *ID) error {
	id.m.lock()
	defer id.m.unlock()
	if id.m.closed {
		return id.m.errOver()
	}
	cid, err := id.m.agent.Connect(id.m.now(), &agent.ConnectRequest{Path: pathOf(id), REQ: id.req, Patience: id.patience})
	if err == nil {
		id.id = cid
		id.m.ids[cid] = id
	}
	return err
}

func pathOf(id *ID) agent.Path {
	return agent.Path{Local: id.local.Addr().WithZone(""), Remote: id.peer.Addr().WithZone(""), TrafficClass: id.cfg.TrafficClass,
		FlowLabel: id.req.Primary.FlowLabel}
}

// askFor sends a SIDR_REQ.
func askFor(id *ID, p *ConnParam) error {
	if err := tooLong("SIDR_REQ of RDMA-CM", len(p.PrivateData), MaxResolvePrivate); err != nil {
		return err
	}
	ip := ipHeader(id.local, id.peer)
	id.m.lock()
	defer id.m.unlock()
	cid, err := id.m.ask(id, &agent.SIDRRequest{Path: pathOf(id), ServiceID: id.space.Service(id.peer.Port()), Patience: id.patience,
		Private: append(ip.AppendTo(nil), p.PrivateData...)})
	id.id = cid
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
	if err := id.want("Accept", idRequested); err != nil {
		return err
	}
	if p == nil {
		p = &ConnParam{ResponderResources: maxRdAtomic, InitiatorDepth: maxRdAtomic, RNRRetryCount: 7, FlowControl: id.params.FlowControl}
	}
	var err error
	if id.typ == verbs.UD {
		err = answerTo(id, p, mad.SIDRSuccess)
	} else {
		err = id.accept(p)
	}
	if err != nil {
		return fmt.Errorf("cm: accept %v: %w", id.peer, err)
	}
	return nil
}

func (id *ID) accept(p *ConnParam) error {
	if err := tooLong("REP", len(p.PrivateData), MaxAcceptPrivate); err != nil {
		return err
	}
	if id.qp == nil && p.QPN == 0 {
		return errors.New("there is no queue pair: call CreateQP, or set QPN")
	}
	w, rep := acceptanceOf(id, p)
	rep.ECE = id.m.withSlots(rep.ECE)
	if rep.LocalQPN, rep.SRQ = p.QPN, p.SRQ; id.qp != nil {
		rep.LocalQPN, rep.SRQ = id.qp.QPN(), id.qp.Config().SRQ != nil
		if err := w.apply(id.qp); err != nil {
			return err
		}
	}
	id.m.lock()
	defer id.m.unlock()
	if id.m.closed {
		return id.m.errOver()
	}
	if err := id.m.agent.Accept(id.m.now(), id.id, rep); err != nil {
		return gone(err)
	}
	id.state = idAccepted
	return nil
}

// acceptanceOf returns the terms. InitQPAttr may have asked for them before:
// then they are those.
func acceptanceOf(id *ID, p *ConnParam) (*wiring, *mad.REP) {
	w, rep := acceptance(id.peer.Addr(), id.params, id.ece, randomPSN(id.m.dev), &AcceptConfig{
		PrivateData: p.PrivateData, FlowControl: p.FlowControl, ECE: id.localECE, RNRRetry: verbs.Set(p.RNRRetryCount),
		ResponderResources: verbs.Set(p.ResponderResources), InitiatorDepth: verbs.Set(p.InitiatorDepth)})
	if id.wiring != nil {
		w.rqPSN, rep.StartingPSN = id.wiring.rqPSN, id.wiring.rqPSN
	}
	id.wiring = w
	return w, rep
}

// answerTo sends a SIDR_REP.
func answerTo(id *ID, p *ConnParam, status mad.SIDRStatus) error {
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
	err := id.m.answer(id.id, rep)
	if err == nil {
		id.state = idConnected
	}
	return err
}

// Reject refuses the request that the ID was made for, or the peer's answer
// (EventConnectResponse): rdma_reject. data has up to 148 bytes, of datagrams
// 136.
func (id *ID) Reject(data []byte) error { return reject(id, ReasonConsumer, data) }

// RejectECE refuses because of what the peer says of itself: rdma_reject_ece.
func (id *ID) RejectECE(data []byte) error { return reject(id, ReasonVendorOption, data) }

func reject(id *ID, reason Reason, data []byte) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if err := id.want("Reject", idRequested, idReplied); err != nil {
		return err
	}
	var err error
	if id.typ == verbs.UD {
		err = answerTo(id, &ConnParam{PrivateData: data}, mad.SIDRRejected)
	} else if err = tooLong("REJ", len(data), MaxRejectPrivate); err == nil {
		var info []byte
		if id.ece.native() {
			info = marker
		}
		err = id.m.reject(id.id, reason, info, data)
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
	if id.want("Take", idRequested) == nil {
		id.m.take(id.id)
	}
}

// Ignore ends the ID of a request without a word to the peer, where there is no
// room for it. The peer asks again, and that is a new request.
func (id *ID) Ignore() error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if err := id.want("Ignore", idRequested); err != nil {
		return err
	}
	if err := id.m.ignore(id.id); err != nil {
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
	if err := id.want("Establish", idReplied); err != nil {
		return err
	}
	return ready(id)
}

// ready sends the RTU.
func ready(id *ID) error {
	id.m.lock()
	defer id.m.unlock()
	if id.m.closed {
		return id.m.errOver()
	}
	if err := id.m.agent.Ready(id.m.now(), id.id, nil); err != nil {
		return gone(err)
	}
	id.state = idConnected
	return nil
}

// Notify tells of an event of the queue pair: rdma_notify. With
// verbs.EventCommEstablished the connection counts as established, though the
// peer's message was lost.
func (id *ID) Notify(e verbs.Event) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if err := id.want("Notify", idAccepted, idConnected); err != nil {
		return err
	}
	if e != verbs.EventCommEstablished {
		return fmt.Errorf("cm: Notify: %v means nothing to the connection manager; only %v does", e, verbs.EventCommEstablished)
	}
	id.m.lock()
	defer id.m.unlock()
	if !id.m.closed {
		id.m.agent.Communicated(id.id)
	}
	return nil
}

// Disconnect ends the connection, or answers the peer that does:
// rdma_disconnect. The queue pair goes to ERR first. EventDisconnected follows,
// unless it has come before, and EventTimewaitExit.
func (id *ID) Disconnect() error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if err := id.want("Disconnect", idConnected, idAccepted, idDisconnecting); err != nil {
		return err
	}
	if id.typ == verbs.UD {
		return errors.New("cm: Disconnect: datagrams have no connection")
	}
	fail(id.qp)
	id.m.lock()
	defer id.m.unlock()
	if id.m.closed {
		return id.m.errOver()
	}
	err := id.m.agent.Disconnect(id.m.now(), id.id, nil)
	if state := (*agent.StateError)(nil); errors.As(err, &state) {
		if state.State == agent.StateREPSent { // the peer is not ready: as Linux does
			id.m.release(id.id)
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
	w := id.wiring
	if w == nil && id.state == idRequested {
		w, _ = acceptanceOf(id, &ConnParam{ResponderResources: maxRdAtomic, InitiatorDepth: maxRdAtomic, RNRRetryCount: 7})
	}
	if w == nil {
		w = &wiring{params: Params{Type: id.typ, ResponderResources: maxRdAtomic}}
		if s != verbs.StateInit {
			return nil, 0, &StateError{Op: "InitQPAttr", State: id.state.String(), Want: "one with a request or a reply of the peer"}
		}
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
	if err := id.want("JoinMulticast", idBound, idAddrResolved, idRouteResolved, idConnected); err != nil {
		return err
	}
	group = group.Unmap().WithZone("")
	err := join(id, group)
	if err != nil {
		id.tell(failure(EventMulticastError, fmt.Errorf("cm: join %v: %w", group, err)))
		return nil
	}
	id.tell(Event{Type: EventMulticastJoin, UD: UDParam{QPN: verbs.MulticastQPN, QKey: QKey,
		AV: verbs.AddressVector{DGID: group, TrafficClass: id.cfg.TrafficClass}}})
	return nil
}

func join(id *ID, group netip.Addr) error {
	switch {
	case id.m == nil:
		return errors.New("the ID is bound to no device, or to several")
	case slices.Contains(id.groups, group):
		return errors.New("the ID has joined it already")
	case !group.IsMulticast() || group.Is4() != id.m.dev.Addr().Unmap().Is4():
		return verbs.ErrNotGroup
	case id.qp == nil:
		return nil
	}
	if err := id.qp.Attach(group); err != nil {
		return err
	}
	id.groups = append(id.groups, group)
	return nil
}

// LeaveMulticast leaves a group: rdma_leave_multicast.
func (id *ID) LeaveMulticast(group netip.Addr) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	group = group.Unmap().WithZone("")
	i := slices.Index(id.groups, group)
	if i < 0 {
		return fmt.Errorf("cm: leave %v: %w", group, verbs.ErrNotAttached)
	}
	id.groups = slices.Delete(id.groups, i, i+1)
	return id.qp.Detach(group)
}
