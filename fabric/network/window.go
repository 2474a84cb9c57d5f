package network

import (
	"fmt"

	"github.com/gosoftroce/rocev2/fabric/event"
)

// runParts is Run for a network of several parts. What one part sends arrives
// in another one at least lookahead later. So from the first event that is
// pending anywhere on, for so long, all can run without each other: that is a
// window. A script changes anything at once: it runs between two windows.
func (n *Network) runParts(until Time) {
	for {
		first := n.parts.first()
		at, scripted := n.scripts.Min()
		if !scripted {
			at = event.Never
		}
		if next := min(first, at); next > until || next == event.Never {
			break
		}
		end := event.BeforeTime(min(later(first, n.parts.lookahead), later(until, 1)))
		script := event.BeforeEvent(n.source.script(), at)
		scripted = scripted && at <= until && script.Before(end)
		if scripted {
			end = script
		}
		if first <= at {
			n.parts.open(end, n.tap)
		}
		if scripted {
			n.parts.exchange()
			n.parts.advance(at)
			n.played++
			n.script()
		}
	}
	n.parts.exchange()
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

// windows runs the parts of a network, one window after another.
type windows struct {
	all       []*part
	lookahead Time // what is sent arrives so much later in another part, at least
	parallel  func(parts int, turn func(part int))
	turn      func(part int) // play, for parallel
	until     event.Bound    // of the window
	between   []func()       // called after each window
	side      int            // of the boxes that are being filled
	apart     bool           // a window is open
}

// begin prepares it, before all parts are known. Without parallel the parts
// take turns.
func (w *windows) begin() {
	w.lookahead, w.turn = event.Never, w.play
	if w.parallel == nil {
		w.parallel = func(parts int, turn func(int)) {
			for i := range parts {
				turn(i)
			}
		}
	}
}

// first returns when the first event is due, or Never.
func (w *windows) first() Time {
	first := event.Never
	for _, a := range w.all {
		first = min(first, a.q.First(), a.first)
	}
	return first
}

// open opens a window: each part handles its events before a place in their
// order. Then a tap, if it is not nil, is told what was sent.
func (w *windows) open(end event.Bound, tap func(Sight)) {
	for _, a := range w.all {
		a.first = event.Never
	}
	w.until = end
	w.side ^= 1
	w.apart = true
	w.parallel(len(w.all), w.turn)
	w.apart = false
	for _, f := range w.between {
		f()
	}
	if tap != nil {
		w.tell(tap)
	}
}

// play has a part handle its events of the window.
func (w *windows) play(part int) { w.all[part].play() }

// play is what a part does in a window.
func (a *part) play() {
	w := a.windows
	a.collect(w.side ^ 1)
	links := uint32(2 * len(a.links))
	for {
		src, ok := a.q.NextBefore(w.until)
		switch {
		case !ok:
			return
		case src >= links:
			a.other(int(src - links))
		case src&1 == 0:
			a.sent(src / 2)
		default:
			a.arrive(src / 2)
		}
	}
}

// exchange has all parts take what was posted.
func (w *windows) exchange() {
	if len(w.all) == 1 {
		return
	}
	for _, a := range w.all {
		a.collect(w.side)
	}
	for _, a := range w.all {
		a.first = event.Never
	}
}

// advance has the time pass, where all events up to it have been.
func (w *windows) advance(to Time) {
	for _, a := range w.all {
		a.q.Advance(to)
	}
}

// tell tells a tap what the parts have sent in a window, in the order in which
// it would have seen it of one part.
func (w *windows) tell(tap func(Sight)) {
	for {
		var next *part
		for _, a := range w.all {
			if a.told < len(a.seen) && (next == nil || a.seen[a.told].turn.Before(next.seen[next.told].turn)) {
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
		a.seen, a.told = a.seen[:0], 0
	}
}

// together panics where parts run by themselves: a host has called what is
// about all of them, or a host has panicked.
func (w *windows) together(what string) {
	if w.apart {
		panic(fmt.Sprintf("network: %s while hosts of several parts run, or after one of them has panicked", what))
	}
}

// Between has f called after each window in which parts have run by themselves,
// when none of them runs: to hand on what hosts of one part have for those of
// another one. It must not change what happens.
func (n *Network) Between(f func()) { n.parts.between = append(n.parts.between, f) }
