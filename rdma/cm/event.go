package cm

import (
	"crypto/tls"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/gosoftroce/rocev2/rdma/cm/agent"
	"github.com/gosoftroce/rocev2/rocev2/mad"
	"github.com/gosoftroce/rocev2/verbs"
)

// EventType says what an Event tells of, with the numbers of
// rdma_cm_event_type.
type EventType uint8

// Events of an ID.
const (
	// EventAddrResolved: ResolveAddr is done, and the ID has a device.
	EventAddrResolved EventType = 0
	// EventAddrError: no device leads to the address; Err says why.
	EventAddrError EventType = 1
	// EventRouteResolved: ResolveRoute is done.
	EventRouteResolved EventType = 2
	// EventRouteError is not raised: routes are the system's.
	EventRouteError EventType = 3
	// EventConnectRequest: of a listening ID. Event.ID is a new one, for
	// the connection; Event.Listener is the listening one.
	EventConnectRequest EventType = 4
	// EventConnectResponse: the peer has accepted, and the ID has no queue
	// pair. Connect yours by InitQPAttr, then call Establish.
	EventConnectResponse EventType = 5
	// EventConnectError: the queue pair does not take the terms of the
	// peer. It was rejected.
	EventConnectError EventType = 6
	// EventUnreachable: the peer does not answer, or no program there
	// serves the port (UD).
	EventUnreachable EventType = 7
	// EventRejected: the peer has rejected; Status is the reason.
	EventRejected EventType = 8
	// EventEstablished: the connection is there; of UD, the peer's queue
	// pair is known.
	EventEstablished EventType = 9
	// EventDisconnected: the peer has disconnected, or has answered
	// Disconnect. In the first case call Disconnect, which answers.
	EventDisconnected EventType = 10
	// EventDeviceRemoval: the device of the ID is closed.
	EventDeviceRemoval EventType = 11
	// EventMulticastJoin: JoinMulticast is done; Event.UD says where to
	// send.
	EventMulticastJoin EventType = 12
	// EventMulticastError: JoinMulticast has failed; Err says why.
	EventMulticastError EventType = 13
	// EventAddrChange is not raised: see verbs.EventGIDChange.
	EventAddrChange EventType = 14
	// EventTimewaitExit: the queue pair may be used for another connection.
	EventTimewaitExit EventType = 15
)

var eventNames = [...]string{
	"ADDR_RESOLVED", "ADDR_ERROR", "ROUTE_RESOLVED", "ROUTE_ERROR", "CONNECT_REQUEST", "CONNECT_RESPONSE",
	"CONNECT_ERROR", "UNREACHABLE", "REJECTED", "ESTABLISHED", "DISCONNECTED", "DEVICE_REMOVAL",
	"MULTICAST_JOIN", "MULTICAST_ERROR", "ADDR_CHANGE", "TIMEWAIT_EXIT",
}

// String returns the name as rdma_event_str does, such as
// "RDMA_CM_EVENT_ESTABLISHED".
func (t EventType) String() string {
	if int(t) < len(eventNames) {
		return "RDMA_CM_EVENT_" + eventNames[t]
	}
	return fmt.Sprintf("RDMA_CM_EVENT(%d)", uint8(t))
}

// Event is what an [EventChannel] tells of an ID.
type Event struct {
	Type     EventType
	ID       *ID
	Listener *ID // of EventConnectRequest

	// Status is 0, or what librdmacm has here: the reason of EventRejected,
	// the status of SIDR of EventUnreachable for datagrams, or a negative
	// errno, such as -110 (ETIMEDOUT).
	Status int

	Conn ConnParam // of EventConnectRequest, EventConnectResponse and EventEstablished, as this side sees it; PrivateData also of EventRejected and EventDisconnected
	UD   UDParam   // of EventEstablished of datagrams, and of EventMulticastJoin

	// TLS is what the handshake of a secured connection has shown, such as
	// the certificates of the peer: of EventConnectRequest and
	// EventEstablished.
	TLS *tls.ConnectionState

	err error
}

// Err returns what went wrong, in words; nil if nothing did.
func (e *Event) Err() error { return e.err }

// String names the event.
func (e *Event) String() string {
	s := e.Type.String()
	if e.err != nil {
		s += ": " + e.err.Error()
	}
	return s
}

// ConnParam is what the two sides of a connection tell each other:
// rdma_conn_param.
type ConnParam struct {
	// PrivateData of an event is the whole field of the message.
	PrivateData []byte

	ResponderResources uint8 // READs and atomics of the peer outstanding here
	InitiatorDepth     uint8 // READs and atomics outstanding at the peer
	FlowControl        bool
	RetryCount         uint8 // up to 7; of Connect
	RNRRetryCount      uint8 // up to 7

	// SRQ and QPN are those of the queue pair: to be set where the ID has
	// none. Events have the peer's.
	SRQ bool
	QPN verbs.QPN

	QKey uint32 // of Accept of datagrams: 0 means that of the queue pair
}

// UDParam says where datagrams go: rdma_ud_param.
type UDParam struct {
	PrivateData []byte
	AV          verbs.AddressVector
	QPN         verbs.QPN
	QKey        uint32
}

// statusOf returns the status that librdmacm has for an error.
func statusOf(err error) int {
	switch e := err.(type) {
	case nil:
		return 0
	case *RejectedError:
		return int(e.Reason)
	case *StatusError:
		return int(e.Status)
	}
	if err == ErrUnreachable {
		return -int(syscall.ETIMEDOUT)
	}
	return -int(syscall.EINVAL)
}

// requestEvent makes the event of a REQ or a SIDR_REQ; private is what the
// peer's program has sent.
func requestEvent(e *agent.Event, p *Params, private []byte) Event {
	out := Event{Type: EventConnectRequest}
	out.Conn = ConnParam{PrivateData: private, ResponderResources: p.ResponderResources, InitiatorDepth: p.InitiatorDepth,
		FlowControl: p.FlowControl, RetryCount: p.RetryCount, RNRRetryCount: p.RNRRetry, SRQ: p.SRQ, QPN: p.QPN}
	if e.SIDRRequest != nil {
		out.UD.PrivateData = private
	}
	return out
}

// replyEvent makes the event of a REP.
func replyEvent(t EventType, m *mad.REP) Event {
	return Event{Type: t, Conn: ConnParam{PrivateData: m.Private,
		ResponderResources: m.InitiatorDepth, InitiatorDepth: m.ResponderResources,
		FlowControl: m.FlowControl, RNRRetryCount: m.RNRRetryCount, SRQ: m.SRQ, QPN: m.LocalQPN}}
}

// sidrEvent makes the event of a SIDR_REP.
func sidrEvent(m *mad.SIDRREP, peer netip.Addr, class uint8) Event {
	if m.Status != mad.SIDRSuccess {
		return failure(EventUnreachable, &StatusError{Status: m.Status, PrivateData: m.Private})
	}
	return Event{Type: EventEstablished, Conn: ConnParam{PrivateData: m.Private, QPN: m.QPN, QKey: m.QKey},
		UD: UDParam{PrivateData: m.Private, QPN: m.QPN, QKey: m.QKey, AV: verbs.AddressVector{DGID: peer, TrafficClass: class}}}
}

func failure(t EventType, err error) Event {
	e := Event{Type: t, Status: statusOf(err), err: err}
	switch err := err.(type) {
	case *RejectedError:
		e.Conn.PrivateData = err.PrivateData
	case *StatusError:
		e.UD.PrivateData = err.PrivateData
	}
	return e
}
