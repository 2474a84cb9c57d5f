package hca

import (
	"sync"
	"sync/atomic"

	"github.com/gosoftroce/rocev2/hca/engine"
	"github.com/gosoftroce/rocev2/hca/wake"
	"github.com/gosoftroce/rocev2/transport"
)

// locked is the engine of a shard, the lock that guards it, and what is done
// when that is given up.
type locked struct {
	*shared
	link      transport.Link
	driven    *Driven // nil without a driver
	side      side
	waker     linkWaker
	alarm     alarm
	forwarded forwarded // by other shards

	mu     sync.Mutex // guards what follows, and what belongs to the shard; see lock and unlock
	eng    *engine.Engine
	closed bool

	done chan struct{} // closed with the shard
}

// lock locks the shard.
func (s *locked) lock() { s.mu.Lock() }

// unlock unlocks the shard, does what may be a system call, and calls the
// handlers of completion queues.
func (s *locked) unlock() {
	s.release()
	if s.handlers.any.Load() {
		s.handlers.run()
	}
}

// release unlocks the shard, and does what may be a system call: it arms the
// timer and wakes a program that sleeps in the link, and a receiver that must
// look after answers.
func (s *locked) release() {
	if s.driven != nil {
		s.driven.release()
		return
	}
	at, timed := s.eng.Deadline()
	timed = timed && !s.closed
	s.mu.Unlock()
	if timed {
		s.alarm.set(at, s.now)
	}
	if s.wakers.any.Load() {
		s.wakers.run()
	}
	if s.side.has(wake.Abandoned) {
		s.side.on(wake.Unlocked)
	}
	if s.moderator.earlier.Load() {
		s.moderator.setAlarm()
	}
}

// waitLink sleeps in the link until that may have something. An error says that
// it is closed.
func (s *locked) waitLink() error {
	err := s.link.Wait()
	if err != nil {
		s.portLost(s)
	}
	return err
}

// linkWaker wakes a program that sleeps in a link.
type linkWaker struct {
	all    *linkWakers
	link   transport.Link
	wanted atomic.Bool
}

// later has it woken when the lock is given up that the caller holds.
func (w *linkWaker) later() {
	w.wanted.Store(true)
	w.all.any.Store(true)
}

// linkWakers are those of a device: what completes in one shard may wake a
// program that sleeps in the link of another.
type linkWakers struct {
	any  atomic.Bool // one of them is wanted
	list []*linkWaker
}

// run wakes the programs that are to be woken.
func (w *linkWakers) run() {
	if !w.any.Swap(false) {
		return
	}
	for _, k := range w.list {
		if k.wanted.Swap(false) {
			k.link.Wake()
		}
	}
}
