package lab

// mostSamples is how many samples a run without a known end keeps: then every
// other one is dropped, and they are taken half as often.
const (
	mostSamples = 1024
	fewSamples  = 64
	mostNumbers = 1 << 21 // ports times samples
	samples     = 500
	mostWatched = 1 << 14 // ports whose queues are sampled
	mostLines   = 16      // flows that have a line of their own
)

// sampler looks at a network between events, which changes nothing in it.
type sampler struct {
	r       *run
	step    Time
	most    int // samples that are kept
	samples Samples
	ports   []portRef // all of switches
	watched []*Series // of the first mostWatched ports
	places  [][]int   // of these, by the part of the network that they are in
	flows   []*Series // of the first flows without an end
	total   *Series
	xoffs   *Series

	area []uint64 // of each port when measuring began
	from Time

	delivered uint64 // packets, at the last look
	moved     Time   // when that was more than before
}

func newSampler(r *run) *sampler {
	m := &sampler{r: r, step: r.s.Every}
	if m.step == 0 {
		m.step = max(r.s.Until/samples, us)
	}
	for s := r.g.Hosts(); s < r.g.Nodes(); s++ {
		for p := range r.g.Ports(s) {
			m.ports = append(m.ports, portRef{int(s), p})
		}
	}
	m.area = make([]uint64, len(m.ports))
	m.total, m.xoffs = m.samples.add("", "received_bytes", 0), m.samples.add("", "pauses", 0)
	hosts := int(r.g.Hosts())
	m.places = make([][]int, r.net.Parts())
	for i, p := range m.ports[:min(len(m.ports), mostWatched)] {
		m.watched = append(m.watched, m.samples.add(portName(hosts, p.node, p.port), "queued_bytes", 0))
		part := r.net.PartOf(p.node)
		m.places[part] = append(m.places[part], i)
	}
	m.most = min(max(mostNumbers/(len(m.watched)+1+r.rec.numbers()), fewSamples), mostSamples)
	return m
}

// warm has measuring begin.
func (m *sampler) warm() {
	m.from = Time(m.r.net.Now())
	m.r.net.ResetMax()
	for i, p := range m.ports {
		m.area[i] = m.r.net.Port(p.node, p.port).Area()
	}
}

// look takes a sample.
func (m *sampler) look(now Time) {
	if len(m.samples.Times) == m.most {
		m.samples.thin()
		m.step *= 2
	}
	totals := m.r.net.Totals()
	if d := totals.Delivered; d != m.delivered {
		m.delivered, m.moved = d, now
	}
	m.lookAtFlows()
	m.r.net.Apart(m.lookAtQueues)
	received := m.r.a.Received()
	if m.r.tcp != nil {
		received += m.r.tcp.Stats().RxBytes
	}
	m.total.Values = append(m.total.Values, int64(received))
	m.xoffs.Values = append(m.xoffs.Values, int64(totals.XOFFs))
	m.r.rec.look(&m.samples, m.r.flows)
	m.samples.Times = append(m.samples.Times, now)
}

// lookAtQueues notes what is queued in a part of the network.
func (m *sampler) lookAtQueues(part int) {
	for _, i := range m.places[part] {
		q, p := m.watched[i], m.ports[i]
		q.Values = append(q.Values, m.r.net.Port(p.node, p.port).QueuedAll())
	}
}

// lookAtFlows notes what has arrived of the first flows without an end.
func (m *sampler) lookAtFlows() {
	n := 0
	for i, f := range m.r.flows {
		if n == mostLines {
			return
		}
		if f.Bytes != 0 {
			continue
		}
		if n == len(m.flows) {
			m.flows = append(m.flows, m.samples.add(flowName(i), "received_bytes", 0))
		}
		m.flows[n].Values = append(m.flows[n].Values, int64(f.received()))
		n++
	}
}

// stillFor is for how long no packet arrives in a network that stands still:
// pauses that end take less.
const stillFor = 1000 * us

// still returns since when no packet has arrived, where some wait in switches
// that are paused or have no credits: a deadlock, or a host that pauses for
// ever. 0 means that the network moves, or is empty. It looks between samples
// only.
func (m *sampler) still() Time {
	n := m.r.net
	if n.Totals().Inside() == 0 || Time(n.Now())-m.moved < max(stillFor, 2*m.step) {
		return 0
	}
	for _, p := range m.ports {
		port := n.Port(p.node, p.port)
		for c := range 8 {
			if (port.Paused()|port.Held())>>c&1 != 0 && port.Queued(c) > 0 {
				return max(m.moved, 1)
			}
		}
	}
	return 0
}

// Queue is what a switch's port has had queued.
type Queue struct {
	Node, Port int   // the node is the number of hosts + that of the switch
	Mean, Max  int64 // bytes on the wire, since Warm
}

// queues returns the queues of all ports that ever had one, the longest first.
func (m *sampler) queues() (all []Queue) {
	while := uint64(Time(m.r.net.Now()) - m.from)
	for i, p := range m.ports {
		port := m.r.net.Port(p.node, p.port)
		q := Queue{Node: p.node, Port: p.port, Max: port.Queues().MaxBytes}
		if while > 0 {
			q.Mean = scaled(port.Area()-m.area[i], 1<<20, while)
		}
		if q.Max > 0 {
			all = append(all, q)
		}
	}
	return all
}
