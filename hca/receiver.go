package hca

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/gosoftroce/rocev2/hca/wake"
)

// receiver is the shard's own goroutine for the link, and what the owner of the
// receive side does, be it that or a program. See package wake.
type receiver struct {
	*locked
	in *intake

	memory  wake.Receiver // of the goroutine
	account wake.Account  // of the owner
}

// run is the goroutine.
func (r *receiver) run() {
	tick := time.NewTimer(time.Hour)
	defer tick.Stop()
	for {
		if r.side.on(wake.Takes)&wake.Own != 0 && !r.receiveAlone() {
			return
		}
		if !r.standBy(tick) {
			return
		}
	}
}

// receiveAlone receives as the owner until programs do it better. It reports
// false when the link is closed.
func (r *receiver) receiveAlone() bool {
	n := r.in.drain()
	r.side.found(&r.memory, r.now(), n)
	for {
		r.side.on(wake.BlocksOwn)
		err := r.waitLink()
		r.side.on(wake.UnblocksOwn)
		if err != nil {
			return false
		}
		n := r.in.drain()
		r.handlers.letRun()
		if n > 0 {
			r.lookLonger(false, func() bool { return r.side.has(wake.Active) })
		}
		if r.side.received(&r.memory, r.now(), n) {
			return true
		}
	}
}

// standBy leaves receiving to programs until none does it. It reports false
// when the shard is closed.
func (r *receiver) standBy(tick *time.Timer) bool {
	defer r.comeBack()
	for every := r.side.standBy(&r.memory); ; every = r.memory.Again() {
		tick.Reset(every)
		select {
		case <-tick.C:
		case <-r.side.resume:
		case <-r.done:
			return false
		}
		r.in.out.transmitDelayed()
		switch act := r.side.on(wake.Tick); act {
		case wake.ComeBack:
			return true
		case wake.Sleep:
			select {
			case <-r.side.resume:
			case <-r.done:
				return false
			}
		}
	}
}

// comeBack ends standing by. It is done with the lock held under which programs
// leave answers unsent: so none is missed.
func (r *receiver) comeBack() {
	r.lock()
	r.side.on(wake.Returns)
	r.in.out.transmit()
	r.in.out.giveBack()
	r.unlock()
}

// lookLonger goes on receiving until done, or for as long as that is worth
// more than to sleep: in the middle of a bulk transfer, and where packets come
// soon after each other. With one processor it is the other side that needs it.
//
// With later a few answers may wait, as in receiveAs, but not when it returns
// and is not done. The caller is the owner.
func (r *receiver) lookLonger(later bool, done func() bool) {
	if r.spin > 1 && !r.awaitBulk(done) {
		r.look(later, done)
	}
	if later && !done() {
		r.in.out.transmitDelayed()
	}
}

// awaitBulk goes on receiving in the middle of a bulk transfer, until nothing
// has come for a while or until done, and reports whether there was one. If
// this side went to sleep between two buffers, the sender would have to wake it
// for each, which costs the sender more than anything else that it does.
func (r *receiver) awaitBulk(done func() bool) bool {
	bulk := wake.Bulk(r.side.bulk.Load())
	if !bulk.UnderWay() {
		return false
	}
	r.side.changeBulk(wake.Bulk.Over)
	most, came := bulk.Polls(), false
	for i := 0; i < most; i++ {
		if done() {
			return true
		}
		if r.in.receive() > 0 {
			i, came = 0, true
			r.side.changeBulk(wake.Bulk.Paid)
		}
	}
	if !came {
		r.side.changeBulk(wake.Bulk.Failed)
	}
	return true
}

// looking is how many owners of the process look for packets.
var looking atomic.Int32

func beginLooking() bool {
	if int(looking.Add(1)) <= wake.MostLooking(runtime.GOMAXPROCS(0)) {
		return true
	}
	looking.Add(-1)
	return false
}

// look looks for packets for as long as that pays, or until done.
func (r *receiver) look(later bool, done func() bool) {
	l, ok := r.account.Begin(r.now())
	if !ok || !beginLooking() {
		return
	}
	defer looking.Add(-1)
	for on := true; on && !done(); {
		if l.Yields() {
			r.yield.toOthers()
		}
		n, taken := r.in.receiveAs(true, later)
		if n == 0 && later {
			r.in.out.transmitIdle()
		}
		if !l.Polled(n > 0) {
			continue
		}
		if n > 0 {
			r.handlers.letRun()
		}
		on = l.At(r.now(), n > 0, taken)
	}
}
