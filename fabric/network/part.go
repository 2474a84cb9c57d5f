package network

import (
	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/internal/mailbox"
)

// part is some of the nodes of a network, and what is under way there. Its
// events touch nothing but it, except for what it posts to other parts. Where a
// network is not divided there is one part, and all is in it.
type part struct {
	net     *Network
	windows *windows
	number  int
	q       *event.Queue
	source  sources

	// Those of the whole network. A part uses what belongs to its nodes.
	links    []link
	hosts    []host
	switches []swtch

	slots    slots
	flights  []fifo // what is on the cables that end here, by transmitter
	totals   Totals
	tapped   bool
	watch    Watch
	arrivals bool  // the watch is told of them
	inside   int   // the host whose Receive or Timer runs, or -1
	trail    []Hop // of the packet that it receives

	// What hosts see: packets in places of their own, so that none escapes.
	pulled, received, dropped Packet

	in    []inlet  // from parts with cables that end here
	out   []outlet // to all parts, by number
	clock clock
	stays Time // until then the clock need not tell that time has passed
	often Time // how much time may pass before it tells
	over  bool // it has come to the end of the round

	seen []sighting
	told int // of these, that the tap knows of

	_ [64]byte // nothing of another part is in the same cache line
}

// inlet is what comes from another part. What that sends arrives here at least
// a delay later: no cable between the two has a shorter one.
type inlet struct {
	from  *part
	delay Time
	box   *outlet
}

// outlet is what one part has for another one.
type outlet struct {
	packets mailbox.Box[posted]
	hops    mailbox.Box[Hop] // of packets, one after the other
	drops   mailbox.Box[dropped]
	any     bool // something was put since it was posted
}

// posted is a packet on a cable that ends in another part.
type posted struct {
	slot
	l      uint32
	hops   uint8
	notice Time // when the far end takes notice of it
}

// dropped is a packet that was dropped in another part than its sender's.
type dropped struct {
	Packet
	why Drop
}

// sighting is what a tap will be told.
type sighting struct {
	turn event.Bound
	Sight
}

// post hands a packet to the part in which its cable ends.
func (a *part) post(l, i uint32) {
	k := &a.links[l]
	s := &a.slots.all[i]
	o := &a.out[k.farPart]
	trail := a.slots.trails.of(i)
	for _, hop := range trail {
		*o.hops.Put() = hop
	}
	*o.packets.Put() = posted{*s, l, uint8(len(trail)), k.arrival(s, k.farCuts)}
	o.any = true
	a.slots.put(i)
}

// report tells the part of a packet's sender that it was dropped.
func (a *part) report(to *part, p *Packet, why Drop) {
	o := &a.out[to.number]
	*o.drops.Put() = dropped{*p, why}
	o.any = true
}

// pass lets the other parts have what was put for them.
func (a *part) pass() {
	for i := range a.out {
		if o := &a.out[i]; o.any {
			o.any = false
			o.hops.Post() // first: its packets come with them
			o.packets.Post()
			o.drops.Post()
		}
	}
}

// take takes what another part has delivered.
func (a *part) take(o *outlet) {
	for p := o.packets.Take(); p != nil; p = o.packets.Take() {
		i := a.slots.get()
		a.slots.all[i] = p.slot
		a.slots.trails.clear(i)
		for range p.hops {
			a.slots.trails.note(i, *o.hops.Take())
		}
		a.fly(p.l, i, p.notice)
	}
	for d := o.drops.Take(); d != nil; d = o.drops.Take() {
		a.dropped = d.Packet
		a.hosts[d.Src].host.Dropped(&a.dropped, d.why)
	}
}

// sight tells the tap of a packet that a transmitter sends now.
func (a *part) sight(k *link, s *slot) {
	x := Sight{At: a.q.Now(), Arrives: s.at, Node: int(k.node), Port: int(k.port), Packet: s.Packet}
	x.of(s)
	if a.windows.apart {
		a.seen = append(a.seen, sighting{a.q.Turn(), x})
		return
	}
	a.net.tap(x)
}
