package ib

import "strconv"

// Event says what an asynchronous event tells of, with the numbers of
// ibv_event_type where it has them.
type Event uint8

// Asynchronous events (IBTA 11.6.3).
const (
	// EventCQError: a completion was lost, because the queue was full. Its
	// queue pair is in ERR.
	EventCQError Event = 0
	// EventQPFatal: a queue pair met an error that no completion tells of.
	// It is in ERR.
	EventQPFatal Event = 1
	// EventQPRequestError: the peer sent an invalid request. The queue pair
	// is in ERR.
	EventQPRequestError Event = 2
	// EventQPAccessError: the peer violated access rights. The queue pair
	// is in ERR.
	EventQPAccessError Event = 3
	// EventCommEstablished: the first packet came while the queue pair was
	// in RTR.
	EventCommEstablished Event = 4
	// EventSQDrained: a queue pair in SQD has finished what it had begun,
	// see Attr.EnableSQDNotify.
	EventSQDrained Event = 5
	// EventDeviceFatal: the device has failed, because something else than
	// Device.Close has closed its link. Close it; nothing works any more.
	EventDeviceFatal Event = 8
	// EventPortActive: the link receives again, or its interface is up
	// again.
	EventPortActive Event = 9
	// EventPortError: the link fails to receive, or its interface is down.
	// The device goes on trying.
	EventPortError Event = 10
	// EventSRQError: the protection domain of a shared receive queue was
	// closed, so that no receive of it can be used.
	EventSRQError Event = 14
	// EventSRQLimit: a shared receive queue has fewer receives left than
	// its limit, see SRQ.SetLimit.
	EventSRQLimit Event = 15
	// EventLastWQEReached: a queue pair that is in ERR takes no more from
	// its SRQ, and what it had taken has completed.
	EventLastWQEReached Event = 16
	// EventGIDChange: the address of the device was taken from the host, or
	// came back. Linux tells; other systems do not.
	EventGIDChange Event = 18
	// EventPathMTU: packets of a queue pair do not fit the way to its peer
	// any more, because an MTU there has become smaller. ibverbs has no
	// such event.
	EventPathMTU Event = 31
	NumEvents    Event = 32
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
