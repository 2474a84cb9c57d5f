package cm

import (
	"errors"

	"github.com/gosoftroce/rocev2/rdma/cm/agent"
	"github.com/gosoftroce/rocev2/verbs"
)

// event implements sink. What the event means is found out when the program
// takes it: then the calls that it has made before are done.
func (id *ID) event(e *agent.Event) {
	if e.Kind.Final() {
		delete(id.m.ids, e.ID)
		if id.out.forgotten(id) {
			id.m.tasks.Go(func() { id.Close() }) // it may close the device
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
	if id.closed {
		return nil
	}
	e := translate(id, p.raw)
	if e != nil {
		e.ID = id
	}
	return e
}

// translate says what an event of the agent means to the program, and does what
// it calls for.
func translate(id *ID, e *agent.Event) *Event {
	var out Event
	switch e.Kind {
	case agent.EventReply:
		out = replied(id, e)
	case agent.EventSIDRReply:
		id.state = idOver
		out = sidrEvent(e.SIDRReply, id.peer.Addr(), id.cfg.TrafficClass)
		if out.err == nil {
			id.state = idConnected
		}
	case agent.EventEstablished:
		id.state = idConnected
		out = Event{Type: EventEstablished, Conn: ConnParam{PrivateData: e.Private, QPN: id.params.QPN}}
	case agent.EventRejected:
		rejected := endOf(e)
		if id.state == idConnecting && askForLess(id, rejected) {
			return nil
		}
		id.state = idOver
		out = failure(EventRejected, rejected)
	case agent.EventUnreachable:
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

// askForLess asks once more where the peer has rejected for the path MTU and
// says what it takes, and reports whether it has asked.
func askForLess(id *ID, err error) bool {
	var rejected *RejectedError
	if !errors.As(err, &rejected) {
		return false
	}
	most := rejected.lessThan(id.req.PathMTU)
	if most == 0 {
		return false
	}
	id.req.PathMTU = uint8(most)
	return sendRequest(id) == nil
}

// replied takes the answer of the peer.
func replied(id *ID, e *agent.Event) Event {
	id.ece = ECE(e.Reply.ECE)
	id.wiring = id.cfg.wiring(id.typ, id.peer.Addr(), &id.req, e.Reply)
	id.state = idReplied
	if id.qp == nil {
		return replyEvent(EventConnectResponse, e.Reply)
	}
	err := id.wiring.apply(id.qp)
	if err != nil {
		_ = id.m.reject(id.id, rejection(err), nil, nil) // the peer may have given up
	} else {
		err = ready(id)
	}
	if err != nil {
		id.state = idOver
		return failure(EventConnectError, err)
	}
	return replyEvent(EventEstablished, e.Reply)
}

// existingManager returns the manager of a device, nil if it has none.
func existingManager(dev *verbs.Device) *manager {
	managers.mu.Lock()
	defer managers.mu.Unlock()
	return managers.of[dev]
}
