package hca

import (
	"time"

	"github.com/gosoftroce/rocev2/transport"
)

// A thread that is no goroutine, and that waits for other files, too, takes the
// place of a program in CQ.Wait by two calls: it waits in between, by poll(2).

// BeginWait is the first. over reports whether what the thread waits for has
// come; it is called again and again for some microseconds, for as long as it
// is worth more to go on receiving than to sleep. nil: the thread does not
// sleep.
//
// It adds to fds the descriptors that are to be polled for reading; most is how
// long they may be polled, unless it is 0. receives says whether the thread
// receives for the device; EndWait gets that. If it does not, a goroutine or
// another thread does, and nothing is added. If it does and nothing is added it
// must not sleep.
func (d *Device) BeginWait(fds []int, over func() bool) (all []int, most time.Duration, receives bool) {
	s := d.shards[0]
	link := transport.AsPolled(s.link)
	d.Settle()
	sleeps(s)
	s.poller.note()
	if link == nil || len(d.shards) > 1 || !s.poller.become() {
		s.poller.threads.Add(1)
		return fds, 0, false
	}
	if over != nil {
		if lookLonger(s, true, over); over() {
			return fds, 0, true
		}
	}
	s.poller.blocked.Store(true)
	if s.poller.delayed.Load() {
		return fds, 0, true
	}
	all, most = link.BeginPoll(fds)
	return all, most, true
}

// EndWait is the second. It receives what has come.
//
// A peer that is asleep, too, sends its answer right after the acknowledgement,
// by the same system call. On one processor that has woken this thread in its
// midst: it goes on first, so that the program sees both at once, and does not
// sleep in between.
func (d *Device) EndWait(receives bool) {
	s := d.shards[0]
	if !receives {
		s.poller.threads.Add(-1)
		return
	}
	s.poller.blocked.Store(false)
	transport.AsPolled(s.link).EndPoll()
	if n, taken := s.receiveAs(true, true); n > 0 && taken && !s.asked.Load() {
		yieldThread()
		s.receiveAs(true, true)
	}
	s.poller.cease()
}

// Failed reports whether the device has lost its port.
func (d *Device) Failed() bool { return d.failed.Load() }

// Tell is called before a program is woken that waits for what has come by a
// file alone. Acknowledgements that wait leave with what it posts next, or
// before it waits. If it is one in BeginWait it receives from then on, as it
// comes back.
func (d *Device) Tell() {
	for _, s := range d.shards {
		sleeps(s)
		s.poller.prompt.Store(true)
		if s.poller.threads.Load() > 0 {
			s.poller.told.Store(true)
		}
	}
}

// Files returns the descriptors of the device's links, as far as they tell.
func (d *Device) Files() (list []int) {
	for _, s := range d.shards {
		if l := transport.AsPolled(s.link); l != nil {
			list = append(list, l.Files()...)
		}
	}
	return list
}
