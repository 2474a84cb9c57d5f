package network

import (
	"math/bits"

	"github.com/gosoftroce/rocev2/fabric/event"
)

const psPerSecond = uint64(event.Second)

// link is a transmitter and its direction of a cable. Link l^1 is the other
// direction, whose transmitter is at the far end. A transmitter also stands for
// its port.
type link struct {
	flight    fifo  // what is on the cable
	freeAt    Time  // when the packet that is being sent has left
	psPerByte int64 // 0: the rate does not divide
	rate      int64
	delay     Time
	rand      event.Rand
	node, far uint32
	loss      uint32
	port      uint16 // of node
	farPort   uint16 // of far
	paused    uint8  // classes that the far end has paused
	tell      uint8  // classes whose pause the far end must be told of
	off       uint8  // classes that a host pauses at the far end
	up        bool
	armed     bool // an event of the transmitter is pending
	wanted    bool // the host has called Kick

	pausedSince Time
	stats       LinkStats
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
func (n *Network) wake(l uint32) {
	k := &n.links[l]
	switch {
	case k.armed:
	case n.q.Now() < k.freeAt:
		n.arm(l)
	default:
		n.start(l)
	}
}

// arm is wake by an event, for callers from which packets must not start.
func (n *Network) arm(l uint32) {
	k := &n.links[l]
	if !k.armed {
		k.armed = true
		n.q.Schedule(n.source.send(l), k.freeAt)
	}
}

// start sends the next packet of a transmitter whose cable is free.
func (n *Network) start(l uint32) {
	k := &n.links[l]
	switch {
	case k.tell != 0 && k.up:
		n.sendPause(l)
		return
	case int(k.node) < len(n.hosts):
		n.pull(l)
		return
	case !k.up:
		return
	}
	sw := n.switchAt(k.node)
	k.armed = true // a pause that ends now may be told by this very port
	i := sw.next(k)
	k.armed = false
	if i != 0 {
		n.send(l, i, sw.out[k.port].ready(k.paused))
		sw.digest.Add(uint64(n.q.Now()) ^ n.slots.all[i].identity())
	}
}

// pull asks a host for its next packet.
func (n *Network) pull(l uint32) {
	k := &n.links[l]
	h := &n.hosts[k.node]
	i := n.slots.get()
	k.wanted = false
	k.armed = true // Kick from inside Pull does nothing
	p := &n.pulled
	*p = Packet{}
	ok := h.host.Pull(n.q.Now(), int(k.port), k.paused, p)
	k.armed = false
	if !ok {
		n.slots.put(i)
		return
	}
	p.kind, p.Src = data, uint16(k.node)
	p.Size = max(p.Size, minWire)
	p.DSCP &= 63
	p.ECN &= 3
	p.Class = n.classOf[p.DSCP]
	if p.Hops == 0 {
		p.Hops = defaultHops
	}
	n.slots.all[i].Packet = *p
	n.totals.Sent++
	h.digest.Add(uint64(n.q.Now()) ^ p.identity())
	if k.paused>>p.Class&1 != 0 {
		n.totals.Disobeyed++
	}
	why := NumDrops
	if int(p.Size) > n.mtu {
		why = TooLong
	} else if int(p.Dst) >= len(n.hosts) {
		why = NoRoute
	} else if !k.up {
		why = CableDown
	}
	if why == NumDrops {
		n.send(l, i, true)
		return
	}
	k.freeAt = n.q.Now() + k.wire(int64(p.Size)) // it takes its time all the same
	n.drop(i, why)
	n.arm(l)
}

// send puts a packet on the cable. more says that the transmitter has another
// one for when the cable is free.
func (n *Network) send(l, i uint32, more bool) {
	k := &n.links[l]
	s := &n.slots.all[i]
	now := n.q.Now()
	k.freeAt = now + k.wire(int64(s.Size))
	s.at = k.freeAt + k.delay
	k.stats.Packets++
	k.stats.Bytes += uint64(s.Size)
	if more || k.tell != 0 {
		n.arm(l)
	}
	if n.tap != nil {
		n.tap(k.sight(now, s))
	}
	if k.loss != 0 && s.kind == data && k.rand.Uint64n(billion) < uint64(k.loss) {
		n.drop(i, CableLoss)
		return
	}
	if n.slots.push(&k.flight, i); k.flight.head == i {
		n.q.Schedule(n.source.arrive(l), n.arrival(k, s))
	}
}

// arrival returns when the node at the far end takes notice of a packet.
func (n *Network) arrival(k *link, s *slot) Time {
	if s.kind != data || int(k.far) < len(n.hosts) || s.Size <= headWire || !n.switchAt(k.far).cutThrough {
		return s.at
	}
	return s.at - k.wire(int64(s.Size)) + k.wire(headWire)
}

// arrive handles the first packet on a cable at its far end.
func (n *Network) arrive(l uint32) {
	k := &n.links[l]
	i := k.flight.head
	s := &n.slots.all[i]
	if int(k.far) >= len(n.hosts) && s.kind == data && n.q.Now() < s.at && n.switchAt(k.far).mustStore(k, s) {
		s.kind = stored
		n.q.Schedule(n.source.arrive(l), s.at)
		return
	}
	n.slots.pop(&k.flight)
	if next := k.flight.head; next != 0 {
		n.q.Schedule(n.source.arrive(l), n.arrival(k, &n.slots.all[next]))
	}
	switch {
	case s.kind == pause:
		n.setPaused(l^1, n.links[l^1].paused&^s.DSCP|s.Hops)
		n.slots.put(i)
	case int(k.far) < len(n.hosts):
		n.deliver(k, i)
	default:
		s.kind = data
		n.switchAt(k.far).forward(k, i)
	}
}

// switchAt returns the switch of a node.
func (n *Network) switchAt(node uint32) *swtch { return &n.switches[int(node)-len(n.hosts)] }

// deliver hands a packet to a host.
func (n *Network) deliver(k *link, i uint32) {
	number := int(k.far)
	h := &n.hosts[number]
	p := &n.received
	*p = n.slots.all[i].Packet
	if int(p.Dst) != number {
		n.drop(i, Misrouted)
		return
	}
	n.slots.put(i)
	n.totals.Delivered++
	h.digest.Add(uint64(n.q.Now()) ^ p.identity())
	h.digest.Add(p.state())
	n.inside = number
	h.host.Receive(n.q.Now(), int(k.farPort), p)
	n.inside = -1
	n.pullAll(number)
}

// drop counts a packet as lost and tells its sender's host.
func (n *Network) drop(i uint32, why Drop) {
	p := &n.dropped
	*p = n.slots.all[i].Packet
	n.slots.put(i)
	n.totals.Drops[why]++
	h := &n.hosts[p.Src]
	h.digest.Add(uint64(why)<<56 ^ p.identity())
	h.host.Dropped(p, why)
}
