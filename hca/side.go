package hca

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gosoftroce/rocev2/hca/task"
	"github.com/gosoftroce/rocev2/hca/wake"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// side is the receive side of a link: which goroutine receives, which sleeps,
// and what is known of the programs that poll. Package wake decides all of it.
// Here are its values, each an atomic word, and what wakes the receiver and the
// goroutines that sleep beside the owner.
type side struct {
	state  atomic.Uint64 // wake.State
	habit  atomic.Uint32 // wake.Habit
	bulk   atomic.Uint32 // wake.Bulk
	beside beside        // the goroutines that sleep beside the owner
	resume chan struct{} // wakes the receiver, which stands by
}

func newSide() side { return side{resume: make(chan struct{}, 1)} }

func (p *side) now() wake.State { return wake.State(p.state.Load()) }

// has reports whether the state has all of some bits.
func (p *side) has(bits wake.State) bool {
	return p.state.Load()&uint64(bits) == uint64(bits)
}

// on takes an input, and wakes what is to be woken. The rest of what is to be
// done is the caller's.
func (p *side) on(in wake.Input) wake.Act {
	for {
		old := p.now()
		next, act := old.On(in)
		if next == old || p.state.CompareAndSwap(uint64(old), uint64(next)) {
			if act&(wake.WakeReceiver|wake.HandOver) != 0 {
				p.wake(act)
			}
			return act
		}
	}
}

// polled records that a program polls or waits. Most often that is known.
func (p *side) polled() {
	if !p.has(wake.Active) {
		p.on(wake.Polled)
	}
}

// found is on for a receiver that takes over and has found packets.
func (p *side) found(r *wake.Receiver, now clock.Time, packets int) {
	for {
		old := p.now()
		if p.state.CompareAndSwap(uint64(old), uint64(r.Found(old, now, packets))) {
			return
		}
	}
}

// received is on for a receiver that has slept in the link. It reports whether
// that is to stand by.
func (p *side) received(r *wake.Receiver, now clock.Time, packets int) (stand bool) {
	for {
		old := p.now()
		next, act, stand := r.Received(old, now, packets)
		if next == old || p.state.CompareAndSwap(uint64(old), uint64(next)) {
			p.wake(act)
			return stand
		}
	}
}

// joins has a goroutine of k sleep beside the owner, unless there is none: then
// it owns.
func (p *side) joins(k *followers) (own bool) {
	p.beside.add(k) // before the owner can hand over
	if p.on(wake.Joins)&wake.Own == 0 {
		return false
	}
	p.beside.remove(k)
	return true
}

// parts ends what joins has begun for one of k.
func (p *side) parts(k *followers) {
	p.on(wake.Parts)
	p.beside.remove(k)
}

// standBy is on for a receiver that begins to stand by. It returns when that
// looks first.
func (p *side) standBy(r *wake.Receiver) time.Duration {
	for {
		old := p.now()
		next, first := r.StandBy(old)
		if next == old || p.state.CompareAndSwap(uint64(old), uint64(next)) {
			return first
		}
	}
}

// wake wakes the receiver, or a goroutine that sleeps beside the owner.
func (p *side) wake(act wake.Act) {
	if act&wake.WakeReceiver != 0 {
		select {
		case p.resume <- struct{}{}:
		default:
		}
	}
	if act&wake.HandOver != 0 {
		p.beside.wakeOne()
	}
}

// changeHabit replaces what is known of the program.
func (p *side) changeHabit(f func(wake.Habit) wake.Habit) {
	for {
		old := p.habit.Load()
		next := uint32(f(wake.Habit(old)))
		if next == old || p.habit.CompareAndSwap(old, next) {
			return
		}
	}
}

// changeBulk replaces what is known of bulk transfers.
func (p *side) changeBulk(f func(wake.Bulk) wake.Bulk) {
	for {
		old := p.bulk.Load()
		next := uint32(f(wake.Bulk(old)))
		if next == old || p.bulk.CompareAndSwap(old, next) {
			return
		}
	}
}

// beside has an entry for each goroutine that sleeps beside an owner: the
// followers that it is one of.
type beside struct {
	mu   sync.Mutex
	list []*followers
}

func (b *beside) add(k *followers) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.list = append(b.list, k)
}

func (b *beside) remove(k *followers) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.list, k); i >= 0 {
		b.list = slices.Delete(b.list, i, i+1)
	}
}

// wakeOne wakes the one that was the last to go to sleep, if there is one.
func (b *beside) wakeOne() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := len(b.list); n > 0 {
		b.list[n-1].wakeOne()
	}
}

// followers are the goroutines that wait for one object, and are not the owner
// of a receive side.
type followers struct {
	count atomic.Int32
	w     *waiting // nil before one waits
}

// wakeOne wakes one of them, if there is one.
func (f *followers) wakeOne() {
	if f.count.Load() > 0 {
		f.w.asleep.Wake()
		select {
		case f.w.wake <- struct{}{}:
		default:
		}
	}
}

// waiting is what a parker needs when a goroutine waits.
type waiting struct {
	wake chan struct{} // a token for one follower
	done chan struct{} // closed with the object

	asleep task.Sleepers // with a driver, in place of both

	// The owner's context is watched by a callback, which stays for its
	// next wait with the same context, until the object is closed. Guarded
	// by the parker's mu.
	watched <-chan struct{}
	unwatch func() bool
}
