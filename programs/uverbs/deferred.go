//go:build linux

package uverbs

import (
	"sync"
	"sync/atomic"

	"github.com/gosoftroce/rocev2/hca"
)

// deferred is work that a goroutine leaves for later while it holds a lock of
// the device, as one does that completes a request: events to be written, and
// send queues to be looked at. It is done when that lock is given up.
type deferred struct {
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

// init prepares it for a client of a device. An acknowledgement leaves before
// the program is told of the message, and so before what it posts then: its
// peer may have one file for the events of sends and receives, and take the
// next one for that of its send.
func (d *deferred) init(dev *hca.Device) {
	d.later, d.first, d.do = dev.Later, dev.Program().Tell, d.run
}

// send hands an event over.
func (d *deferred) send(to *pipe, r record) {
	d.mu.Lock()
	if (len(d.notes) < maxPending || r.last) && !d.ended {
		d.notes = append(d.notes, note{to, r})
	}
	d.mu.Unlock()
	d.soon()
}

// serve has a send queue looked at.
func (d *deferred) serve(q *Queues) {
	d.mu.Lock()
	if !q.kicked && !d.ended {
		q.kicked = true
		d.queues = append(d.queues, q)
	}
	d.mu.Unlock()
	d.soon()
}

func (d *deferred) soon() {
	if !d.due.Load() && !d.due.Swap(true) {
		d.later(d.do)
	}
}

// run does what there is to do. When it returns, all events that were handed
// over before are written. The caller holds no lock of the device.
func (d *deferred) run() {
	d.due.Store(false)
	for d.write() {
		q := d.next()
		if q == nil {
			return
		}
		q.Serve()
	}
}

// write writes the events. It reports whether there are queues to be served.
func (d *deferred) write() (queues bool) {
	d.writing.Lock()
	defer d.writing.Unlock()
	d.mu.Lock()
	notes, queues := d.notes, len(d.queues) > 0
	d.notes = d.spare[:0]
	d.mu.Unlock()
	if len(notes) > 0 {
		d.first()
	}
	for _, n := range notes {
		n.to.send(n.record)
		d.sent.Add(1)
	}
	clear(notes)
	d.spare = notes[:0]
	return queues
}

func (d *deferred) next() *Queues {
	d.mu.Lock()
	defer d.mu.Unlock()
	last := len(d.queues) - 1
	if last < 0 {
		return nil
	}
	q := d.queues[last]
	d.queues[last], d.queues = nil, d.queues[:last]
	q.kicked = false
	return q
}

// end writes what there is, and takes nothing any more.
func (d *deferred) end() {
	d.mu.Lock()
	d.ended, d.queues = true, nil
	d.mu.Unlock()
	d.write()
}
