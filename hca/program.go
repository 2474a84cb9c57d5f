package hca

import (
	"time"

	"github.com/gosoftroce/rocev2/hca/wake"
	"github.com/gosoftroce/rocev2/transport"
)

// Program is a device as a program sees it that may look at its memory between
// two calls, or has threads that are no goroutines and wait for other files,
// too.
type Program struct {
	dev   *Device
	first *shard // which a thread waits for
	watch wake.Account
}

// Program returns the device as such a program sees it.
func (d *Device) Program() *Program { return &d.program }

// Poll is Progress for a program that may not call again before a peer has
// written to its memory. When only answers have come since it has posted, it
// goes on looking for a request for as long as that was seen to pay
// (wake.Habit).
func (p *Program) Poll() bool {
	s := p.first
	if len(p.dev.shards) > 1 || s.spin <= 1 || s.driven != nil {
		return p.dev.Progress()
	}
	s.side.changeHabit(wake.Habit.Polls)
	any := s.in.progress()
	s.yield.polled(any)
	if any && p.beginWatch() {
		p.look()
		s.side.changeHabit(wake.Habit.Watched)
	}
	return any
}

// beginWatch records that a poll has found something, and reports whether to
// look for a request.
func (p *Program) beginWatch() bool {
	side := &p.first.side
	for {
		old := side.habit.Load()
		next, watch := wake.Habit(old).Polled()
		if uint32(next) == old || side.habit.CompareAndSwap(old, uint32(next)) {
			return watch
		}
	}
}

// look looks for a request of a peer. When it ceases to, and the program looks
// at its memory alone, the receiver takes over at once.
func (p *Program) look() {
	s := p.first
	w, on := p.watch.Watch(s.now(), wake.Habit(s.side.habit.Load()).Sleepless())
	for call := false; on; {
		n := s.in.take()
		if !w.Polled(n > 0) {
			continue
		}
		request := n > 0 && wake.Habit(s.side.habit.Load()).Asked()
		if on, call = w.At(s.now(), n > 0, request); call {
			s.side.on(wake.Calls)
		}
	}
}

// Posts says that the program is about to post.
func (p *Program) Posts() { p.first.side.changeHabit(wake.Habit.Posts) }

// CountRequests has the owner of the port learn which send requests the program
// has posted: it calls sum, which must not wait.
func (p *Program) CountRequests(sum func() []transport.UsedOperation) {
	p.dev.use.mu.Lock()
	p.dev.use.requests = sum
	p.dev.use.mu.Unlock()
}

// A thread that is no goroutine takes the place of a program in CQ.Wait by two
// calls: it waits in between, by poll(2).

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
func (p *Program) BeginWait(fds []int, over func() bool) (all []int, most time.Duration, receives bool) {
	s := p.first
	link := transport.AsPolled(s.link)
	p.dev.Settle()
	s.side.changeHabit(wake.Habit.Sleeps)
	in := wake.JoinsAside
	if link == nil || len(p.dev.shards) > 1 {
		in = wake.StaysAside
	}
	if s.side.on(in)&wake.Own == 0 {
		return fds, 0, false
	}
	if over != nil {
		if s.receiver.lookLonger(true, over); over() {
			return fds, 0, true
		}
	}
	if s.side.on(wake.Blocks)&wake.SendFirst != 0 {
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
func (p *Program) EndWait(receives bool) {
	s := p.first
	if !receives {
		s.side.on(wake.PartsAside)
		return
	}
	s.side.on(wake.Unblocks)
	transport.AsPolled(s.link).EndPoll()
	if n, taken := s.in.receiveAs(true, true); n > 0 && taken && !wake.Habit(s.side.habit.Load()).Asked() {
		yieldThread()
		s.in.receiveAs(true, true)
	}
	s.side.on(wake.Leaves)
}

// Tell is called before a program is woken that waits for what has come by a
// file alone. Acknowledgements that wait leave with what it posts next, or
// before it waits. If it is one in BeginWait it receives from then on, as it
// comes back.
func (p *Program) Tell() {
	for _, s := range p.dev.shards {
		s.side.changeHabit(wake.Habit.Sleeps)
		s.side.on(wake.Told)
	}
}

// Files returns the descriptors of the device's links, as far as they tell.
func (p *Program) Files() (list []int) {
	for _, s := range p.dev.shards {
		if l := transport.AsPolled(s.link); l != nil {
			list = append(list, l.Files()...)
		}
	}
	return list
}
