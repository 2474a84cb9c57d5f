package engine

import (
	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/transport"
)

// A network with classes holds them apart: it can pause one, and schedule them
// by rules of its own. A driver that has such a network says with Config.Class
// which packets are of which, asks with Ready what there is, and takes packets
// with FillClasses. What it does not take stays where it is: in the queue
// pairs, not in a queue after them.

// NumClasses is how many classes there can be, as there are priorities of
// Ethernet (IEEE 802.1Q).
const NumClasses = 8

// Classes is a set of classes: 1<<n has class n.
type Classes uint8

// AllClasses has all of them.
const AllClasses Classes = 1<<NumClasses - 1

// Has reports whether class n is in c.
func (c Classes) Has(n uint8) bool { return c>>n&1 != 0 }

// class returns the class of packets with a traffic class.
func (c *Config) class(trafficClass uint8) uint8 {
	if c.Class == nil {
		return 0
	}
	return min(c.Class(trafficClass), NumClasses-1)
}

// Ready returns the classes of which there may be something to send.
func Ready(e *Engine) Classes {
	if len(e.peers.limited) > 0 {
		e.peers.admit(&e.turns)
	}
	c := e.turns.ready()
	for i := range e.finals {
		c |= 1 << e.finals[i].class
	}
	return c
}

// FillClasses is Fill with packets of some classes, the highest first.
func FillClasses(e *Engine, now clock.Time, out *transport.TxBatch, classes Classes) Filled {
	e.misrouted = e.misrouted[:0]
	e.out.batch, e.out.paths, e.out.cfg = out, &e.paths, &e.cfg
	e.putFinal(out, classes)
	for q := e.next(classes); q != nil; q = e.next(classes) {
		if !e.pull(now, q) {
			break
		}
	}
	e.out = linkWriter{}
	return e.loopBack(now)
}
