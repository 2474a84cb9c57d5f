package hca

import (
	"context"

	"github.com/gosoftroce/rocev2/ib"
)

// AsyncEvent tells of something that happened to an object and that no
// completion reports. QP, CQ or SRQ is set, as the kind says; none is, if the
// event is of the whole device.
type AsyncEvent struct {
	Kind ib.Event
	QP   *QP
	CQ   *CQ
	SRQ  *SRQ
}

// AsyncEvent waits for the next event of the objects that were made through the
// context, or of the device as a whole. Events of objects that have been closed
// meanwhile are not among them.
func (c *Context) AsyncEvent(ctx context.Context) (AsyncEvent, error) {
	e, err := c.events.get(ctx)
	return asyncEvent(e), err
}

// HandleEvents has f called with each event at once, instead. It is called
// first, and f with locks held: it must call nothing here.
func (c *Context) HandleEvents(f func(AsyncEvent)) {
	c.events.mu.Lock()
	defer c.events.mu.Unlock()
	c.events.handler = func(e event) { f(asyncEvent(e)) }
}

func asyncEvent(e event) AsyncEvent {
	out := AsyncEvent{Kind: e.kind}
	switch object := e.object.(type) {
	case *QP:
		out.QP = object
	case *CQ:
		out.CQ = object
	case *SRQ:
		out.SRQ = object
	}
	return out
}
