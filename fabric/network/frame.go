package network

import "fmt"

const frameTypes = 8

// Hold has a port send nothing of a set of classes, as if its far end paused
// them, until the next call. A host is told so by Host.Pull.
func (v *View) Hold(port int, classes uint8) {
	k := v.link(port)
	before := k.held
	k.held = classes
	if before&^classes != 0 {
		v.a.arm(v.ports[port])
	}
}

// Pause has the far end of a port send nothing of a set of classes, by pause
// frames, until the next call. What a switch pauses by itself is beside that.
// Where the port is a host's it is Network.Pause.
func (v *View) Pause(port int, classes uint8) {
	k := v.link(port)
	asks := &k.off
	if v.sw != nil {
		asks = &v.sw.out[port].asks
	}
	k.tell |= *asks ^ classes
	*asks = classes
	if k.tell != 0 && k.up {
		v.a.arm(v.ports[port])
	}
}

// Flush drops what waits at a port of a switch in a class, as Programmed. It is
// for Timer; in another hook it panics.
func (v *View) Flush(port int, class uint8) {
	if !v.timed || v.sw == nil {
		panic(fmt.Sprintf("network: program of node %d: Flush is for Timer of a switch", v.node))
	}
	v.link(port)
	v.sw.flush(uint16(port), class%NumClasses, Programmed)
}

// Held returns what Hold has said.
func (v *View) Held(port int) uint8 { return v.link(port).held }

// Send sends a frame to the program at the far end of a port, as soon as the
// packet is out that is being sent. Until then it replaces a waiting one of its
// Type and Class: the newest counts. What waits or is on the cable when that
// goes down is lost, and so is what is sent while it is down.
func (v *View) Send(port int, f Frame) {
	k := v.link(port)
	if f.Type >= frameTypes || f.Class >= NumClasses {
		panic(fmt.Sprintf("network: program of node %d: frame of type %d and class %d: both are 0 to 7", v.node, f.Type, f.Class))
	}
	if !k.up {
		return
	}
	s := &v.a.slots
	for i := k.frames.head; i != 0; i = s.all[i].next {
		if p := &s.all[i].Packet; p.DSCP == f.Type && p.Class == f.Class {
			p.setFrame(f)
			return
		}
	}
	i := s.get()
	s.all[i].Packet.setFrame(f)
	s.push(&k.frames, i)
	v.a.arm(v.ports[port])
}

// setFrame makes a packet a frame. It has no other use for most fields.
func (p *Packet) setFrame(f Frame) {
	*p = Packet{kind: frame, DSCP: f.Type, Class: f.Class, Size: max(f.Size, minWire),
		Handle: uint32(f.Value), Src: uint16(f.Value >> 32), Dst: uint16(f.Value >> 48)}
}

func (p *Packet) frame() Frame {
	return Frame{Type: p.DSCP, Class: p.Class, Size: p.Size, Value: uint64(p.Handle) | uint64(p.Src)<<32 | uint64(p.Dst)<<48}
}

// sendFrame sends the first frame that waits at a transmitter.
func (a *part) sendFrame(l uint32) {
	k := &a.links[l]
	i := a.slots.pop(&k.frames)
	p := &a.slots.all[i].Packet
	a.totals.Frames++
	digest := a.net.digestOf(int(k.node))
	digest.Add(uint64(a.q.Now()) ^ p.identity() ^ uint64(p.Handle)<<8)
	digest.Add(p.state())
	more := int(k.node) < len(a.hosts) || a.switchAt(k.node).out[k.port].ready(k.stopped())
	a.send(l, i, more, digest)
}

// frameCame hands a frame to the program of the node at the transmitter's end.
func (a *part) frameCame(k *link, i uint32) {
	f := a.slots.all[i].frame()
	a.slots.put(i)
	if v := a.net.views.of(int(k.node)); v != nil && v.hooks.Frame != nil {
		v.hooks.Frame(int(k.port), f)
	}
}

// dropFrames forgets what waits at a transmitter.
func (a *part) dropFrames(k *link) {
	for k.frames.head != 0 {
		a.slots.put(a.slots.pop(&k.frames))
	}
}
