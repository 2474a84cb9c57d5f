package ib

import "strconv"

// Event is an asynchronous event (IBTA 11.6.3), with the number of
// ibv_event_type where there is one.
type Event uint8

// The asynchronous events.
const (
	EventCQError         Event = 0  // a completion was lost: the queue was full or closed
	EventQPFatal         Event = 1  // a queue pair met an error that no completion tells of; it is in ERR
	EventQPRequestError  Event = 2  // the peer sent an invalid request; the queue pair is in ERR
	EventQPAccessError   Event = 3  // the peer violated memory rights or bounds; the queue pair is in ERR
	EventCommEstablished Event = 4  // the first request of the peer came while the queue pair was in RTR
	EventSQDrained       Event = 5  // a queue pair in SQD has finished what it had begun
	EventDeviceFatal     Event = 8  // the device has failed, or was closed
	EventPortActive      Event = 9  // the link receives again after EventPortError
	EventPortError       Event = 10 // the link fails to receive; the device goes on trying
	EventSRQError        Event = 14 // a shared receive queue has failed
	EventSRQLimit        Event = 15 // a shared receive queue has fewer receives left than its limit
	EventLastWQEReached  Event = 16 // a queue pair in ERR takes no more from its shared receive queue
	EventGIDChange       Event = 18 // the addresses of the device's interface have changed
	EventPathMTU         Event = 31 // an MTU on the way to the peer has become too small for a queue pair's packets
	NumEvents            Event = 32
)

var eventNames = [NumEvents]string{
	EventCQError:         "CQ_ERR",
	EventQPFatal:         "QP_FATAL",
	EventQPRequestError:  "QP_REQ_ERR",
	EventQPAccessError:   "QP_ACCESS_ERR",
	EventCommEstablished: "COMM_EST",
	EventSQDrained:       "SQ_DRAINED",
	EventDeviceFatal:     "DEVICE_FATAL",
	EventPortActive:      "PORT_ACTIVE",
	EventPortError:       "PORT_ERR",
	EventSRQError:        "SRQ_ERR",
	EventSRQLimit:        "SRQ_LIMIT_REACHED",
	EventGIDChange:       "GID_CHANGE",
	EventLastWQEReached:  "QP_LAST_WQE_REACHED",
	EventPathMTU:         "PATH_MTU",
}

// String returns the name of ibv_event_type without its prefix.
func (e Event) String() string {
	if e < NumEvents && eventNames[e] != "" {
		return eventNames[e]
	}
	return "event " + strconv.Itoa(int(e))
}
