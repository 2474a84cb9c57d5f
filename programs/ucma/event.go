//go:build linux

package ucma

import (
	"slices"

	"github.com/gosoftroce/rocev2/programs/ucma/abi"
	uabi "github.com/gosoftroce/rocev2/programs/uverbs/abi"
	"github.com/gosoftroce/rocev2/rdma/cm"
)

// collect takes what has happened from the connection manager.
func (c *Client) collect() {
	if c.closed {
		return
	}
	for e, err := c.ch.Poll(); e != nil && err == nil; e, err = c.ch.Poll() {
		c.happened(e)
	}
	c.signal.show(c.queue.first() != nil)
}

// happened queues an event, if the program is to know it.
func (c *Client) happened(e *cm.Event) {
	if e.Type == cm.EventConnectRequest {
		c.requested(e)
		return
	}
	i := c.ids.byID[e.ID]
	if i == nil {
		if waiting := c.queue.requests[e.ID]; waiting != nil && e.Type != cm.EventEstablished { // the peer has given up
			c.queue.drop(func(q *event) bool { return q == waiting })
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
	c.queue.add(ev)
}

// requested queues a request, if there is room: else it comes again.
func (c *Client) requested(e *cm.Event) {
	l := c.ids.byID[e.Listener]
	if l == nil || l.waiting >= l.backlog {
		if l != nil {
			_ = e.ID.Ignore() // the peer may have given up
		}
		e.ID.Close()
		return
	}
	ev := &event{of: l, request: e.ID, Event: abi.Event{UID: l.uid, Type: uint32(e.Type)}}
	describe(ev, e)
	c.queue.add(ev)
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
	e := c.queue.first()
	for ; e != nil && e.request != nil; e = c.queue.first() {
		if i := c.ids.enter(e.request, 0); i != nil {
			e.ID = i.number
			i.engaged, i.datagrams, i.routed = true, e.of.datagrams, !e.of.datagrams
			e.request.Take()
			break
		}
		// The request comes again, and does not hold up later events.
		_ = e.request.Ignore()
		c.queue.drop(func(q *event) bool { return q == e })
	}
	if e == nil {
		return nil, uabi.EAGAIN
	}
	c.queue.take()
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
	i, errno := from.ids.usable(in.ID)
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
	c.ids.move(i, &to.ids)
	c.queue.move(i, &to.queue, func(request *cm.ID) { _ = request.MigrateID(to.ch) }) // it fails only if to is closed
	return nil
}
