package network

import (
	"fmt"

	"github.com/gosoftroce/rocev2/fabric/event"
)

// Program is what is programmed at a switch (Switch.Program) or at the ports of
// a host (Config.HostProgram). New calls it once for each, and from then on the
// hooks that it returns. What it keeps belongs to one node, in variables of the
// function: programs of several nodes run at the same time (Config.Parts), and
// must have nothing in common that changes.
//
// A program is a function of what its hooks are told and of View.Rand alone.
// Then a run is repeatable, in as many parts as one likes.
type Program func(v *View) Hooks

// Hooks are the places at which a program may have a say. Nil ones cost
// nothing, and the rules of Switch apply there.
//
// Packets are the program's to look at during the call. It may change Size,
// DSCP, ECN and Flags in Enqueue and Dequeue; other changes are ignored. A hook
// must not call methods of Network.
type Hooks struct {
	// Route returns the port that a packet leaves by: one of set, which is
	// what the table has for its destination, or any other one of the
	// switch. A negative one drops the packet as NoRoute. set may be
	// empty, and must not be changed.
	Route func(p *Packet, in int, set []uint16) int
	// Enqueue decides about a packet that has a port. why is what the
	// rules of Switch say: NumDrops that there is room. After a change of
	// Size or DSCP the rules are asked again, and Enqueue is not.
	Enqueue func(p *Packet, at Place, why Drop) Verdict
	// Dequeue sees a packet that begins to leave, after RED. It has left
	// the buffer. Dropped here, the next one has its turn. It may note
	// hops (View.Note). A packet that has become longer than Config.MTU is
	// dropped as TooLong.
	Dequeue func(p *Packet, at Place) Verdict
	// Dropped sees each packet that the switch drops.
	Dropped func(p *Packet, at Place, why Drop)
	// Paused says which classes the far end of a port now pauses.
	Paused func(port int, classes uint8)
	// Frame takes what the program of a far end has sent (View.Send).
	Frame func(port int, f Frame)
	// Cable says that the cable of a port went down or came up: also that
	// the far end hears the port again (Condition.Void). What was sent
	// meanwhile is lost.
	Cable func(port int, up bool)
	// Timer says that the time of View.SetTimer has come.
	Timer func()
}

// Place is where a packet is in a node. At a host, what it sends comes In by
// port -1, and what it receives goes Out by port -1; so does a packet of a
// switch that is dropped before it has a port.
type Place struct {
	In, Out int
	Class   uint8
}

// Verdict is what a program decides about a packet. Those of programs at hosts
// do not count.
type Verdict uint8

const (
	Default Verdict = iota // what the rules of Switch say
	Store                  // in Enqueue: take it, above thresholds too, if the buffer has room
	Discard                // drop it as Programmed
)

// Frame is a message of link-level flow control, from the program of one end of
// a cable to that of the other. It goes before packets, like pause frames, and
// Cable.Loss spares it.
type Frame struct {
	Type  uint8 // the programs' own, 0 to 7
	Class uint8 // 0 to 7
	Size  uint16
	Value uint64
}

// View is what a program sees of its node, and what it can do there. It is
// valid during the call of a hook, and of Program.
type View struct {
	a       *part
	node    int
	sw      *swtch // nil: a host
	ports   []uint32
	hooks   Hooks
	rand    *event.Rand
	flows   [][NumClasses]flow // by port
	leaving uint32             // slot of the packet that Dequeue sees; 0: none
	timed   bool               // Timer runs
	packet  Packet             // the one that a hook sees
}

// flow is the bytes on the wire that have come in and gone out.
type flow struct{ in, out uint64 }

// Now returns the time.
func (v *View) Now() Time { return v.a.q.Now() }

// Node returns the number of the node. Those from Hosts on are switches.
func (v *View) Node() int { return v.node }

// IsHost reports whether the node is a host.
func (v *View) IsHost() bool { return v.sw == nil }

// Ports returns how many ports the node has.
func (v *View) Ports() int { return len(v.ports) }

// Hosts returns how many hosts the network has.
func (v *View) Hosts() int { return len(v.a.hosts) }

// MTU returns the most bytes on the wire that a packet may have.
func (v *View) MTU() int { return v.a.net.mtu }

// Rand returns the randomness of the node. Built-in rules of a switch draw from
// the same stream.
func (v *View) Rand() *event.Rand { return v.rand }

func (v *View) link(port int) *link {
	if port < 0 || port >= len(v.ports) {
		panic(fmt.Sprintf("network: program of node %d: there is no port %d among %d", v.node, port, len(v.ports)))
	}
	return &v.a.links[v.ports[port]]
}

// Rate returns the rate of a port in bit/s.
func (v *View) Rate(port int) int64 { return v.link(port).rate }

// Delay returns the delay of a port's cable.
func (v *View) Delay(port int) Time { return v.link(port).delay }

// Up reports whether the cable of a port is up.
func (v *View) Up(port int) bool { return v.link(port).up }

// Paused returns the classes that the far end of a port pauses.
func (v *View) Paused(port int) uint8 { return v.link(port).paused }

// Sent returns the bytes on the wire that a port has sent.
func (v *View) Sent(port int) int64 { return int64(v.link(port).stats.Bytes) }

// SentOf returns the bytes on the wire of packets of a class that a port has
// sent. Those of the packet that Dequeue sees are not among them.
func (v *View) SentOf(port int, class uint8) uint64 {
	v.link(port)
	return v.flows[port][class%NumClasses].out
}

// ReceivedOf returns the bytes on the wire of packets of a class that have come
// in by a port, stored or not.
func (v *View) ReceivedOf(port int, class uint8) uint64 {
	v.link(port)
	return v.flows[port][class%NumClasses].in
}

// Queued returns the bytes that wait at a port of a switch.
func (v *View) Queued(port int) int64 {
	v.link(port)
	if v.sw == nil {
		return 0
	}
	return v.sw.out[port].bytes
}

// QueuedOf returns the bytes of a class that wait at a port of a switch.
func (v *View) QueuedOf(port int, class uint8) int64 {
	v.link(port)
	if v.sw == nil {
		return 0
	}
	return v.sw.out[port].queues[class%NumClasses].bytes
}

// StoredOf returns the bytes of a class that a switch has stored of what came
// in by a port.
func (v *View) StoredOf(port int, class uint8) int64 {
	v.link(port)
	if v.sw == nil {
		return 0
	}
	g := &v.sw.out[port].in[class%NumClasses]
	return g.used + g.headroom
}

// Reserve returns the Class.Reserve of a port of a switch.
func (v *View) Reserve(port int, class uint8) int64 {
	v.link(port)
	if v.sw == nil {
		return 0
	}
	return v.sw.out[port].classes[class%NumClasses].Reserve
}

// SharedFree returns the free bytes of a switch's shared buffer.
func (v *View) SharedFree() int64 {
	if v.sw == nil {
		return 0
	}
	return v.sw.sharedTotal - v.sw.sharedUsed
}

// ClassOf returns the class that the node takes a DSCP for.
func (v *View) ClassOf(dscp uint8) uint8 {
	if v.sw == nil {
		return v.a.net.classOf[dscp&63]
	}
	return v.sw.classOf[dscp&63]
}

// Hash returns the hash over addresses and UDP ports by which the switch would
// choose among equal ways (ECMP).
func (v *View) Hash(p *Packet) uint64 {
	if v.sw == nil {
		return 0
	}
	return v.sw.hash(p)
}

// Hop returns what is to be said of a port now. See Note.
func (v *View) Hop(port int) Hop {
	k := v.link(port)
	return Hop{Rate: k.rate, Queued: v.Queued(port), Sent: int64(k.stats.Bytes), At: v.Now(), Node: uint32(v.node), Port: uint16(port)}
}

// Trail returns what the packet that Dequeue sees has noted until now, this
// switch included. It is valid during the call of Dequeue, and nil at any other
// time.
func (v *View) Trail() []Hop {
	if v.leaving == 0 {
		return nil
	}
	return v.a.slots.trails.of(v.leaving)
}

// Note appends to the trail of the packet that Dequeue sees, and reports
// whether Config.Trail had room for it. What did not fit is counted
// (Totals.Unnoted). Outside of Dequeue it panics.
func (v *View) Note(h Hop) bool {
	if v.leaving == 0 {
		panic(fmt.Sprintf("network: program of node %d: Note is for Dequeue", v.node))
	}
	if v.a.slots.trails.note(v.leaving, h) {
		return true
	}
	v.a.totals.Unnoted++
	return false
}

// SetTimer has Hooks.Timer called at a time, instead of at the time that was
// set before. event.Never cancels it.
func (v *View) SetTimer(at Time) { v.a.q.Schedule(v.a.source.program(v.node), at) }
