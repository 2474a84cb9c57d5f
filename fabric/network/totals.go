package network

import (
	"fmt"
	"math/bits"

	"github.com/gosoftroce/rocev2/fabric/event"
)

// Totals are the counters of a whole network.
type Totals struct {
	Events     uint64             // handled
	Sent       uint64             // packets that hosts have given
	Delivered  uint64             // packets that hosts have got
	Drops      [NumDrops]uint64   // packets, by reason
	ClassDrops [NumClasses]uint64 // the same packets, by class
	Hops       uint64             // packets that came to switches
	Marks      uint64             // packets that RED has marked
	XOFFs      uint64             // pause frames that paused some class
	XONs       uint64             // pause frames that paused none
	Storms     uint64             // queues in which the watchdog saw a storm
	Disobeyed  uint64             // packets that hosts gave for a paused class
	Trimmed    uint64             // packets that programs have given that flag
	Frames     uint64             // that programs have sent (View.Send)
	Unnoted    uint64             // hops for which packets had no room (View.Note)
}

// Dropped returns the packets that were dropped for any reason.
func (t Totals) Dropped() (sum uint64) {
	for _, d := range t.Drops {
		sum += d
	}
	return sum
}

// Inside returns the packets that are on cables and in switches.
func (t Totals) Inside() uint64 { return t.Sent - t.Delivered - t.Dropped() }

// Totals returns the counters.
func (n *Network) Totals() (sum Totals) {
	for _, a := range n.parts.all {
		sum.add(&a.totals)
	}
	sum.Events = n.events()
	return sum
}

func (t *Totals) add(o *Totals) {
	t.Sent += o.Sent
	t.Delivered += o.Delivered
	for why, n := range o.Drops {
		t.Drops[why] += n
	}
	for class, n := range o.ClassDrops {
		t.ClassDrops[class] += n
	}
	t.Hops += o.Hops
	t.Marks += o.Marks
	t.XOFFs += o.XOFFs
	t.XONs += o.XONs
	t.Storms += o.Storms
	t.Disobeyed += o.Disobeyed
	t.Trimmed += o.Trimmed
	t.Frames += o.Frames
	t.Unnoted += o.Unnoted
}

// LinkStats is what has been at a port's transmitter.
type LinkStats struct {
	Packets uint64 // pause frames included
	Bytes   uint64 // on the wire
	XOFFs   uint64 // pause frames sent that paused some class
	XONs    uint64 // pause frames sent that paused none
	Paused  Time   // how long some class was paused by the far end
}

// PortStats is what has been in the queues of a switch's port.
type PortStats struct {
	MaxBytes int64  // most that was queued, of all classes together
	Marks    uint64 // packets that RED has marked
	area     area
}

// area is the integral of a number of bytes over time, in bytes * ps.
type area struct {
	hi, lo uint64
	since  Time
}

// advance adds what was there until now.
func (a *area) advance(now Time, bytes int64) {
	if bytes != 0 {
		hi, lo := bits.Mul64(uint64(bytes), uint64(now-a.since))
		var carry uint64
		a.lo, carry = bits.Add64(a.lo, lo, 0)
		a.hi += hi + carry
	}
	a.since = now
}

// ResetMax forgets the MaxBytes of all ports, so that it says what comes from
// now on.
func (n *Network) ResetMax() {
	for i := range n.switches {
		for p := range n.switches[i].out {
			o := &n.switches[i].out[p]
			o.stats.MaxBytes = o.bytes
		}
	}
}

// Port is a view of a port of a node.
type Port struct {
	n *Network
	l uint32
}

// Port returns a view of a port. Node Hosts+i is switch i.
func (n *Network) Port(node, port int) Port { return Port{n, (*n.ports(node))[port]} }

// Link returns the counters of the port's transmitter.
func (p Port) Link() LinkStats {
	k := &p.n.links[p.l]
	s := k.stats
	if k.paused != 0 {
		s.Paused += p.n.Now() - k.pausedSince
	}
	return s
}

// Paused returns the classes that the far end has paused.
func (p Port) Paused() uint8 { return p.n.links[p.l].paused }

// Held returns the classes that a program holds back (View.Hold).
func (p Port) Held() uint8 { return p.n.links[p.l].held }

// ofSwitch returns what a switch has of its port, or of a host's port nothing.
func (p Port) ofSwitch() *port {
	k := &p.n.links[p.l]
	if int(k.node) < len(p.n.hosts) {
		return &port{profile: &profile{}}
	}
	return &p.n.switches[int(k.node)-len(p.n.hosts)].out[k.port]
}

// Queues returns the counters of the queues of a switch's port.
func (p Port) Queues() PortStats { return p.ofSwitch().stats }

// Queued returns the bytes queued in a class now.
func (p Port) Queued(class int) int64 { return p.ofSwitch().queues[class].bytes }

// QueuedAll returns the bytes queued now, all classes together.
func (p Port) QueuedAll() int64 { return p.ofSwitch().bytes }

// Area returns the bytes queued, all classes together, summed over the time
// until now, in units of 2^20 byte*ps. The mean of a while is the difference of
// two calls, times 2^20, divided by the while.
func (p Port) Area() uint64 {
	o := p.ofSwitch()
	o.stats.area.advance(p.n.Now(), o.bytes)
	return o.stats.area.hi<<44 | o.stats.area.lo>>20
}

// Stored returns what the switch has stored of what came in by the port in a
// class: within reserve and threshold, and in the headroom; and whether it has
// paused the far end.
func (p Port) Stored(class int) (used, headroom int64, xoff bool) {
	g := &p.ofSwitch().in[class]
	return g.used, g.headroom, g.xoff
}

// SharedFree returns the free bytes of a switch's shared buffer. It is negative
// by at most the packets that were set aside.
func (n *Network) SharedFree(sw int) int64 {
	return n.switches[sw].sharedTotal - n.switches[sw].sharedUsed
}

// Digest returns a hash over all events so far, of all nodes.
func (n *Network) Digest() uint64 {
	var d event.Digest
	for i := range n.hosts {
		d.Add(uint64(n.hosts[i].digest))
	}
	for i := range n.switches {
		d.Add(uint64(n.switches[i].digest))
	}
	return d.Sum()
}

// Idle reports whether nothing is under way: no packet, no timer, no script.
func (n *Network) Idle() bool {
	n.parts.together("Idle")
	n.parts.exchange()
	for _, a := range n.parts.all {
		if a.q.First() != event.Never {
			return false
		}
	}
	return n.Totals().Inside() == 0 && n.scripts.Len() == 0
}

// Sight is a packet that begins to leave a port, as a tap sees it.
type Sight struct {
	At         Time // when it begins; its last bit arrives at Arrives
	Arrives    Time
	Node, Port int
	Packet     Packet
	Pause      bool  // a frame of flow control:
	Mask, Off  uint8 // the classes it is about, and those of them that it pauses; 0: it is of a program
	Frame      Frame
}

// Tap has f called with every packet that begins to leave a port, before what
// Cable.Loss does to it. f only looks on: it must not call the network. nil
// ends it. The digest is the same with and without.
func (n *Network) Tap(f func(Sight)) {
	n.parts.together("Tap")
	n.tap = f
	for _, a := range n.parts.all {
		a.tapped = f != nil
	}
}

// Check returns an error if the books do not balance: packets sent are those
// delivered, dropped by name, and inside; what switches count as stored is what
// their queues hold; hosts have kept to the pauses; and the tables of Reroute
// were good.
func (n *Network) Check() error {
	if n.err != nil {
		return fmt.Errorf("network: tables of Config.Reroute: %w", n.err)
	}
	n.parts.together("Check")
	n.parts.exchange()
	var inside uint64
	for i := range n.links {
		far := n.parts.all[n.links[i].farPart]
		slots := far.slots.all
		for s := far.flights[i].head; s != 0; s = slots[s].next {
			if !slots[s].control() {
				inside++
			}
		}
	}
	for i := range n.switches {
		packets, err := n.switches[i].audit()
		if err != nil {
			return fmt.Errorf("network: switch %d: %w", i, err)
		}
		inside += packets
	}
	t := n.Totals()
	if t.Sent != t.Delivered+t.Dropped()+inside {
		return fmt.Errorf("network: %d packets sent, but %d delivered, %d dropped and %d inside", t.Sent, t.Delivered, t.Dropped(), inside)
	}
	var byClass uint64
	for _, d := range t.ClassDrops {
		byClass += d
	}
	if byClass != t.Dropped() {
		return fmt.Errorf("network: %d packets dropped, but by classes %d", t.Dropped(), byClass)
	}
	if t.Disobeyed != 0 {
		return fmt.Errorf("network: hosts gave %d packets for classes that were paused", t.Disobeyed)
	}
	return nil
}

// audit compares the counters of a switch with its queues.
func (sw *swtch) audit() (packets uint64, err error) {
	slots := sw.part.slots.all
	stored := make([][NumClasses]int64, len(sw.out))
	for p := range sw.out {
		o := &sw.out[p]
		var all int64
		for c := range o.queues {
			var bytes int64
			for s := o.queues[c].head; s != 0; s = slots[s].next {
				x := &slots[s]
				bytes += int64(x.Size)
				stored[x.in][c] += int64(x.Size)
				packets++
			}
			if bytes != o.queues[c].bytes || bytes > 0 != (o.nonEmpty>>c&1 != 0) {
				return 0, fmt.Errorf("port %d, class %d: the queue holds %d bytes, counted are %d", p, c, bytes, o.queues[c].bytes)
			}
			all += bytes
		}
		if all != o.bytes {
			return 0, fmt.Errorf("port %d: the queues hold %d bytes, counted are %d", p, all, o.bytes)
		}
	}
	var shared int64
	for p := range sw.out {
		for c := range sw.out[p].in {
			g := &sw.out[p].in[c]
			if g.used+g.headroom != stored[p][c] || g.used < 0 || g.headroom < 0 || g.headroom > g.limit {
				return 0, fmt.Errorf("ingress port %d, class %d: counted are %d bytes and %d of %d in the headroom, stored are %d",
					p, c, g.used, g.headroom, g.limit, stored[p][c])
			}
			shared += sw.out[p].classes[c].shared(g.used)
		}
	}
	if shared != sw.sharedUsed {
		return 0, fmt.Errorf("%d bytes are in the shared buffer, counted are %d", shared, sw.sharedUsed)
	}
	if sw.sharedUsed > sw.sharedTotal+sw.aside {
		return 0, fmt.Errorf("%d bytes are in the shared buffer, which has %d, and %d set aside", shared, sw.sharedTotal, sw.aside)
	}
	return packets, nil
}

// Held is a packet inside the network: in a queue of a switch's port, or on the
// cable that leaves a node by a port.
type Held struct {
	Node, Port int
	Queued     bool // else it is on the cable
	Packet     Packet
}

// Held calls f with every packet inside the network, those of a queue in their
// order. f must not call the network.
func (n *Network) Held(f func(Held)) {
	n.parts.together("Held")
	n.parts.exchange()
	for i := range n.links {
		k := &n.links[i]
		slots := n.parts.all[k.farPart].slots.all
		for s := n.parts.all[k.farPart].flights[i].head; s != 0; s = slots[s].next {
			if !slots[s].control() {
				f(Held{Node: int(k.node), Port: int(k.port), Packet: slots[s].Packet})
			}
		}
	}
	for i := range n.switches {
		sw := &n.switches[i]
		slots := sw.part.slots.all
		for p := range sw.out {
			for c := range sw.out[p].queues {
				for s := sw.out[p].queues[c].head; s != 0; s = slots[s].next {
					f(Held{Node: len(n.hosts) + i, Port: p, Queued: true, Packet: slots[s].Packet})
				}
			}
		}
	}
}
