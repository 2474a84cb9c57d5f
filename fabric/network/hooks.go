package network

import (
	"fmt"

	"github.com/gosoftroce/rocev2/fabric/event"
)

// noPlace is a port that there is not.
const noPlace = -1

// views are those of all nodes that have a program, by node. Nil: none has.
type views []*View

// of returns the view of a node; nil: it has no program.
func (all views) of(node int) *View {
	if all == nil {
		return nil
	}
	return all[node]
}

// programmed reports whether some node has a program.
func (c *Config) programmed() bool {
	for i := range c.Switches {
		if c.Switches[i].Program != nil {
			return true
		}
	}
	return c.HostProgram != nil
}

// startPrograms calls the programs, when all nodes are ready.
func (n *Network) startPrograms(c *Config) {
	if !c.programmed() {
		return
	}
	n.views = make(views, len(n.hosts)+len(n.switches))
	for i := range n.hosts {
		if c.HostProgram != nil {
			rand := event.NewRand(c.Seed, uint64(i)<<8|streamHost)
			v := &View{a: n.partOf(i), node: i, ports: n.hosts[i].ports, rand: &rand, flows: make([][NumClasses]flow, len(n.hosts[i].ports))}
			v.hooks = c.HostProgram(v)
			n.views[i], n.hosts[i].view = v, v
		}
	}
	for i := range n.switches {
		if program := c.Switches[i].Program; program != nil {
			sw := &n.switches[i]
			v := &View{a: sw.part, node: sw.node, sw: sw, ports: sw.ports, rand: &sw.rand, flows: make([][NumClasses]flow, len(sw.ports))}
			v.hooks = program(v)
			n.views[sw.node], sw.view = v, v
			sw.setFastest()
		}
	}
}

// show copies a packet to where a hook may look at it.
func (v *View) show(i uint32) *Packet {
	v.packet = v.a.slots.all[i].Packet
	return &v.packet
}

// changed takes over what a hook may change of the packet that it was shown,
// and reports whether rules for room must be asked again.
func (v *View) changed(i uint32) bool {
	p, to := &v.packet, &v.a.slots.all[i].Packet
	p.DSCP &= 63
	again := p.Size != to.Size || p.DSCP != to.DSCP
	if p.Flags&^to.Flags&Trimmed != 0 {
		v.a.totals.Trimmed++
	}
	to.Size, to.DSCP, to.ECN, to.Flags = max(p.Size, minWire), p.DSCP, p.ECN&3, p.Flags&^spoiled|to.Flags&spoiled
	return again
}

// route asks the program for a port; noPlace if it wants none.
func (v *View) route(i uint32, set []uint16) int {
	p := v.show(i)
	out := v.hooks.Route(p, int(p.in), set)
	if out >= len(v.ports) {
		panic(fmt.Sprintf("network: program of node %d: Route returned port %d: there are ports 0 to %d, and negative ones drop", v.node, out, len(v.ports)-1))
	}
	return max(out, noPlace)
}

// enqueue asks the program about a packet for which the rules have or have not
// found room, and returns what is to happen.
func (v *View) enqueue(i uint32, out uint16, why Drop, more int64) (Drop, int64) {
	p := v.show(i)
	at := Place{In: int(p.in), Out: int(out), Class: p.Class}
	verdict := v.hooks.Enqueue(p, at, min(why, NumDrops))
	if v.changed(i) {
		to := &v.a.slots.all[i].Packet
		to.Class = v.sw.classOf[to.DSCP]
		why, more = v.sw.room(to, &v.sw.out[out])
	}
	switch verdict {
	case Default:
	case Store:
		why = v.sw.anyRoom(why, more)
	case Discard:
		why = Programmed
	default:
		panic(fmt.Sprintf("network: program of node %d: Enqueue returned %d: there are Default, Store and Discard", v.node, verdict))
	}
	return why, more
}

// dequeue shows the program a packet that leaves by a port, and returns why it
// does not; NumDrops: it does.
func (v *View) dequeue(i uint32, in, out int) Drop {
	why := NumDrops
	if v.hooks.Dequeue != nil {
		why = v.judge(i, in, out)
	}
	if why == NumDrops {
		p := &v.a.slots.all[i].Packet
		v.flows[out][p.Class].out += uint64(p.Size)
	}
	return why
}

func (v *View) judge(i uint32, in, out int) Drop {
	p := v.show(i)
	v.leaving = i
	verdict := v.hooks.Dequeue(p, Place{In: in, Out: out, Class: p.Class})
	v.leaving = 0
	v.changed(i)
	switch {
	case v.sw == nil:
	case verdict == Discard:
		return Programmed
	case verdict != Default:
		panic(fmt.Sprintf("network: program of node %d: Dequeue returned %d: there are Default and Discard", v.node, verdict))
	}
	if int(v.a.slots.all[i].Size) > v.a.net.mtu {
		return TooLong
	}
	return NumDrops
}

// arrived counts a packet that has come in by a port.
func (v *View) arrived(p *Packet, in uint16) { v.flows[in][p.Class].in += uint64(p.Size) }

// received shows the program of a host a packet that has come.
func (v *View) received(i uint32, in int) {
	v.arrived(&v.a.slots.all[i].Packet, uint16(in))
	if v.hooks.Enqueue != nil {
		p := v.show(i)
		v.hooks.Enqueue(p, Place{In: in, Out: noPlace, Class: p.Class}, NumDrops)
	}
}

// drop counts a packet as lost at the switch, and shows it to the program. out
// is noPlace before it has a port.
func (sw *swtch) drop(i uint32, why Drop, out int) {
	if v := sw.view; v != nil && v.hooks.Dropped != nil {
		p := v.show(i)
		v.hooks.Dropped(p, Place{In: int(p.in), Out: out, Class: p.Class}, why)
	}
	at := int(sw.part.slots.all[i].in)
	if out != noPlace && why != IngressFull && why != HeadroomFull {
		at = out
	}
	sw.part.dropAt(sw.link(at), i, why, &sw.digest)
}
