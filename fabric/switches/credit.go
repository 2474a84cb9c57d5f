package switches

import (
	"fmt"
	"math"

	"github.com/gosoftroce/rocev2/fabric/network"
)

// Credit is flow control by absolute credits for each class of a cable, instead
// of pauses, as InfiniBand has it (IBTA 7.9): a receiver tells how many bytes
// it will have had when its buffer is full, and the transmitter never sends
// more. So nothing is lost for want of room, and no headroom is set aside. It
// is for all switches and for the hosts (network.Config.HostProgram) of a
// network.
//
// The buffer that a port has for a class is its Class.Reserve, at least two
// packets of Config.MTU. The class must not be Lossless. A host takes whatever
// comes. A transmitter begins when it has its first credits: one delay and one
// frame after the beginning.
//
// InfiniBand counts in blocks of 64 bytes, and each frame says both what is
// granted and what was sent, at least every 65536 symbol times. Here these are
// frames of their own, and the second one follows Sync after packets.
type Credit struct {
	Classes uint8        // bit c set: class c
	Frame   int          // bytes on the wire of a credit; 0: 84
	Sync    network.Time // how long losses of cables keep credits; 0: 100 µs
}

// Types of frames: what is granted, and what was sent.
const (
	grant = iota
	total
)

// Program implements it.
func (c Credit) Program(v *network.View) network.Hooks {
	n := &creditNode{Credit: c, v: v, ports: make([][network.NumClasses]creditEnd, v.Ports())}
	if n.Sync <= 0 {
		n.Sync = 100_000_000
	}
	n.Frame = orDefault(n.Frame, network.WireSize(0))
	for port := range n.ports {
		for class := range uint8(network.NumClasses) {
			if n.Classes>>class&1 == 0 {
				continue
			}
			if r := v.Reserve(port, class); !v.IsHost() && r < 2*int64(v.MTU()) {
				panic(fmt.Sprintf("switches: credits of node %d, port %d, class %d: a Reserve of %d bytes is less than two packets of %d", v.Node(), port, class, r, v.MTU()))
			}
			n.grant(port, class)
		}
		v.Hold(port, n.Classes)
	}
	return network.Hooks{
		Dequeue: n.dequeue, Dropped: n.drop, Frame: n.frame, Cable: n.cable, Timer: n.sync,
	}
}

// creditNode is the program of a node.
type creditNode struct {
	Credit
	v     *network.View
	ports [][network.NumClasses]creditEnd
	timed bool
}

// creditEnd is both halves of a port for a class: as a receiver, what it has
// granted, and what was lost on the cable; as a transmitter, up to where it may
// send, and what it has told of that.
type creditEnd struct {
	granted, lost uint64
	limit, told   uint64
}

// room returns up to where the far end may send. A host takes all.
func (n *creditNode) room(port int, class uint8) uint64 {
	if n.v.IsHost() {
		return math.MaxUint64 / 2
	}
	free := n.v.Reserve(port, class) - n.v.StoredOf(port, class)
	return n.v.ReceivedOf(port, class) + n.ports[port][class].lost + uint64(max(free, 0))
}

// grant tells the far end up to where it may send.
func (n *creditNode) grant(port int, class uint8) {
	e := &n.ports[port][class]
	e.granted = n.room(port, class)
	n.v.Send(port, network.Frame{Type: grant, Class: class, Size: uint16(n.Frame), Value: e.granted})
}

// freed grants what has become free, when it is a packet or more. What is not
// granted then is less than the rest of the buffer, which has two.
func (n *creditNode) freed(port int, class uint8) {
	if port < 0 || n.Classes>>class&1 == 0 {
		return
	}
	if n.room(port, class) >= n.ports[port][class].granted+uint64(n.v.MTU()) {
		n.grant(port, class)
	}
}

func (n *creditNode) dequeue(p *network.Packet, at network.Place) network.Verdict {
	n.freed(at.In, at.Class)
	if n.Classes>>at.Class&1 != 0 {
		n.hold(at.Out, at.Class, uint64(p.Size))
		if !n.timed {
			n.timed = true
			n.v.SetTimer(n.v.Now() + n.Sync)
		}
	}
	return network.Default
}

func (n *creditNode) drop(_ *network.Packet, at network.Place, _ network.Drop) {
	n.freed(at.In, at.Class)
}

// hold holds a class of a port while a packet may be more than it has credits
// for. leaving is what is being sent now.
func (n *creditNode) hold(port int, class uint8, leaving uint64) {
	held := n.v.Held(port) &^ (1 << class)
	if n.v.SentOf(port, class)+leaving+uint64(n.v.MTU()) > n.ports[port][class].limit {
		held |= 1 << class
	}
	n.v.Hold(port, held)
}

func (n *creditNode) frame(port int, f network.Frame) {
	if n.Classes>>f.Class&1 == 0 {
		return
	}
	e := &n.ports[port][f.Class]
	if f.Type == grant {
		e.limit = max(e.limit, f.Value)
		n.hold(port, f.Class, 0)
		return
	}
	e.lost = f.Value - n.v.ReceivedOf(port, f.Class)
	n.freed(port, f.Class)
}

// sync tells far ends what was sent, where that is news: the rest was lost.
func (n *creditNode) sync() {
	n.timed = false
	for port := range n.ports {
		for class := range uint8(network.NumClasses) {
			n.tell(port, class)
		}
	}
}

func (n *creditNode) tell(port int, class uint8) {
	e := &n.ports[port][class]
	if sent := n.v.SentOf(port, class); n.Classes>>class&1 != 0 && sent != e.told {
		e.told = sent
		n.v.Send(port, network.Frame{Type: total, Class: class, Size: uint16(n.Frame), Value: sent})
	}
}

// cable begins anew when a cable is up again: what was on it is lost, and so
// are the frames.
func (n *creditNode) cable(port int, up bool) {
	for class := range uint8(network.NumClasses) {
		if up && n.Classes>>class&1 != 0 {
			n.ports[port][class].told = 0
			n.tell(port, class)
			n.grant(port, class)
		}
	}
}
