package network

import (
	"math/bits"

	"github.com/gosoftroce/rocev2/fabric/event"
)

const psPerSecond = uint64(event.Second)

// link is a transmitter and its direction of a cable. Link l^1 is the other
// direction, whose transmitter is at the far end. A transmitter also stands for
// its port. Only the part of a network that has the node changes it. It is two
// cache lines.
type link struct {
	freeAt    Time  // when the packet that is being sent has left
	psPerByte int64 // 0: the rate does not divide
	rate      int64
	delay     Time
	rand      event.Rand
	node      uint32
	loss      uint32
	port      uint16 // of node
	paused    uint8  // classes that the far end has paused
	tell      uint8  // classes whose pause the far end must be told of
	off       uint8  // classes that a host pauses at the far end
	up        bool
	armed     bool // an event of the transmitter is pending
	wanted    bool // the host has called Kick

	cutThrough bool  // the node is a cut-through switch
	cut        bool  // the far end is in another part:
	farCuts    bool  // it is a cut-through switch
	farPart    uint8 // its part
	void       bool  // all that is sent is lost, see Condition

	pausedSince Time
	stats       LinkStats

	noise *noise // nil: there is none
	_     [8]byte
}

func (k *link) setRate(rate int64) {
	k.rate, k.psPerByte = rate, 0
	if ps := 8 * int64(psPerSecond); ps%rate == 0 {
		k.psPerByte = ps / rate
	}
}

// wire returns how long bytes take, rounded up to a picosecond.
func (k *link) wire(size int64) Time {
	if k.psPerByte != 0 {
		return Time(size * k.psPerByte)
	}
	hi, lo := bits.Mul64(uint64(size)*8, psPerSecond)
	lo, carry := bits.Add64(lo, uint64(k.rate)-1, 0)
	ps, _ := bits.Div64(hi+carry, lo, uint64(k.rate))
	return Time(ps)
}

// bytesIn returns the bytes that a rate sends in a time, rounded up.
func bytesIn(rate int64, t Time) int64 {
	hi, lo := bits.Mul64(uint64(rate), uint64(t))
	lo, carry := bits.Add64(lo, 8*psPerSecond-1, 0)
	b, _ := bits.Div64(hi+carry, lo, 8*psPerSecond)
	return int64(b)
}

// wake has a transmitter look for something to send: now if its cable is free,
// else as soon as it is.
func (a *part) wake(l uint32) {
	k := &a.links[l]
	switch {
	case k.armed:
	case a.q.Now() < k.freeAt:
		a.arm(l)
	default:
		a.start(l)
	}
}

// arm is wake by an event, for callers from which packets must not start.
func (a *part) arm(l uint32) {
	k := &a.links[l]
	if !k.armed {
		k.armed = true
		a.q.Schedule(a.source.send(l), k.freeAt)
	}
}

// start sends the next packet of a transmitter whose cable is free.
func (a *part) start(l uint32) {
	k := &a.links[l]
	switch {
	case k.tell != 0 && k.up:
		a.sendPause(l)
		return
	case int(k.node) < len(a.hosts):
		a.pull(l)
		return
	case !k.up:
		return
	}
	sw := a.switchAt(k.node)
	k.armed = true // a pause that ends now may be told by this very port
	i := sw.next(k)
	k.armed = false
	if i != 0 {
		id := a.slots.all[i].identity()
		a.send(l, i, sw.out[k.port].ready(k.paused), &sw.digest)
		sw.digest.Add(uint64(a.q.Now()) ^ id)
	}
}

// pull asks a host for its next packet.
func (a *part) pull(l uint32) {
	k := &a.links[l]
	h := &a.hosts[k.node]
	i := a.slots.get()
	k.wanted = false
	k.armed = true // Kick from inside Pull does nothing
	p := &a.pulled
	*p = Packet{}
	ok := h.host.Pull(a.q.Now(), int(k.port), k.paused, p)
	k.armed = false
	if !ok {
		a.slots.put(i)
		return
	}
	p.kind, p.Src = data, uint16(k.node)
	p.Size = max(p.Size, minWire)
	p.DSCP &= 63
	p.ECN &= 3
	p.Class = a.net.classOf[p.DSCP]
	if p.Hops == 0 {
		p.Hops = defaultHops
	}
	a.slots.all[i].Packet = *p
	a.totals.Sent++
	h.digest.Add(uint64(a.q.Now()) ^ p.identity())
	if k.paused>>p.Class&1 != 0 {
		a.totals.Disobeyed++
	}
	why := NumDrops
	if int(p.Size) > a.net.mtu {
		why = TooLong
	} else if int(p.Dst) >= len(a.hosts) {
		why = NoRoute
	} else if !k.up {
		why = CableDown
	}
	if why == NumDrops {
		a.send(l, i, true, &h.digest)
		return
	}
	k.freeAt = a.q.Now() + k.wire(int64(p.Size)) // it takes its time all the same
	a.drop(i, why, &h.digest)
	a.arm(l)
}

// send puts a packet on the cable. more says that the transmitter has another
// one for when the cable is free.
func (a *part) send(l, i uint32, more bool, d *event.Digest) {
	k := &a.links[l]
	s := &a.slots.all[i]
	now := a.q.Now()
	k.freeAt = now + k.wire(int64(s.Size))
	s.at = k.freeAt + k.delay
	k.stats.Packets++
	k.stats.Bytes += uint64(s.Size)
	if more || k.tell != 0 {
		a.arm(l)
	}
	if a.tapped {
		a.sight(k, s)
	}
	if k.void {
		a.vanish(i, d)
		return
	}
	if k.loss != 0 && s.kind == data && k.rand.Uint64n(billion) < uint64(k.loss) {
		a.drop(i, CableLoss, d)
		return
	}
	if k.noise != nil && s.kind == data {
		if k.noise.loses() {
			a.drop(i, CableLoss, d)
			return
		}
		s.bad = s.bad || k.noise.spoils(s.Size)
	}
	if k.cut {
		a.post(l, i)
		return
	}
	a.fly(l, i, k.arrival(s, k.farCuts))
}

// vanish loses what is sent into the void.
func (a *part) vanish(i uint32, d *event.Digest) {
	if a.slots.all[i].kind == pause {
		a.slots.put(i)
	} else {
		a.drop(i, CableDown, d)
	}
}

// fly puts a packet among those that are on a cable to a node of this part,
// which takes notice of it at a time.
func (a *part) fly(l, i uint32, at Time) {
	f := &a.flights[l]
	if a.slots.push(f, i); f.head == i {
		a.q.Schedule(a.source.arrive(l), at)
	}
}

// arrival returns when the node at an end of a cable takes notice of a packet
// that is on it. cutThrough says that it is a switch of that kind.
func (k *link) arrival(s *slot, cutThrough bool) Time {
	if !cutThrough || s.kind != data || s.Size <= headWire {
		return s.at
	}
	return s.at - k.wire(int64(s.Size)) + k.wire(headWire)
}

// arrive handles the first packet on a cable at its far end.
func (a *part) arrive(l uint32) {
	r, f := &a.links[l^1], &a.flights[l]
	i := f.head
	s := &a.slots.all[i]
	if r.cutThrough && s.kind == data && a.q.Now() < s.at && a.switchAt(r.node).mustStore(r, s) {
		s.kind = stored
		a.q.Schedule(a.source.arrive(l), s.at)
		return
	}
	a.slots.pop(f)
	if next := f.head; next != 0 {
		a.q.Schedule(a.source.arrive(l), r.arrival(&a.slots.all[next], r.cutThrough))
	}
	switch {
	case s.bad && (!r.cutThrough || s.at <= a.q.Now()):
		// A switch that cuts through has sent on what it has not seen.
		a.drop(i, Corrupted, a.net.digestOf(int(r.node)))
	case s.kind == pause:
		a.setPaused(l^1, r.paused&^s.DSCP|s.Hops)
		a.slots.put(i)
	case int(r.node) < len(a.hosts):
		a.deliver(r, i)
	default:
		s.kind = data
		a.switchAt(r.node).forward(r, i)
	}
}

// switchAt returns the switch of a node.
func (a *part) switchAt(node uint32) *swtch { return &a.switches[int(node)-len(a.hosts)] }

// deliver hands a packet to the host that it came to.
func (a *part) deliver(r *link, i uint32) {
	number := int(r.node)
	h := &a.hosts[number]
	p := &a.received
	*p = a.slots.all[i].Packet
	if int(p.Dst) != number {
		a.drop(i, Misrouted, &h.digest)
		return
	}
	a.slots.put(i)
	a.totals.Delivered++
	h.digest.Add(uint64(a.q.Now()) ^ p.identity())
	h.digest.Add(p.state())
	a.inside = number
	h.host.Receive(a.q.Now(), int(r.port), p)
	a.inside = -1
	a.pullAll(number)
}

// drop counts a packet as lost, at the node with a digest, and tells its
// sender's host.
func (a *part) drop(i uint32, why Drop, d *event.Digest) {
	p := &a.dropped
	*p = a.slots.all[i].Packet
	a.slots.put(i)
	a.totals.Drops[why]++
	a.totals.ClassDrops[p.Class]++
	d.Add(uint64(why)<<56 ^ p.identity())
	if h := &a.hosts[p.Src]; h.part == a {
		h.host.Dropped(p, why)
	} else {
		a.report(h.part, p, why)
	}
}
