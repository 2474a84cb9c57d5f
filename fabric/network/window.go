package network

import (
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/gosoftroce/rocev2/fabric/event"
)

// runParts is Run for a network of several parts. A script changes anything at
// once: it runs when all parts have come to it.
func (n *Network) runParts(until Time) {
	for {
		end := event.BeforeTime(later(until, 1))
		at, scripted := n.scripts.Min()
		if script := event.BeforeEvent(n.source.script(), at); scripted && at <= until && script.Before(end) {
			end = script
		} else {
			scripted = false
		}
		n.parts.play(end, n.tap)
		if !scripted {
			break
		}
		n.parts.advance(at)
		n.played++
		n.script()
	}
	if until == event.Never {
		until = 0
		for _, a := range n.parts.all {
			until = max(until, a.q.Now())
		}
	}
	n.parts.advance(until)
}

// later adds two times of which the second is not negative.
func later(t, more Time) Time {
	if t > event.Never-more {
		return event.Never
	}
	return t + more
}

// windows runs the parts of a network side by side. What a part sends to
// another one arrives at least the delay of a cable later. So a part can run
// until the least, over the parts that send to it, of how far they have come
// and that delay: that is its window. Each part tells how far it has come by
// its clock, and goes on as the clocks of the others do, without waiting for
// all of them.
//
// Nothing says when a part that waits for others that wait for it has its next
// event: their clocks would come to it in steps of a delay. So they leave, and
// in the next round begin with the first event that is pending anywhere.
type windows struct {
	all       []*part
	lookahead Time // what is sent arrives so much later in another part, at least
	parallel  func(parts int, turn func(part int))
	turn      func(part int) // play, for parallel
	until     event.Bound    // of the round
	apart     bool           // a round is under way

	alone bool // parts take turns: none waits for another one
	spin  bool // there is a processor for each
	_     [64]byte
	idle  atomic.Int32 // parts that have nothing to do in their windows
	_     [64]byte
}

// begin prepares it, before all parts are known. Without parallel the parts
// take turns.
func (w *windows) begin() {
	w.lookahead, w.turn = event.Never, func(part int) { w.all[part].play() }
	if w.parallel == nil {
		w.alone = true
		w.parallel = func(parts int, turn func(int)) {
			for i := range parts {
				turn(i)
			}
		}
	}
}

// play has the parts handle all events before a place in their order. A tap, if
// it is not nil, is told what was sent. All that was before now has been.
func (w *windows) play(end event.Bound, tap func(Sight)) {
	for _, a := range w.all {
		a.clock.at.Store(int64(a.q.Now()))
	}
	if tap == nil && w.pending(end) && w.round(end) {
		return // what they have sent each other last they take next time
	}
	for w.exchange(); w.pending(end); w.exchange() {
		first := w.first()
		for _, a := range w.all {
			// The first event can cause others that much later.
			a.clock.at.Store(int64(min(a.q.First(), later(first, w.lookahead))))
		}
		if tap == nil {
			w.round(end)
			continue
		}
		until := event.BeforeTime(later(first, w.lookahead)) // so that there is not much to tell
		if end.Before(until) {
			until = end
		}
		if !w.round(until) {
			w.exchange()
			until = event.BeforeTime(w.first())
		}
		w.tell(until, tap)
	}
}

// pending reports whether there are events before a place in their order.
func (w *windows) pending(end event.Bound) bool {
	for _, a := range w.all {
		if a.q.Pending(end) {
			return true
		}
	}
	return false
}

// first returns when the first event is due, or Never.
func (w *windows) first() Time {
	first := event.Never
	for _, a := range w.all {
		first = min(first, a.q.First())
	}
	return first
}

// round has the parts run from their clocks on to a place in the order of
// events, and reports whether all have come there: else they have waited for
// each other.
func (w *windows) round(end event.Bound) (over bool) {
	n := len(w.all)
	w.until = end
	w.spin = n <= min(runtime.GOMAXPROCS(0), runtime.NumCPU())
	w.idle.Store(0)
	for _, a := range w.all {
		a.clock.stage.Store(stageBefore)
		a.stays, a.over = 0, false
	}
	w.apart = true
	w.parallel(n, w.turn)
	w.apart = false
	over = true
	for _, a := range w.all {
		over = over && a.over
	}
	return over
}

// exchange has all parts take what was sent to them, while none runs.
func (w *windows) exchange() {
	for _, a := range w.all {
		a.pass()
		for to := range a.out {
			w.all[to].take(&a.out[to])
		}
	}
}

// advance has the time pass, where all events up to it have been.
func (w *windows) advance(to Time) {
	for _, a := range w.all {
		a.q.Advance(to)
	}
}

// tell tells a tap what the parts have sent before a place in the order of
// events, in the order in which it would have seen it of one part.
func (w *windows) tell(end event.Bound, tap func(Sight)) {
	for {
		var next *part
		for _, a := range w.all {
			if a.told < len(a.seen) && a.seen[a.told].turn.Before(end) && (next == nil || a.seen[a.told].turn.Before(next.seen[next.told].turn)) {
				next = a
			}
		}
		if next == nil {
			break
		}
		tap(next.seen[next.told].Sight)
		next.told++
	}
	for _, a := range w.all {
		a.seen, a.told = a.seen[:copy(a.seen, a.seen[a.told:])], 0
	}
}

// Apart has Config.Parallel call f for each part, between two calls of Run: to
// look at its nodes where they are in the cache of a processor. f must not
// change anything.
func (n *Network) Apart(f func(part int)) {
	n.parts.together("Apart")
	n.parts.parallel(len(n.parts.all), f)
}

// together panics where parts run by themselves: a host has called what is
// about all of them, or a host has panicked.
func (w *windows) together(what string) {
	if w.apart {
		panic(fmt.Sprintf("network: %s while hosts of several parts run, or after one of them has panicked", what))
	}
}
