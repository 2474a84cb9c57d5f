package lab

import (
	"fmt"
	"strconv"

	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/fabric/network"
	"github.com/gosoftroce/rocev2/qp"
)

// Output says what a run keeps for those who look at it afterwards.
type Output struct {
	// Ports are those that are sampled with Record: hosts as "h3" or
	// "h0-15", switches with all their ports as "s1", ports of them as
	// "s1.4", and "all" hosts, with blanks between them. "": the first 256,
	// those of switches before those of hosts.
	Ports string
	// Flows are those whose queue pairs are sampled with Record, by their
	// numbers in the order in which they begin, as "0-15 40". "": the first
	// 16.
	Flows string

	// Record has the run keep counters of flows and of ports, pauses, and
	// more samples: Flow.Counters, Result.Ports and Result.Pauses. That
	// takes memory, and a little time.
	Record bool `toml:"-"`
	// Capture, if it has Ports, gets the packets that pass them.
	Capture Capture `toml:"-"`
}

// Bounds of what is recorded.
const (
	recordedPorts  = 256 // that are sampled if none are named
	mostRecorded   = 4096
	recordedFlows  = 16
	mostFlowsNamed = 1024
	mostPauses     = 1 << 18
)

// Counters are those of both queue pairs of a flow together. What they count
// package qp says.
type Counters struct {
	Retransmits, SpuriousRetransmits, ReadReplays uint64
	Timeouts, Probes, Repairs                     uint64
	CNPs, Marked                                  uint64 // notifications received, packets that came marked
	WindowCuts, RateCuts                          uint64
	Reordered, NAKs                               uint64
}

// Port is what has been at a port.
type Port struct {
	Node, Port int // hosts come first, then the switches
	Peer       int // the node at the other end of its cable
	Cable      int
	Rate       Rate
	network.LinkStats
	MaxQueued int64                    // bytes, since Warm; 0 of hosts
	Marks     uint64                   // packets
	Drops     [network.NumDrops]uint64 // packets that were dropped at it
}

// Pause is a time in which a port had to send nothing of some classes.
type Pause struct {
	At, Until  Time
	Node, Port int
	By         int   // the node that has paused it
	Classes    uint8 // bit set
}

// recorder keeps what Output asks for. A nil recorder keeps nothing.
type recorder struct {
	r     *run
	ports []sampledPort
	flows []sampledFlow
	parts []recorded
}

// sampledPort is a port with its series.
type sampledPort struct {
	portRef
	queue, sent, packets, marked, dropped, paused *Series
}

// sampledFlow is a flow with its series; they are nil before it has begun.
type sampledFlow struct {
	number                      int
	inFlight, window, rate, rtt *Series
}

// recorded is what has happened in a part of the network, in its order.
type recorded struct {
	pauses []Pause
	more   int                                   // pauses beyond mostPauses
	open   map[portRef]int                       // of pauses that go on, the index + 1; 0: beyond
	drops  map[portRef]*[network.NumDrops]uint64 // only looked up
	_      [64]byte
}

// newRecorder returns the recorder of a run, nil if nothing is to be kept.
func newRecorder(r *run) (*recorder, error) {
	o := &r.s.Output
	ports, err := portsOf(r.g, "output.ports", o.Ports, mostRecorded)
	if err != nil {
		return nil, err
	}
	flows, err := flowsOf("output.flows", o.Flows, mostFlowsNamed)
	if err != nil {
		return nil, err
	}
	if !o.Record {
		return nil, nil
	}
	if len(ports) == 0 {
		for i := range r.g.Nodes() {
			node := int((i + r.g.Hosts()) % r.g.Nodes()) // switches first
			for p := range r.g.Ports(int32(node)) {
				if len(ports) < recordedPorts {
					ports = append(ports, portRef{node, p})
				}
			}
		}
	}
	c := &recorder{r: r, parts: make([]recorded, r.net.Parts())}
	for _, p := range ports {
		c.ports = append(c.ports, sampledPort{portRef: p})
	}
	for i := range c.parts {
		c.parts[i].open, c.parts[i].drops = map[portRef]int{}, map[portRef]*[network.NumDrops]uint64{}
	}
	if len(flows) == 0 {
		for i := range recordedFlows {
			flows = append(flows, i)
		}
	}
	for _, i := range flows {
		c.flows = append(c.flows, sampledFlow{number: i})
	}
	return c, nil
}

// numbers returns how many a sample has.
func (c *recorder) numbers() int {
	if c == nil {
		return 0
	}
	return 6*len(c.ports) + 4*len(c.flows)
}

// watch has the network tell the recorder what happens.
func (c *recorder) watch(w *network.Watch) {
	if c == nil {
		return
	}
	w.Paused, w.Dropped = c.paused, c.dropped
}

func (c *recorder) paused(now event.Time, node, port int, classes uint8) {
	p, at := &c.parts[c.r.net.PartOf(node)], portRef{node, port}
	if i := p.open[at]; i > 0 {
		p.pauses[i-1].Until = Time(now)
	}
	delete(p.open, at)
	switch {
	case classes == 0:
	case len(p.pauses) == mostPauses:
		p.more++
	default:
		by := int(c.r.g.Ports(int32(node))[port].Peer)
		p.pauses = append(p.pauses, Pause{At: Time(now), Node: node, Port: port, By: by, Classes: classes})
		p.open[at] = len(p.pauses)
	}
}

func (c *recorder) dropped(_ event.Time, node, port int, _ *network.Packet, why network.Drop) {
	p, at := &c.parts[c.r.net.PartOf(node)], portRef{node, port}
	n := p.drops[at]
	if n == nil {
		n = new([network.NumDrops]uint64)
		p.drops[at] = n
	}
	n[why]++
}

// dropsAt returns what was dropped at a port.
func (c *recorder) dropsAt(at portRef) [network.NumDrops]uint64 {
	if n := c.parts[c.r.net.PartOf(at.node)].drops[at]; n != nil {
		return *n
	}
	return [network.NumDrops]uint64{}
}

// look takes a sample.
func (c *recorder) look(s *Samples, flows []*Flow) {
	if c == nil {
		return
	}
	for i := range c.ports {
		c.ports[i].look(c, s)
	}
	for i := range c.flows {
		if f := &c.flows[i]; f.number < len(flows) {
			f.look(s, flows[f.number])
		}
	}
}

func (p *sampledPort) look(c *recorder, s *Samples) {
	if p.sent == nil {
		name := portName(int(c.r.g.Hosts()), p.node, p.port)
		p.sent, p.packets, p.marked = s.add(name, "sent_bytes", 0), s.add(name, "sent_packets", 0), s.add(name, "marked_packets", 0)
		p.dropped, p.paused = s.add(name, "dropped_packets", 0), s.add(name, "paused_ns", 0)
		if p.node >= int(c.r.g.Hosts()) && s.Find(name, "queued_bytes") == nil {
			p.queue = s.add(name, "queued_bytes", 0)
		}
	}
	port := c.r.net.Port(p.node, p.port)
	link, drops := port.Link(), uint64(0)
	for _, n := range c.dropsAt(p.portRef) {
		drops += n
	}
	p.sent.Values, p.packets.Values = append(p.sent.Values, int64(link.Bytes)), append(p.packets.Values, int64(link.Packets))
	p.marked.Values, p.dropped.Values = append(p.marked.Values, int64(port.Queues().Marks)), append(p.dropped.Values, int64(drops))
	p.paused.Values = append(p.paused.Values, int64(link.Paused/event.Nanosecond))
	if p.queue != nil {
		p.queue.Values = append(p.queue.Values, port.QueuedAll())
	}
}

func (w *sampledFlow) look(s *Samples, f *Flow) {
	if w.window == nil {
		name := flowName(w.number)
		w.inFlight, w.window = s.add(name, "in_flight_bytes", -1), s.add(name, "window_bytes", -1)
		w.rate, w.rtt = s.add(name, "rate_bps", -1), s.add(name, "srtt_ns", -1)
	}
	inFlight, window, rate, rtt := int64(-1), int64(-1), int64(-1), int64(-1)
	if (len(f.conns) > 0 || f.stream != nil) && f.End == 0 {
		at := f.sending()
		inFlight, window, rate, rtt = int64(at.InFlight), int64(at.Window), int64(at.Rate), at.RTT.Nanoseconds()
	}
	w.inFlight.Values, w.window.Values = append(w.inFlight.Values, inFlight), append(w.window.Values, window)
	w.rate.Values, w.rtt.Values = append(w.rate.Values, rate), append(w.rtt.Values, rtt)
}

// sending returns how the queue pairs of a flow stand, all together: but for
// the round trip time, which is that of the first.
func (f *Flow) sending() qp.Flow {
	if f.stream != nil {
		return f.sendingTCP()
	}
	at := qp.FlowOf(f.conns[0].x.Core())
	for _, c := range f.conns[1:] {
		more := qp.FlowOf(c.x.Core())
		at.InFlight, at.Window, at.Rate = at.InFlight+more.InFlight, at.Window+more.Window, at.Rate+more.Rate
	}
	return at
}

// ended notes the counters of a flow whose queue pairs are about to go.
func (c *recorder) ended(f *Flow) {
	switch {
	case c == nil:
		return
	case f.stream != nil:
		f.Counters = f.countersTCP()
		return
	case len(f.conns) == 0 || c.r.s.Adapter.Shared && f.Bytes > 0:
		return
	}
	var sum qp.Stats
	for _, conn := range f.conns {
		x, y := conn.x.Stats(), conn.y.Stats()
		sum.Add(&x)
		sum.Add(&y)
	}
	f.Counters = &Counters{Retransmits: sum.Retransmits, SpuriousRetransmits: sum.SpuriousRetransmits, ReadReplays: sum.ReadReplays,
		Timeouts: sum.Timeouts, Probes: sum.Probes, Repairs: sum.Repairs, CNPs: sum.CNPsReceived, Marked: sum.ECNMarked,
		WindowCuts: sum.WindowCuts, RateCuts: sum.RateCuts, Reordered: sum.Reordered, NAKs: sum.NAKSeqReceived}
}

// flowName is what series of a flow are of.
func flowName(number int) string { return "f" + strconv.Itoa(number) }

// leftOut says what of the ports and flows has no samples.
func (c *recorder) leftOut(flows int) (list []string) {
	all := 0
	for i := range c.r.g.Nodes() {
		all += len(c.r.g.Ports(i))
	}
	if n := all - len(c.ports); n > 0 {
		list = append(list, fmt.Sprintf("%d of %d ports have no samples: name those that should with output.ports", n, all))
	}
	sampled := 0
	for i := range c.flows {
		if c.flows[i].number < flows {
			sampled++
		}
	}
	if n := flows - sampled; n > 0 {
		list = append(list, fmt.Sprintf("the windows of %d of %d flows were not sampled: name those that should with output.flows", n, flows))
	}
	return list
}
