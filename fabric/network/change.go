package network

// SetCable takes a cable down or brings it up. What is on a cable that goes
// down, or queued for it, is lost, and so is what comes for it until the tables
// follow (Config.Reroute). A host goes on sending at the rate of its cable,
// into the void. Both ends forget the pauses of the other one. Those that they
// still need, a switch while its buffer is full and a host by Pause, come again
// with the cable.
func (n *Network) SetCable(i int, up bool) {
	n.parts.together("SetCable")
	if n.up[i] == up {
		return
	}
	n.up[i] = up
	for l := uint32(2 * i); l <= uint32(2*i+1); l++ {
		if up {
			k := &n.links[l]
			k.up, k.tell = true, n.pauses(l)
		} else {
			n.cut(l)
		}
	}
	for l := uint32(2 * i); l <= uint32(2*i+1); l++ {
		k := &n.links[l]
		if v := n.views.of(int(k.node)); v != nil && v.hooks.Cable != nil {
			v.hooks.Cable(int(k.port), up)
		}
		if k.tell != 0 {
			n.partOf(int(k.node)).wake(l)
		}
	}
	n.parts.exchange()
	if n.reroute != nil {
		n.At(n.Now()+n.converge, n.follow)
	}
}

// pauses returns the classes that the node of a transmitter pauses at the far
// end.
func (n *Network) pauses(l uint32) uint8 {
	k := &n.links[l]
	if sw := int(k.node) - len(n.hosts); sw >= 0 {
		return n.switches[sw].out[k.port].off()
	}
	return k.off
}

// Up reports whether a cable is up.
func (n *Network) Up(i int) bool { return n.up[i] }

// follow puts the tables in force that fit the cables as they are.
func (n *Network) follow() {
	tables := n.reroute(n.up)
	if tables == nil {
		return
	}
	if err := n.SetTables(tables); err != nil && n.err == nil {
		n.err = err
	}
}

// cut ends a transmitter and its direction of the cable.
func (n *Network) cut(l uint32) {
	k, r := &n.links[l], &n.links[l^1]
	k.up = false
	a, far := n.partOf(int(k.node)), n.partOf(int(r.node))
	far.q.Cancel(n.source.arrive(l))
	for f := &far.flights[l]; f.head != 0; {
		i := far.slots.pop(f)
		if far.slots.all[i].control() {
			far.slots.put(i)
		} else {
			far.drop(i, CableDown, n.digestOf(int(r.node)))
		}
	}
	if sw := int(k.node) - len(n.hosts); sw >= 0 {
		x := &n.switches[sw]
		for c := range uint8(NumClasses) {
			x.flush(k.port, c, CableDown)
		}
	}
	k.tell = 0
	a.dropFrames(k)
	a.setPaused(l, 0)
}
