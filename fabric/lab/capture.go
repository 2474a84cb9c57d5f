package lab

import (
	"errors"
	"net/netip"

	"github.com/gosoftroce/rocev2/fabric/adapter"
	"github.com/gosoftroce/rocev2/fabric/network"
)

// Capture has the packets that pass some ports handed over. The network is then
// one part, whatever Scenario.Cores says.
type Capture struct {
	Ports string // as in Output.Ports: at most 64
	// Take gets each packet, in the order of time. It must not keep Data.
	Take func(*Packet)
}

const mostCaptured = 64 // ports

// Packet is a packet, or a pause frame, that passes a port.
type Packet struct {
	At   Time   // when its first bit leaves the port, or its last has come
	Port string // its name
	Sent bool   // else it has come
	Wire int    // bytes on the wire here, with preamble and gap: see network.WireSize
	// From and To are the ports at the ends of the cable that it is on.
	From, To End

	// A pause frame is about the classes of Mask, and pauses those of Off.
	Pause     bool
	Mask, Off uint8

	// A frame of a program, as network.Frame has it: of credits.
	Frame       bool
	Type, Class uint8
	Value       uint64

	// Of another packet:
	TCP                    bool // it is of TCP: Data begins with that header, without its checksum, and Length is that of header and payload
	Returned               bool // the header of a packet that a switch has trimmed, on its way back to the sender
	Src, Dst               netip.Addr
	SrcPort                uint16
	TrafficClass, HopLimit uint8  // as they are here: 4 × DSCP + ECN
	Data                   []byte // from the BTH on, as far as there are bytes: what is missing of Length is payload
	Length                 int    // from the BTH to the pad, without the ICRC, which is not there; of a packet that a switch has trimmed as before
}

// End is a port at an end of a cable: of a host, or of a switch.
type End struct {
	Switch       bool
	Number, Port int
}

// capturer hands packets over.
type capturer struct {
	a     *adapter.Adapters
	take  func(*Packet)
	hosts int
	name  map[portRef]string
	peer  map[portRef]portRef // of the ports that are captured
	p     Packet
}

// newCapturer returns what captures, nil if nothing is to be captured.
func newCapturer(r *run) (*capturer, error) {
	o := &r.s.Output.Capture
	if o.Ports == "" {
		return nil, nil
	}
	ports, err := portsOf(r.g, "capture", o.Ports, mostCaptured)
	if err != nil {
		return nil, err
	}
	if o.Take == nil {
		return nil, errors.New("capture: nothing takes the packets")
	}
	hosts := int(r.g.Hosts())
	c := &capturer{a: r.a, take: o.Take, hosts: hosts, name: map[portRef]string{}, peer: map[portRef]portRef{}}
	for _, at := range ports {
		p := r.g.Ports(int32(at.node))[at.port]
		c.name[at] = portName(hosts, at.node, at.port)
		c.peer[at] = portRef{int(p.Peer), int(r.g.PortOf(p.Peer, p.Link))}
	}
	return c, nil
}

// CapturePorts returns the names of the ports that Capture.Ports of a scenario
// names, in its order.
func CapturePorts(s *Scenario) ([]string, error) {
	g, err := s.Network.graph()
	if err != nil {
		return nil, s.errorf("%w", err)
	}
	ports, err := portsOf(g, "capture", s.Output.Capture.Ports, mostCaptured)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, p := range ports {
		names = append(names, portName(int(g.Hosts()), p.node, p.port))
	}
	return names, nil
}

// watch has the network tell of the packets.
func (c *capturer) watch(n *network.Network, w *network.Watch) {
	if c == nil {
		return
	}
	n.Tap(func(x network.Sight) {
		if at := (portRef{x.Node, x.Port}); c.name[at] != "" {
			c.pass(&x, at, at, c.peer[at])
		}
	})
	w.Arrived = func(x network.Sight) {
		if at := (portRef{x.Node, x.Port}); c.name[at] != "" {
			c.pass(&x, at, c.peer[at], at)
		}
	}
}

func (c *capturer) end(at portRef) End {
	if at.node >= c.hosts {
		return End{true, at.node - c.hosts, at.port}
	}
	return End{false, at.node, at.port}
}

// pass hands a packet over.
func (c *capturer) pass(x *network.Sight, at, from, to portRef) {
	p := &c.p
	*p = Packet{At: Time(x.At), Port: c.name[at], Sent: at == from, Wire: int(x.Packet.Size), Mask: x.Mask, Off: x.Off}
	p.From, p.To = c.end(from), c.end(to)
	switch {
	case x.Pause && x.Mask == 0:
		p.Frame, p.Type, p.Class, p.Value = true, x.Frame.Type, x.Frame.Class, x.Frame.Value
	case x.Pause:
		p.Pause = true
	default:
		q := &x.Packet
		p.Src, p.Dst = adapter.Addr(int(q.Src)), adapter.Addr(int(q.Dst))
		p.SrcPort, p.TrafficClass, p.HopLimit = q.SrcPort, q.DSCP<<2|q.ECN, q.Hops
		p.Data, p.Length = c.a.Datagram(q)
		p.TCP, p.Returned = adapter.IsForeign(q), adapter.IsReturned(q)
	}
	c.take(p)
}
