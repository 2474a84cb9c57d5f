package cm

import (
	"github.com/gosoftroce/rocev2/rdma/cm/agent"
	"github.com/gosoftroce/rocev2/rocev2/mad"
	"github.com/gosoftroce/rocev2/verbs"
)

// event implements sink. What the event means is found out when the program
// takes it: then the calls that it has made before are done.
func (id *ID) event(e *agent.Event) {
	if e.Kind.Final() {
		delete(id.at.m.ids, e.ID)
		if id.out.forgotten(id) {
			id.at.m.tasks.Go(func() { id.Close() }) // it may close the device
			return
		}
	}
	raw := *e
	id.out.deliver(&pending{id: id, raw: &raw})
}

// over implements sink: the device is being closed.
func (id *ID) over() {
	id.out.deliver(&pending{id: id, event: Event{Type: EventDeviceRemoval, ID: id, err: ErrClosed}})
}

// make makes the event for the program, nil if there is nothing to tell.
func (id *ID) make(p *pending) *Event {
	if p.raw == nil {
		return &p.event
	}
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.state == idClosed {
		return nil
	}
	e := id.translate(p.raw)
	if e != nil {
		e.ID = id
	}
	return e
}

// translate says what an event of the agent means to the program, and does what
// it calls for.
func (id *ID) translate(e *agent.Event) *Event {
	var out Event
	defer func() {
		if out.Type == EventEstablished {
			out.TLS = id.terms.control.shown()
		}
	}()
	switch e.Kind {
	case agent.EventReply:
		out = id.replied(e)
	case agent.EventSIDRReply:
		id.state = idOver
		out = sidrEvent(e.SIDRReply, id.peer.Addr(), id.terms.cfg.TrafficClass)
		if out.err == nil {
			id.state = idConnected
		}
	case agent.EventEstablished:
		id.state = idConnected
		out = Event{Type: EventEstablished, Conn: ConnParam{PrivateData: e.Private, QPN: id.terms.params.QPN}}
	case agent.EventRejected:
		rejected := endOf(e)
		if id.state == idConnecting && id.terms.lower(rejected) && id.request() == nil {
			return nil
		}
		id.terms.letGo()
		id.state = idOver
		out = failure(EventRejected, rejected)
	case agent.EventUnreachable:
		id.terms.letGo()
		id.state = idOver
		out = failure(EventUnreachable, ErrUnreachable)
	case agent.EventDisconnectRequested, agent.EventDisconnected:
		if id.told {
			return nil
		}
		id.told, id.state = true, idDisconnecting
		out = Event{Type: EventDisconnected, Conn: ConnParam{PrivateData: e.Private}}
		if e.TimedOut {
			out.err, out.Status = ErrUnreachable, statusOf(ErrUnreachable)
		}
	case agent.EventTimewaitExit:
		id.state = idOver
		out = Event{Type: EventTimewaitExit}
	}
	return &out
}

// replied takes the answer of the peer.
func (id *ID) replied(e *agent.Event) Event {
	id.terms.take(id.peer.Addr(), e.Reply)
	id.state = idReplied
	id.terms.letGo()
	if id.qp == nil {
		return replyEvent(EventConnectResponse, e.Reply)
	}
	id.terms.ids = [2]mad.CommID{mad.CommID(id.id), e.Reply.LocalID}
	id.terms.wiring.seal = id.terms.control.seal(id.terms.ids[0], id.terms.ids[1])
	err := id.terms.wiring.apply(id.qp)
	if err != nil {
		_ = id.at.m.reject(id.id, rejection(err), nil, nil) // the peer may have given up
	} else {
		err = id.at.m.establish(id.id)
	}
	if err != nil {
		id.state = idOver
		return failure(EventConnectError, err)
	}
	id.state = idConnected
	return replyEvent(EventEstablished, e.Reply)
}

// existingManager returns the manager of a device, nil if it has none.
func existingManager(dev *verbs.Device) *manager {
	managers.mu.Lock()
	defer managers.mu.Unlock()
	return managers.of[dev]
}
