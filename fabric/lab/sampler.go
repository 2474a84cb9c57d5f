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
	r     *run
	step  Time
	most  int // samples that are kept
	times []Time
	ports []portRef  // all
	queue [][]int64  // by time and port, the first mostWatched: bytes queued
	flows [][]uint64 // by time: payload that has arrived, of the first flows without an end
	total []uint64   // by time: of all queue pairs
	xoffs []uint64

	area []uint64 // of each port when measuring began
	from Time

	delivered uint64 // packets, at the last look
	moved     Time   // when that was more than before
}

// portRef is a port of a switch.
type portRef struct{ node, port int }

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
	m.most = min(max(mostNumbers/(len(m.watched())+1), fewSamples), mostSamples)
	return m
}

// watched returns the ports whose queues are sampled.
func (m *sampler) watched() []portRef { return m.ports[:min(len(m.ports), mostWatched)] }

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
	if len(m.times) == m.most {
		m.thin()
	}
	m.times = append(m.times, now)
	if d := m.r.net.Totals().Delivered; d != m.delivered {
		m.delivered, m.moved = d, now
	}
	row := make([]int64, len(m.watched()))
	for i, p := range m.watched() {
		port := m.r.net.Port(p.node, p.port)
		for c := range 8 {
			row[i] += port.Queued(c)
		}
	}
	m.queue = append(m.queue, row)
	var got []uint64
	for _, f := range m.r.flows {
		if f.Bytes == 0 && len(got) < mostLines {
			got = append(got, f.received())
		}
	}
	m.flows = append(m.flows, got)
	m.total = append(m.total, m.r.a.Stats().RxBytes)
	m.xoffs = append(m.xoffs, m.r.net.Totals().XOFFs)
}

// thin drops every other sample.
func (m *sampler) thin() {
	half := len(m.times) / 2
	for i := range half {
		k := 2*i + 1
		m.times[i], m.queue[i], m.flows[i], m.total[i], m.xoffs[i] = m.times[k], m.queue[k], m.flows[k], m.total[k], m.xoffs[k]
	}
	m.times, m.queue, m.flows, m.total, m.xoffs = m.times[:half], m.queue[:half], m.flows[:half], m.total[:half], m.xoffs[:half]
	m.step *= 2
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
	index      int   // of the sampler
}

// queues returns the queues of all ports that ever had one, the longest first.
func (m *sampler) queues() (all []Queue) {
	while := uint64(Time(m.r.net.Now()) - m.from)
	for i, p := range m.ports {
		port := m.r.net.Port(p.node, p.port)
		q := Queue{Node: p.node, Port: p.port, Max: port.Queues().MaxBytes, index: i}
		if while > 0 {
			q.Mean = scaled(port.Area()-m.area[i], 1<<20, while)
		}
		if q.Max > 0 {
			all = append(all, q)
		}
	}
	return all
}
