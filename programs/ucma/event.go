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

// collect takes what has happened from the connection manager.
func (c *Client) collect() {
	if c.closed {
		return
	}
	for e, err := c.ch.Poll(); e != nil && err == nil; e, err = c.ch.Poll() {
		c.happened(e)
	}
	c.signal.show(len(c.events) > 0)
}

// happened queues an event, if the program is to know it.
func (c *Client) happened(e *cm.Event) {
	if e.Type == cm.EventConnectRequest {
		c.requested(e)
		return
	}
	i := c.byID[e.ID]
	if i == nil {
		if waiting := c.requests[e.ID]; waiting != nil && e.Type != cm.EventEstablished { // the peer has given up
			c.drop(func(q *event) bool { return q == waiting })
		}
		return
	}
	ev := &event{of: i, Event: abi.Event{UID: i.uid, ID: i.number, Type: uint32(e.Type), Status: int32(e.Status)}}
	switch e.Type {
	case cm.EventMulticastJoin, cm.EventMulticastError:
		if len(i.joins) == 0 {
			return
		}
		g := i.joins[0]
		i.joins = slices.Delete(i.joins, 0, 1)
		if g.left {
			return
		}
		ev.group, ev.UID, ev.ID = g, g.uid, g.number
	case cm.EventDeviceRemoval:
		i.removed = true
	}
	if i.uid == 0 {
		return // the request was not accepted, so the program does not know the ID
	}
	describe(ev, e)
	c.events = append(c.events, ev)
}

// requested queues a request, if there is room: else it comes again.
func (c *Client) requested(e *cm.Event) {
	l := c.byID[e.Listener]
	if l == nil || l.waiting >= l.backlog {
		if l != nil {
			_ = e.ID.Ignore() // the peer may have given up
		}
		e.ID.Close()
		return
	}
	l.waiting++
	ev := &event{of: l, request: e.ID, Event: abi.Event{UID: l.uid, Type: uint32(e.Type)}}
	describe(ev, e)
	c.requests[e.ID] = ev
	c.events = append(c.events, ev)
}

// drop takes events out, and rejects their requests.
func (c *Client) drop(which func(*event) bool) {
	c.events = slices.DeleteFunc(c.events, func(e *event) bool {
		if !which(e) {
			return false
		}
		if e.request != nil {
			e.of.waiting--
			delete(c.requests, e.request)
			e.request.Close()
		}
		return true
	})
}

// describe fills in what the two sides tell each other.
func describe(ev *event, e *cm.Event) {
	if ev.of.datagrams {
		av := e.UD.AV
		if av.HopLimit == 0 {
			av.HopLimit = hopLimit
		}
		ev.Param = &abi.UDParam{QPN: uint32(e.UD.QPN), QKey: e.UD.QKey, Private: abi.PrivateOf(e.UD.PrivateData), AH: handle(&av)}
		return
	}
	switch e.Type {
	case cm.EventConnectRequest, cm.EventConnectResponse, cm.EventRejected:
	default: // Linux says no more
		return
	}
	p := &e.Conn
	ev.Param = &abi.ConnParam{QPN: uint32(p.QPN), Private: abi.PrivateOf(p.PrivateData), SRQ: p.SRQ,
		ResponderResources: p.ResponderResources, InitiatorDepth: p.InitiatorDepth,
		FlowControl: p.FlowControl, RetryCount: p.RetryCount, RNRRetryCount: p.RNRRetryCount}
	// What this software says of itself is not for programs: their driver
	// would refuse it.
	if ece := e.ID.RemoteECE(); ece.VendorID != cm.Vendor && e.Type != cm.EventRejected {
		ev.ECE = abi.ECE{Vendor: ece.VendorID, Options: ece.Options}
	}
}

// hopLimit is what packets go out with where nothing else is said.
const hopLimit = 64

func (c *Client) getEvent(cmd *abi.Command) ([]byte, uabi.Errno) {
	c.collect()
	var e *event
	for e == nil {
		if len(c.events) == 0 {
			return nil, uabi.EAGAIN
		}
		if e = c.events[0]; e.request == nil {
			break
		}
		i := c.enter(e.request, 0)
		if i == nil { // the request comes again, and does not hold up later events
			_ = e.request.Ignore()
			full := e
			c.drop(func(q *event) bool { return q == full })
			e = nil
			continue
		}
		e.ID = i.number
		i.engaged, i.datagrams, i.routed = true, e.of.datagrams, !e.of.datagrams
		delete(c.requests, e.request)
		e.of.waiting--
		e.request.Take()
	}
	c.events = slices.Delete(c.events, 0, 1)
	e.of.reported++
	if e.group != nil {
		e.group.reported++
	}
	return e.Encode(cmd.Out), 0
}

// migrate has the events of an ID come to this client: it is a command of the
// file that gets them.
func (c *Client) migrate(in *abi.IDCmd) ([]byte, uabi.Errno) {
	var from *Client
	if c.program.File != nil {
		from = c.program.File(int(int32(in.Value)))
	}
	if from == nil {
		return nil, uabi.ENOENT
	}
	if from.closed {
		return nil, uabi.EBADF
	}
	i, errno := from.usable(in.ID)
	if errno != 0 {
		return nil, errno
	}
	if from != c {
		from.collect()
		if err := from.move(i, c); err != nil {
			return nil, errnoOf(err)
		}
		from.collect()
	}
	return abi.U32(i.reported), 0
}

// move takes an ID, its groups and its events to another client.
func (c *Client) move(i *ident, to *Client) error {
	if err := i.id.MigrateID(to.ch); err != nil {
		return err
	}
	delete(c.idents, i.number)
	delete(c.byID, i.id)
	to.idents[i.number], to.byID[i.id] = i, i
	for n, g := range c.groups {
		if g.of == i {
			delete(c.groups, n)
			to.groups[n] = g
		}
	}
	c.events = slices.DeleteFunc(c.events, func(e *event) bool {
		if e.of != i {
			return false
		}
		if e.request != nil {
			delete(c.requests, e.request)
			to.requests[e.request] = e
			_ = e.request.MigrateID(to.ch) // it fails only if to is closed
		}
		to.events = append(to.events, e)
		return true
	})
	return nil
}
