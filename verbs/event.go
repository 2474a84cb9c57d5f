package verbs

import (
	"context"
	"errors"
	"fmt"
	"iter"
)

// AsyncEvent tells of something that happened to an object and that no
// completion reports.
type AsyncEvent struct {
	Event Event // what happened
	QP    *QP   // of events of a queue pair, else nil
	CQ    *CQ   // of events of a completion queue, else nil
	SRQ   *SRQ  // of events of a shared receive queue, else nil
}

// String names the event and its object. Of EventCQError it says what was lost
// and what to do.
func (e AsyncEvent) String() string {
	switch {
	case e.QP != nil:
		return fmt.Sprintf("%v on QP %v", e.Event, e.QP.QPN())
	case e.CQ != nil:
		s := fmt.Sprintf("%v on CQ %d", e.Event, e.CQ.Handle())
		if lost := e.CQ.core.Overrun(); lost.Entries > 0 && e.Event == EventCQError {
			s += fmt.Sprintf(": a completion of QP %v was lost, because the queue with room for %d was full; poll it sooner, or make it larger (Resize)",
				lost.QPN, lost.Entries)
		}
		return s
	case e.SRQ != nil:
		return fmt.Sprintf("%v on SRQ %d", e.Event, e.SRQ.Handle())
	}
	return e.Event.String()
}

// AsyncEvent waits for the next asynchronous event. Unread events are kept, the
// latest 4096 of them; [Stats.EventsDropped] counts the others. Closing an
// object drops its events: what is read never tells of an object that was
// closed before, and unread events keep nothing in memory. A program that must
// not miss why a queue pair failed reads the events before it closes it.
//
// Events of a queue pair or completion queue are affiliated: they name it. The
// others, of the port or the device, are unaffiliated (IBTA 11.6.3).
//
// The error wraps ErrClosed when the device is closed, or is that of ctx.
func (d *Device) AsyncEvent(ctx context.Context) (AsyncEvent, error) {
	e, err := d.context.AsyncEvent(ctx)
	if err != nil {
		return AsyncEvent{}, fmt.Errorf("verbs: wait for an event of device %v: %w", d.Addr(), err)
	}
	out := AsyncEvent{Event: e.Kind}
	if e.QP != nil {
		out.QP, _ = e.QP.UserData().(*QP)
	}
	if e.CQ != nil {
		out.CQ, _ = e.CQ.UserData().(*CQ)
	}
	if e.SRQ != nil {
		out.SRQ, _ = e.SRQ.UserData().(*SRQ)
	}
	return out, nil
}

// Events returns the asynchronous events as they come, waiting for each as
// AsyncEvent does. An error is that of AsyncEvent, and the last that is
// returned.
func (d *Device) Events(ctx context.Context) iter.Seq2[AsyncEvent, error] {
	return func(yield func(AsyncEvent, error) bool) {
		for {
			e, err := d.AsyncEvent(ctx)
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// HandleEvents calls handle for every asynchronous event (IBTA 11.5.2: Set
// Asynchronous Event Handler), one after the other, on the caller's goroutine.
// So it is mostly called as
//
//	go dev.HandleEvents(ctx, func(e verbs.AsyncEvent) { log.Print(e) })
//
// handle may use the device in every way, and close it. HandleEvents returns
// nil when the device is closed, and the error of ctx when that ends. An event
// goes to one reader: two handlers, or a handler and AsyncEvent, share them.
func (d *Device) HandleEvents(ctx context.Context, handle func(AsyncEvent)) error {
	for {
		e, err := d.AsyncEvent(ctx)
		switch {
		case errors.Is(err, ErrClosed):
			return nil
		case err != nil:
			return err
		}
		handle(e)
	}
}
