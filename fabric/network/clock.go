package network

import (
	"runtime"
	"sync/atomic"

	"github.com/gosoftroce/rocev2/fabric/event"
)

// clock tells the other parts how far one has come: what it sends from now on
// it sends at that time, or later. What it has sent before they can take.
type clock struct {
	_     [64]byte
	at    atomic.Int64
	stage atomic.Int32
	_     [64]byte
}

// Stages of a part in a round.
const (
	stageBefore = iota // it has not begun
	stageWithin
	stageBehind // it has left: its clock stays as it is until the next round
)

const (
	// How many times a clock moves on within the shortest delay to another
	// part.
	clockSteps = 8
	// How many windows without an event there are, one after the other,
	// before a part is idle.
	fewWindows = 4
	// Of how many windows there is one in which a part looks for what
	// comes from all others: where no cable joins them they report packets
	// that were dropped.
	oftenEnough = 16
	// How many times a part looks for a clock to move on before it leaves,
	// and for that of a part that has not begun. A look takes a nanosecond
	// or two, and where others may run meanwhile a hundred times as long.
	mostLooks  = 200_000
	fewLooks   = 20_000
	lookBreak  = 10_000
	mostBreaks = 1_000
)

// play is what a part does in a round.
func (a *part) play() {
	w := a.windows
	a.clock.stage.Store(stageWithin)
	defer a.leave() // also if a host panics: the others wait for it
	idle, empty := false, 0
	for n := 0; ; n++ {
		limit, by := a.limit()
		if n%oftenEnough == 0 {
			for _, from := range w.all {
				a.take(&from.out[a.number])
			}
		}
		for i := range a.in {
			a.take(a.in[i].box)
		}
		window := event.BeforeTime(limit)
		last := !window.Before(w.until)
		if last {
			window = w.until
		}
		busy := a.handle(window)
		a.tell(min(a.q.First(), limit))
		switch {
		case last:
			if !idle {
				w.idle.Add(1)
			}
			a.over = true
			return
		case busy:
			empty = 0
			if idle {
				idle = false
				w.idle.Add(-1)
			}
		default:
			if empty++; empty >= fewWindows && !idle {
				idle = true
				w.idle.Add(1)
			}
		}
		if !a.await(limit, by, idle) {
			return
		}
	}
}

// limit returns up to when nothing comes from other parts that is not to be
// taken now, and the part because of which that is no later.
func (a *part) limit() (limit Time, last *part) {
	limit = event.Never
	for i := range a.in {
		in := &a.in[i]
		if t := later(Time(in.from.clock.at.Load()), in.delay); t < limit {
			limit, last = t, in.from
		}
	}
	return limit, last
}

// handle handles the events before a place in their order, and reports whether
// there were any.
func (a *part) handle(window event.Bound) (busy bool) {
	links := uint32(2 * len(a.links))
	for {
		src, ok := a.q.NextBefore(window)
		if !ok {
			return busy
		}
		busy = true
		if now := a.q.Now(); now >= a.stays {
			a.tell(now)
		}
		switch {
		case src >= links:
			a.other(int(src - links))
		case src&1 == 0:
			a.sent(src / 2)
		default:
			a.arrive(src / 2)
		}
	}
}

// tell moves the clock on.
func (a *part) tell(now Time) {
	a.pass()
	if int64(now) > a.clock.at.Load() {
		a.clock.at.Store(int64(now))
	}
	a.stays = later(now, a.often)
}

// await waits until a window ends later than at limit, which the clock of last
// is the reason for, and reports whether to go on. It does not wait for a part
// that has left, nor where none has anything to do.
func (a *part) await(limit Time, last *part, idle bool) bool {
	w := a.windows
	if w.alone {
		return false
	}
	for looks, breaks := 0, 0; looks < mostLooks && breaks < mostBreaks; looks++ {
		stage := last.clock.stage.Load() // first: then its clock has come to the end
		if now, _ := a.limit(); now > limit {
			return true
		}
		switch {
		case stage == stageBehind, stage == stageBefore && looks > fewLooks:
			return false
		case idle && int(w.idle.Load()) == len(w.all):
			return false
		}
		if !w.spin || looks%lookBreak == lookBreak-1 {
			breaks++
			runtime.Gosched()
		}
	}
	return false
}

// leave ends a round.
func (a *part) leave() {
	a.pass()
	a.clock.stage.Store(stageBehind)
}
