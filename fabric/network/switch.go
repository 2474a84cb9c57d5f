package network

import (
	"fmt"

	"github.com/gosoftroce/rocev2/fabric/event"
)

// swtch is a switch with a buffer that all its ports share.
type swtch struct {
	part    *part
	view    *View // nil: no program
	node    int
	ports   []uint32 // transmitters
	out     []port
	table   Table
	fastest []int64 // by set: the rate of the fastest port
	classOf [64]uint8

	sharedTotal int64 // what reserves, headrooms and aside leave
	sharedUsed  int64
	aside       int64 // a packet of each lossless class and port

	cutThrough bool
	routing    Routing
	gap        Time
	hashSeed   uint64
	rand       event.Rand
	flowlets   []flowlet
	turns      []uint16 // of Spray, by destination
	watchdog   WatchdogConfig
	digest     event.Digest

	_ [64]byte // nothing of another one is in the same cache line
}

// profile is what the classes of some ports of a switch are like.
type profile struct {
	classes [NumClasses]Class
	strict  uint8 // classes
	quantum [NumClasses]int32
}

// port is both halves of a port of a switch: the queues of its transmitter, and
// what is stored of what came in there.
type port struct {
	*profile
	queues   [NumClasses]queue
	in       [NumClasses]ingress
	bytes    int64 // of all queues
	nonEmpty uint8 // queues
	turn     uint8 // class whose turn it is in DWRR
	asks     uint8 // classes that a program pauses at the far end
	stats    PortStats
}

// queue is what waits for a port in a class.
type queue struct {
	fifo
	bytes   int64
	since   Time // watchdog: when it became paused and not empty, or free
	deficit int32
	storm   bool // the watchdog drops what comes
}

// ingress is what is stored of what came in by a port in a class.
type ingress struct {
	used     int64 // reserve and shared buffer
	headroom int64
	limit    int64 // of headroom
	xoff     bool  // the far end is paused
}

// ready returns whether a queue may send.
func (p *port) ready(paused uint8) bool { return p.nonEmpty&^paused != 0 }

func (sw *swtch) init(i int, c *Config) error {
	s := &c.Switches[i]
	sw.node = c.Hosts + i
	sw.out = make([]port, len(sw.ports))
	setClasses(&sw.classOf, s.DSCP)
	sw.cutThrough, sw.routing, sw.gap, sw.watchdog = s.CutThrough, s.Routing, s.Gap, s.Watchdog
	sw.hashSeed = event.Mix(event.Mix(c.Seed) ^ uint64(i)<<8 ^ streamHash)
	sw.rand = event.NewRand(c.Seed, uint64(i)<<8|streamSwitch)
	switch s.Routing {
	case Flowlet:
		sw.flowlets = make([]flowlet, 1<<flowletBits)
	case Spray:
		sw.turns = make([]uint16, c.Hosts)
		for d := range sw.turns {
			sw.turns[d] = uint16(sw.rand.Uint64())
		}
	}
	if s.Ports != nil && len(s.Ports) != len(sw.ports) {
		return fmt.Errorf("profile: Ports describes %d ports, but %d cables end here", len(s.Ports), len(sw.ports))
	}
	common := newProfile(&s.Classes, int64(c.MTU))
	for p := range sw.out {
		sw.out[p].profile = common
		if s.Ports != nil {
			sw.out[p].profile = newProfile(&s.Ports[p], int64(c.MTU))
		}
	}
	return sw.share(s.Buffer, int64(c.MTU))
}

func newProfile(classes *[NumClasses]Class, mtu int64) *profile {
	f := &profile{classes: *classes}
	var most int64
	for j := range f.classes {
		cl := &f.classes[j]
		cl.Weight = max(cl.Weight, 1)
		most = max(most, int64(cl.Weight))
		if cl.Strict {
			f.strict |= 1 << j
		}
	}
	for j := range f.classes {
		f.quantum[j] = int32(max(int64(f.classes[j].Weight)*mtu/most, 1))
	}
	return f
}

// setTable puts a table in force.
func (sw *swtch) setTable(t *Table) {
	sw.table = *t
	sw.setFastest()
}

// setFastest notes for each set how fast the port may be that is chosen.
func (sw *swtch) setFastest() {
	sw.fastest = make([]int64, len(sw.table.Sets))
	anyPort := sw.view != nil && sw.view.hooks.Route != nil
	for i, set := range sw.table.Sets {
		for _, p := range set {
			sw.fastest[i] = max(sw.fastest[i], sw.link(int(p)).rate)
		}
		for p := 0; anyPort && p < len(sw.ports); p++ {
			sw.fastest[i] = max(sw.fastest[i], sw.link(p).rate)
		}
	}
}

// link returns the transmitter of a port.
func (sw *swtch) link(port int) *link { return &sw.part.links[sw.ports[port]] }

// share divides the buffer.
func (sw *swtch) share(buffer, mtu int64) error {
	var reserves, headrooms int64
	for p := range sw.out {
		k := sw.link(p)
		for j := range sw.out[p].classes {
			cl := &sw.out[p].classes[j]
			reserves += cl.Reserve
			if !cl.Lossless {
				continue
			}
			sw.aside += mtu
			limit := cl.Headroom
			if limit == 0 {
				limit = Headroom(k.rate, k.delay, int(mtu))
			}
			headrooms += limit
			sw.out[p].in[j].limit = limit
		}
	}
	sw.sharedTotal = buffer - reserves - headrooms - sw.aside
	if sw.sharedTotal < 0 {
		return fmt.Errorf("%w of %d bytes: %d ports need %d for reserves, %d for headroom and %d for a packet of each lossless class; enlarge Buffer or use fewer lossless classes",
			ErrBuffer, buffer, len(sw.out), reserves, headrooms, sw.aside)
	}
	return nil
}

// forward takes a packet into a switch by a port, or drops it.
func (sw *swtch) forward(r *link, i uint32) {
	a := sw.part
	p := &a.slots.all[i].Packet
	sw.digest.Add(uint64(a.q.Now()) ^ p.identity())
	sw.digest.Add(p.state() ^ uint64(r.port)<<32)
	a.totals.Hops++
	p.Class, p.in = sw.classOf[p.DSCP], r.port
	if sw.view != nil {
		sw.view.arrived(p, r.port)
	}
	if p.Hops <= 1 {
		sw.drop(i, HopLimit, noPlace)
		return
	}
	p.Hops--
	set := sw.table.Sets[sw.table.Set[p.Dst]]
	out := noPlace
	switch {
	case sw.view != nil && sw.view.hooks.Route != nil:
		out = sw.view.route(i, set)
	case len(set) > 1:
		out = int(sw.choose(set, p))
	case len(set) == 1:
		out = int(set[0])
	}
	switch {
	case out == noPlace:
		sw.drop(i, NoRoute, noPlace)
	case !sw.link(out).up:
		sw.drop(i, CableDown, out)
	default:
		sw.enqueue(i, uint16(out))
	}
}

// enqueue puts a packet into a queue of a port, or drops it.
func (sw *swtch) enqueue(i uint32, out uint16) {
	a := sw.part
	p := &a.slots.all[i].Packet
	o := &sw.out[out]
	why, more := sw.room(p, o)
	if sw.view != nil && sw.view.hooks.Enqueue != nil && why != Watchdog {
		why, more = sw.view.enqueue(i, out, why, more)
		p = &a.slots.all[i].Packet // a frame that it sent may have moved all
	}
	if why < NumDrops {
		sw.drop(i, why, int(out))
		return
	}
	sw.store(p, why, more)
	class, size := p.Class&(NumClasses-1), int64(p.Size)
	q := &o.queues[class]
	if q.bytes == 0 {
		sw.observe(out, class)
	}
	o.stats.area.advance(a.q.Now(), o.bytes)
	q.bytes += size
	o.bytes += size
	o.stats.MaxBytes = max(o.stats.MaxBytes, o.bytes)
	o.nonEmpty |= 1 << class
	a.slots.push(&q.fifo, i)
	a.wake(sw.ports[out])
}

// next takes the packet out of a port's queues that is to be sent now, or
// returns 0.
func (sw *swtch) next(k *link) uint32 {
	a := sw.part
	o := &sw.out[k.port]
	for {
		ready := o.nonEmpty &^ k.stopped()
		if ready == 0 {
			return 0
		}
		class := o.schedule(&a.slots, ready)
		i := sw.take(o, class)
		s := &a.slots.all[i]
		if red := &o.classes[class].RED; red.Kmax != 0 && s.ECN != NotECT && s.ECN != CE && sw.mark(red, o.queues[class].bytes) {
			s.ECN = CE
			a.totals.Marks++
			o.stats.Marks++
		}
		if sw.view == nil {
			return i
		}
		why := sw.view.dequeue(i, int(s.in), int(k.port))
		if why == NumDrops {
			return i
		}
		sw.drop(i, why, int(k.port))
	}
}

// take removes the first packet of a queue, and gives its buffer back.
func (sw *swtch) take(o *port, class uint8) uint32 {
	a := sw.part
	q := &o.queues[class]
	i := a.slots.pop(&q.fifo)
	s := &a.slots.all[i]
	size := int64(s.Size)
	o.stats.area.advance(a.q.Now(), o.bytes)
	q.bytes -= size
	o.bytes -= size
	if q.head == 0 {
		o.nonEmpty &^= 1 << class
		q.deficit = 0
	}
	sw.release(s.in, class, size)
	return i
}

// mark decides by the queue's length whether a packet is marked.
func (sw *swtch) mark(r *RED, queue int64) bool {
	switch {
	case queue <= r.Kmin:
		return false
	case queue > r.Kmax:
		return true
	}
	return sw.rand.Uint64n(million*uint64(r.Kmax-r.Kmin)) < uint64(r.Pmax)*uint64(queue-r.Kmin)
}
