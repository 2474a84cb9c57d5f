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
		end := event.BeforeTime(min(later(first, n.lookahead), later(until, 1)))
		script := event.BeforeEvent(n.source.script(), at)
		scripted = scripted && at <= until && script.Before(end)
		if scripted {
			end = script
		}
		if first <= at {
			n.window(end)
		}
		if scripted {
			n.exchange()
			n.parts.advance(at)
			n.played++
			n.script()
		}
	}
	n.exchange()
	if until == event.Never {
		until = 0
		for _, a := range n.parts {
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

// partList is all parts of a network.
type partList []*part

// first returns when the first event is due, or Never.
func (l partList) first() Time {
	first := event.Never
	for _, a := range l {
		first = min(first, a.q.First(), a.first)
	}
	return first
}

// window has each part handle its events before a place in their order.
func (n *Network) window(end event.Bound) {
	for _, a := range n.parts {
		a.first = event.Never
	}
	n.until = end
	n.side ^= 1
	n.apart = true
	n.parallel(len(n.parts), n.turn)
	n.apart = false
	for _, f := range n.between {
		f()
	}
	if n.tap != nil {
		n.parts.tell(n.tap)
	}
}

// play is what a part does in a window.
func (a *part) play() {
	n := a.net
	a.collect(n.side ^ 1)
	links := uint32(2 * len(a.links))
	for {
		src, ok := a.q.NextBefore(n.until)
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
func (n *Network) exchange() {
	if len(n.parts) == 1 {
		return
	}
	for _, a := range n.parts {
		a.collect(n.side)
	}
	for _, a := range n.parts {
		a.first = event.Never
	}
}

// advance has the time pass, where all events up to it have been.
func (l partList) advance(to Time) {
	for _, a := range l {
		a.q.Advance(to)
	}
}

// tell tells a tap what the parts have sent in a window, in the order in which
// it would have seen it of one part.
func (l partList) tell(tap func(Sight)) {
	for {
		var next *part
		for _, a := range l {
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
	for _, a := range l {
		a.seen, a.told = a.seen[:0], 0
	}
}

// together panics where parts run by themselves: a host has called what is
// about all of them, or a host has panicked.
func (n *Network) together(what string) {
	if n.apart {
		panic(fmt.Sprintf("network: %s while hosts of several parts run, or after one of them has panicked", what))
	}
}

// Between has f called after each window in which parts have run by themselves,
// when none of them runs: to hand on what hosts of one part have for those of
// another one. It must not change what happens.
func (n *Network) Between(f func()) { n.between = append(n.between, f) }
