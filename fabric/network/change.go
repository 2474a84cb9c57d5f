package network

import (
	"cmp"
	"fmt"
)

// changes are what has become of the cables since the beginning, and of the
// tables by it.
type changes struct {
	n         *Network
	up        []bool        // cables
	own       map[int]Cable // what cables are like whose Condition was set; only looked up
	reroute   func([]bool) []Table
	converge  Time
	following bool // new tables are in force at followAt
	followAt  Time
}

// SetCable takes a cable down or brings it up. What is on a cable that goes
// down, or queued for it, is lost, and so is what comes for it until the tables
// follow (Config.Reroute). A host goes on sending at the rate of its cable,
// into the void. Both ends forget the pauses of the other one. Those that they
// still need, a switch while its buffer is full and a host by Pause, come again
// with the cable.
func (n *Network) SetCable(i int, up bool) {
	n.parts.together("SetCable")
	n.parts.exchange()
	c := &n.changes
	if c.up[i] == up {
		return
	}
	c.up[i] = up
	for l := uint32(2 * i); l <= uint32(2*i+1); l++ {
		if up {
			c.raise(l)
		} else {
			c.cut(l)
		}
	}
	c.settle(i, true)
	if c.reroute != nil {
		c.followLater()
	}
}

// raise brings a transmitter up.
func (c *changes) raise(l uint32) {
	k := &c.n.links[l]
	k.up, k.tell = true, c.pauses(l)
}

// settle has both ends of a cable that has changed send what they have to tell.
// changed says that it went down, or has come up.
func (c *changes) settle(i int, changed bool) {
	for l := uint32(2 * i); l <= uint32(2*i+1); l++ {
		k := &c.n.links[l]
		if changed {
			c.hook(k, c.up[i])
		}
		if k.tell != 0 {
			c.n.partOf(int(k.node)).wake(l)
		}
	}
	c.n.parts.exchange()
}

// hook tells the program of a node of a cable that has changed.
func (c *changes) hook(k *link, up bool) {
	if v := c.n.views.of(int(k.node)); v != nil && v.hooks.Cable != nil {
		v.hooks.Cable(int(k.port), up)
	}
}

// Condition is what is wrong with a cable that is up. The zero value is a cable
// as Config.Cables has it.
type Condition struct {
	Rate  int64  // bit/s; 0: the cable's own
	Delay Time   // more than its own
	Loss  uint32 // of 1e9 packets, beside its own
	// Void is set for the end whose packets and pauses get lost, all of
	// them: A, and B. Neither end sees that, and the tables do not follow.
	Void [2]bool
}

// SetCondition changes a cable. With another rate or delay the cable is down
// for a moment, in which no tables follow: what is on it, or queued for it, is
// lost. It is an error if the cable would be none that Config could have.
func (n *Network) SetCondition(i int, is Condition) error {
	n.parts.together("SetCondition")
	n.parts.exchange()
	c, k := &n.changes, &n.links[2*i]
	own, ok := c.own[i]
	if !ok {
		own = Cable{Rate: k.rate, Delay: k.delay, Loss: k.loss}
	}
	now, err := is.of(own)
	if err != nil {
		return fmt.Errorf("network: condition of cable %d: %w", i, err)
	}
	c.own[i] = own
	again := c.up[i] && (now.Rate != k.rate || now.Delay != k.delay)
	ends := [2]uint32{uint32(2 * i), uint32(2*i + 1)}
	var was [2]bool
	for side, l := range ends {
		if again {
			c.cut(l)
		}
		k := &n.links[l]
		k.setRate(now.Rate)
		k.delay, k.loss, was[side], k.void = now.Delay, now.Loss, k.void, is.Void[side]
		if sw := int(k.node) - len(n.hosts); sw >= 0 {
			n.switches[sw].setFastest()
		}
		if k.void {
			c.empty(l)
		}
	}
	for side, l := range ends {
		if now := is.Void[side]; now != was[side] {
			c.listen(l, !now)
		}
		if again {
			c.raise(l)
		}
	}
	c.settle(i, again)
	return nil
}

// of returns what a cable is like in a condition.
func (c *Condition) of(own Cable) (Cable, error) {
	switch {
	case c.Delay < 0:
		return own, fmt.Errorf("delay of %v: it is added, and not negative", c.Delay)
	case c.Loss > billion:
		return own, fmt.Errorf("loss of %d packets of 1e9", c.Loss)
	}
	own.Rate = cmp.Or(c.Rate, own.Rate)
	own.Delay += c.Delay
	own.Loss = eitherLoss(own.Loss, c.Loss)
	return own, own.check()
}

// eitherLoss returns the packets of 1e9 that one or the other loses.
func eitherLoss(a, b uint32) uint32 {
	return uint32(uint64(a) + uint64(b) - uint64(a)*uint64(b)/billion)
}

// listen says that the far end of a transmitter hears it no more, or again. It
// forgets the transmitter's pauses, as if their time had passed. When it hears
// again it is told of those that it should know, and what a program has to tell
// it does as if the cable had come up.
func (c *changes) listen(l uint32, again bool) {
	k, far := &c.n.links[l], &c.n.links[l^1]
	switch {
	case !again:
		c.n.partOf(int(far.node)).setPaused(l^1, 0)
	case k.up:
		k.tell |= c.pauses(l) | far.paused
		c.hook(k, true)
	}
}

// followLater has new tables in force when Config.Converge has passed: once for
// all that changes at this time.
func (c *changes) followLater() {
	if at := c.n.Now() + c.converge; !c.following || at != c.followAt {
		c.following, c.followAt = true, at
		c.n.At(at, c.follow)
	}
}

// pauses returns the classes that the node of a transmitter pauses at the far
// end.
func (c *changes) pauses(l uint32) uint8 {
	k := &c.n.links[l]
	if sw := int(k.node) - len(c.n.hosts); sw >= 0 {
		return c.n.switches[sw].out[k.port].off()
	}
	return k.off
}

// Up reports whether a cable is up.
func (n *Network) Up(i int) bool { return n.changes.up[i] }

// follow puts the tables in force that fit the cables as they are.
func (c *changes) follow() {
	if c.n.Now() >= c.followAt {
		c.following = false
	}
	tables := c.reroute(c.up)
	if tables == nil {
		return
	}
	if err := c.n.SetTables(tables); err != nil && c.n.err == nil {
		c.n.err = err
	}
}

// cut ends a transmitter and its direction of the cable.
func (c *changes) cut(l uint32) {
	k := &c.n.links[l]
	k.up = false
	a := c.n.partOf(int(k.node))
	c.empty(l)
	if sw := int(k.node) - len(c.n.hosts); sw >= 0 {
		x := &c.n.switches[sw]
		for c := range uint8(NumClasses) {
			x.flush(k.port, c, CableDown)
		}
	}
	k.tell = 0
	a.dropFrames(k)
	a.setPaused(l, 0)
}

// empty loses what is on a transmitter's direction of the cable.
func (c *changes) empty(l uint32) {
	node := int(c.n.links[l^1].node)
	far := c.n.partOf(node)
	far.q.Cancel(c.n.source.arrive(l))
	for f := &far.flights[l]; f.head != 0; {
		i := far.slots.pop(f)
		if far.slots.all[i].control() {
			far.slots.put(i)
		} else {
			far.dropAt(&c.n.links[l], i, CableDown, c.n.digestOf(node))
		}
	}
}
