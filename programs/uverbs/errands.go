//go:build linux

package uverbs

import (
	"sync"
	"sync/atomic"

	"github.com/gosoftroce/rocev2/hca"
)

// errands is work that a goroutine leaves for later while it holds a lock of
// the device, as one does that completes a request: events to be written, and
// send queues to be looked at. It is done when that lock is given up.
type errands struct {
	due   atomic.Bool
	sent  atomic.Uint64 // events
	later func(func())
	first func() // is called before events are written
	do    func()

	writing sync.Mutex // outside of mu

	mu     sync.Mutex
	notes  []note
	spare  []note
	queues []*Queues
	ended  bool
}

// note is an event for a pipe.
type note struct {
	to *pipe
	record
}

// init prepares the errands of clients of a device. What a program posts that
// is told of a message goes after the acknowledgement: its peer may have one
// file for the events of sends and receives, and take the next one for that of
// its send.
func (e *errands) init(d *hca.Device) {
	e.later, e.first, e.do = d.Later, d.Program().Tell, e.run
}

// send hands an event over.
func (e *errands) send(to *pipe, r record) {
	e.mu.Lock()
	if (len(e.notes) < maxPending || r.last) && !e.ended {
		e.notes = append(e.notes, note{to, r})
	}
	e.mu.Unlock()
	e.soon()
}

// serve has a send queue looked at.
func (e *errands) serve(q *Queues) {
	e.mu.Lock()
	if !q.kicked && !e.ended {
		q.kicked = true
		e.queues = append(e.queues, q)
	}
	e.mu.Unlock()
	e.soon()
}

func (e *errands) soon() {
	if !e.due.Load() && !e.due.Swap(true) {
		e.later(e.do)
	}
}

// run does what there is to do. When it returns, all events that were handed
// over before are written. The caller holds no lock of the device.
func (e *errands) run() {
	e.due.Store(false)
	for e.write() {
		q := e.next()
		if q == nil {
			return
		}
		q.Serve()
	}
}

// write writes the events. It reports whether there are queues to be served.
func (e *errands) write() (queues bool) {
	e.writing.Lock()
	defer e.writing.Unlock()
	e.mu.Lock()
	notes, queues := e.notes, len(e.queues) > 0
	e.notes = e.spare[:0]
	e.mu.Unlock()
	if len(notes) > 0 {
		e.first()
	}
	for _, n := range notes {
		n.to.send(n.record)
		e.sent.Add(1)
	}
	clear(notes)
	e.spare = notes[:0]
	return queues
}

func (e *errands) next() *Queues {
	e.mu.Lock()
	defer e.mu.Unlock()
	last := len(e.queues) - 1
	if last < 0 {
		return nil
	}
	q := e.queues[last]
	e.queues[last], e.queues = nil, e.queues[:last]
	q.kicked = false
	return q
}

// end writes what there is, and takes nothing any more.
func (e *errands) end() {
	e.mu.Lock()
	e.ended, e.queues = true, nil
	e.mu.Unlock()
	e.write()
}
