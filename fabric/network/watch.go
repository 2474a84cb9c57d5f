package network

import "github.com/gosoftroce/rocev2/fabric/event"

// Watch is what looks at a network while it runs, beside a tap. Any of its
// functions may be nil. They only look on, and must not call the network. In a
// network of several parts they are called by several goroutines at once, but
// by one for each node (Network.PartOf).
type Watch struct {
	// Arrived is told of each packet, and each pause frame, when it has
	// come to the far end of its cable: Sight.Node and Port are those that
	// it has come to. At and Arrives are both now.
	Arrived func(Sight)
	// Paused is told that a port must send nothing of a set of classes
	// from now on, and all else.
	Paused func(at Time, node, port int, classes uint8)
	// Dropped is told of each packet that is dropped, with the port where:
	// the one whose queue or cable it was for, or, where the switch has
	// chosen none or its ingress is full, the one that it came in by.
	Dropped func(at Time, node, port int, p *Packet, why Drop)
}

// Watch has w told of what happens from now on; nil ends it. The digest is the
// same with and without.
func (n *Network) Watch(w *Watch) {
	n.parts.together("Watch")
	if w == nil {
		w = new(Watch)
	}
	for _, a := range n.parts.all {
		a.watch, a.arrivals = *w, w.Arrived != nil
	}
}

// arrived tells of a packet that has come to a port.
func (a *part) arrived(r *link, s *slot) {
	x := Sight{At: a.q.Now(), Arrives: a.q.Now(), Node: int(r.node), Port: int(r.port), Packet: s.Packet}
	x.of(s)
	a.watch.Arrived(x)
}

// of fills in what only a frame of the link has.
func (x *Sight) of(s *slot) {
	switch s.kind {
	case pause:
		x.Pause, x.Mask, x.Off = true, s.DSCP, s.Hops
		x.Packet = Packet{Size: s.Size}
	case frame:
		x.Pause, x.Frame = true, s.frame()
		x.Packet = Packet{Size: s.Size}
	}
}

// dropAt is drop for a packet that is at a port.
func (a *part) dropAt(k *link, i uint32, why Drop, d *event.Digest) {
	if a.watch.Dropped != nil {
		a.watch.Dropped(a.q.Now(), int(k.node), int(k.port), &a.slots.all[i].Packet, why)
	}
	a.drop(i, why, d)
}
