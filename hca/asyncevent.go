package hca

import (
	"context"

	"github.com/gosoftroce/rocev2/ib"
)

// AsyncEvent tells of something that happened to an object and that no
// completion reports. QP or CQ is set, as the kind says.
type AsyncEvent struct {
	Kind ib.Event
	QP   *QP
	CQ   *CQ
}

// AsyncEvent waits for the next event of the device. Events of objects that
// have been closed meanwhile are not among them.
func (d *Device) AsyncEvent(ctx context.Context) (AsyncEvent, error) {
	e, err := d.events.get(ctx)
	out := AsyncEvent{Kind: e.kind}
	switch object := e.object.(type) {
	case *QP:
		out.QP = object
	case *CQ:
		out.CQ = object
	}
	return out, err
}
