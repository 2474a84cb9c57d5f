package hca

import (
	"sync/atomic"
	"time"
)

// poller says which goroutine waits for a link. A packet that must wake one
// goroutine to be received and a second one to be seen costs twice; so the
// goroutine that wants the completion receives for itself whenever it can (the
// leader/followers pattern):
//
//   - A program that polls takes packets from the link as it polls.
//   - A program that waits blocks in link.Wait itself: it is the poller.
//   - The shard's own receiver is the poller while no program is. When it finds
//     that programs take the packets, it stands by, and comes back when they
//     have been quiet for a tick.
//
// The poller is the one goroutine that may block in link.Wait. Receiving itself
// is open to all, one at a time, under rxMu.
type poller struct {
	taken   atomic.Bool            // there is a poller
	standby atomic.Bool            // the receiver stands by
	dormant atomic.Bool            // it sleeps until a program ceases to be the poller, see rouse
	blocked atomic.Bool            // a program is the poller, and is about to block in link.Wait, or does
	active  atomic.Bool            // a program has polled or waited since the receiver looked
	parked  atomic.Int32           // programs that wait and are not the poller
	threads atomic.Int32           // threads between BeginWait and EndWait that are not the poller
	told    atomic.Bool            // one of them was woken by what has come
	heir    atomic.Pointer[parker] // of the program that was the last of these
	resume  chan struct{}
	called  atomic.Bool  // the receiver is to come at once, see call
	waits   atomic.Bool  // the receiver blocks in link.Wait, or is about to
	outrun  atomic.Int32 // batches that programs have taken meanwhile
	delayed atomic.Bool  // answers wait for the program's next call
	prompt  atomic.Bool  // what the program posts next takes them along
}

const (
	// standbyTick is how long the receiver gives programs before it takes
	// over; while they keep busy it looks less often.
	standbyTick    = 250 * time.Microsecond
	maxStandbyTick = time.Millisecond
	// standbyBan is how long it then stays, when packets had been waiting.
	standbyBan = 20 * time.Millisecond
)

func newPoller() poller { return poller{resume: make(chan struct{}, 1)} }

// become makes the caller the poller. It reports false if there is one.
func (p *poller) become() bool { return p.taken.CompareAndSwap(false, true) }

// note records that a program polls or waits. (Most often that is known. A load
// costs a fraction of a store.)
func (p *poller) note() {
	if !p.active.Load() {
		p.active.Store(true)
	}
}

// delay records that answers wait for the program's next call. The shard is
// locked.
func (p *poller) delay() {
	if !p.delayed.Load() {
		p.delayed.Store(true)
	}
}

// cease ends what become has begun, for a program.
func (p *poller) cease() {
	p.taken.Store(false)
	if p.dormant.CompareAndSwap(true, false) || p.parked.Load()+p.threads.Load() > 0 {
		p.wakeReceiver()
	}
}

// follow records that a program waits beside the poller.
func (p *poller) follow(heir *parker) {
	p.heir.Store(heir)
	p.parked.Add(1)
}

// unfollow ends what follow has begun.
func (p *poller) unfollow(heir *parker) {
	p.parked.Add(-1)
	p.heir.CompareAndSwap(heir, nil)
}

// handOver ends what become has begun, for the receiver. A program that waits
// becomes the poller in its place: otherwise no goroutine would receive until
// the receiver looks again.
func (p *poller) handOver() {
	p.taken.Store(false)
	if heir := p.heir.Load(); heir != nil {
		heir.wakeFollower()
	}
}

// rouse has the receiver look after answers that wait, if it sleeps and the
// poller is blocked: the program that has left them may not come back.
func (p *poller) rouse() {
	if p.delayed.Load() && p.blocked.Load() && p.dormant.CompareAndSwap(true, false) {
		p.wakeReceiver()
	}
}

// outrunBatches is how many batches programs take before the receiver is told
// that it gets none.
const outrunBatches = 8

// took counts a batch that a program has taken. The receiver, which waits, is
// woken for each of them, finds nothing, and goes back to sleep inside the
// kernel: it does not even learn that it is of no use. took reports whether it
// is time to tell it so.
func (p *poller) took() bool {
	return p.waits.Load() && p.outrun.Add(1) == outrunBatches
}

// call has the receiver take over at once from a program that does not poll
// any more.
func (p *poller) call() {
	if p.standby.Load() {
		p.called.Store(true)
		p.wakeReceiver()
	}
}

func (p *poller) wakeReceiver() {
	select {
	case p.resume <- struct{}{}:
	default:
	}
}
