//go:build linux

package ucma

import (
	"slices"

	"github.com/gosoftroce/rocev2/programs/ucma/abi"
	uabi "github.com/gosoftroce/rocev2/programs/uverbs/abi"
	"github.com/gosoftroce/rocev2/rdma/cm"
)

// event waits for the program.
type event struct {
	abi.Event
	of      *ident // that counts it: of a request, the listener
	group   *group // of MULTICAST_JOIN and MULTICAST_ERROR
	request *cm.ID // of CONNECT_REQUEST: it has no number before the program takes it
}

// eventQueue is the events that wait for the program, the oldest first.
type eventQueue struct {
	list     []*event
	requests map[*cm.ID]*event // those of CONNECT_REQUEST
}

func newEventQueue() eventQueue { return eventQueue{requests: map[*cm.ID]*event{}} }

// add adds an event.
func (q *eventQueue) add(e *event) {
	q.list = append(q.list, e)
	if e.request != nil {
		e.of.waiting++
		q.requests[e.request] = e
	}
}

// fail adds an event of something that has failed.
func (q *eventQueue) fail(i *ident, t cm.EventType, errno uabi.Errno) {
	q.add(&event{of: i, Event: abi.Event{UID: i.uid, ID: i.number, Type: uint32(t), Status: -int32(errno)}})
}

// first returns the oldest event, nil if there is none.
func (q *eventQueue) first() *event {
	if len(q.list) == 0 {
		return nil
	}
	return q.list[0]
}

// take takes the oldest event out: the program gets it.
func (q *eventQueue) take() {
	e := q.list[0]
	q.list = slices.Delete(q.list, 0, 1)
	q.taken(e)
	e.of.reported++
	if e.group != nil {
		e.group.reported++
	}
}

// taken counts a request that waits no more.
func (q *eventQueue) taken(e *event) {
	if e.request != nil {
		e.of.waiting--
		delete(q.requests, e.request)
	}
}

// drop takes events out, and rejects their requests.
func (q *eventQueue) drop(which func(*event) bool) {
	q.list = slices.DeleteFunc(q.list, func(e *event) bool {
		if !which(e) {
			return false
		}
		q.taken(e)
		if e.request != nil {
			e.request.Close()
		}
		return true
	})
}

// move takes the events of an ID to another queue. It calls migrate with each
// request.
func (q *eventQueue) move(i *ident, to *eventQueue, migrate func(*cm.ID)) {
	q.list = slices.DeleteFunc(q.list, func(e *event) bool {
		if e.of != i {
			return false
		}
		q.taken(e)
		to.add(e)
		if e.request != nil {
			migrate(e.request)
		}
		return true
	})
}
