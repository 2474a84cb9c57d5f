package network

import (
	"github.com/gosoftroce/rocev2/fabric/event"
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

	slots   slots
	flights []fifo // what is on the cables that end here, by transmitter
	totals  Totals
	tapped  bool
	inside  int   // the host whose Receive or Timer runs, or -1
	trail   []Hop // of the packet that it receives

	// What hosts see: packets in places of their own, so that none escapes.
	pulled, received, dropped Packet

	// What goes to each other part: the boxes that are being filled, and
	// those that are being emptied.
	out   [2][]box
	first Time // when the first of what is being posted arrives
	seen  []sighting
	told  int // of these, that the tap knows of

	_ [64]byte // nothing of another part is in the same cache line
}

// box is what one part has for another one.
type box struct {
	packets []posted
	hops    []Hop // of packets, one after the other
	drops   []dropped
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
	b := &a.out[a.windows.side][k.farPart]
	at := k.arrival(s, k.farCuts)
	trail := a.slots.trails.of(i)
	b.hops = append(b.hops, trail...)
	b.packets = append(b.packets, posted{*s, l, uint8(len(trail)), at})
	a.first = min(a.first, at)
	a.slots.put(i)
}

// report tells the part of a packet's sender that it was dropped.
func (a *part) report(to *part, p *Packet, why Drop) {
	b := &a.out[a.windows.side][to.number]
	b.drops = append(b.drops, dropped{*p, why})
}

// collect takes what other parts have posted, of one side of the boxes.
func (a *part) collect(side int) {
	for _, from := range a.windows.all {
		b := &from.out[side][a.number]
		hops := b.hops
		for j := range b.packets {
			p := &b.packets[j]
			i := a.slots.get()
			a.slots.all[i] = p.slot
			a.slots.trails.set(i, hops[:p.hops])
			hops = hops[p.hops:]
			a.fly(p.l, i, p.notice)
		}
		for j := range b.drops {
			d := &b.drops[j]
			a.dropped = d.Packet
			a.hosts[d.Src].host.Dropped(&a.dropped, d.why)
		}
		b.packets, b.hops, b.drops = b.packets[:0], b.hops[:0], b.drops[:0]
	}
}

// sight tells the tap of a packet that a transmitter sends now.
func (a *part) sight(k *link, s *slot) {
	x := Sight{At: a.q.Now(), Arrives: s.at, Node: int(k.node), Port: int(k.port), Packet: s.Packet}
	switch s.kind {
	case pause:
		x.Pause, x.Mask, x.Off = true, s.DSCP, s.Hops
		x.Packet = Packet{Size: s.Size}
	case frame:
		x.Pause, x.Frame = true, s.frame()
		x.Packet = Packet{Size: s.Size}
	}
	if a.windows.apart {
		a.seen = append(a.seen, sighting{a.q.Turn(), x})
		return
	}
	a.net.tap(x)
}
