package dissect

import (
	"net/netip"

	"github.com/gosoftroce/rocev2/rocev2"
)

// Limits bounds what is kept. Zero values mean the defaults.
type Limits struct {
	// Connections is how many connections are kept; default 8192. For a new
	// one, the one that has been silent for longest is forgotten.
	Connections int
	// Memory is about how many bytes connections may use for packets and
	// messages that are under way, beyond the least of about 12 KiB each;
	// default 64 MiB.
	Memory int
}

const (
	defaultConnections = 8192
	defaultMemory      = 64 << 20
)

// Flows follows the connections of a capture.
type Flows struct {
	limit  int
	budget int // bytes

	streams map[streamKey]end
	cm      map[cmKey]end
	alone   map[hosts][]*Connection // whose second QPN is not known yet, newest last
	count   int                     // connections that were made
	live    int                     // connections that are kept
	forgot  Forgotten
	newest  *Connection
	oldest  *Connection
}

// Forgotten sums up the connections that are not kept any more.
type Forgotten struct {
	Connections int
	Counters    Counters
}

// streamKey says where packets go. For datagrams it has both queue pairs.
type streamKey struct {
	src, dst netip.Addr
	qpn      rocev2.QPN
	srcQPN   rocev2.QPN // of datagrams
	datagram bool
}

type hosts struct{ src, dst netip.Addr }

// end is a connection and the side that sends on it.
type end struct {
	conn *Connection
	from int
}

// NewFlows returns flows without connections.
func NewFlows(l Limits) *Flows {
	f := &Flows{
		limit: l.Connections, budget: l.Memory,
		streams: map[streamKey]end{}, cm: map[cmKey]end{}, alone: map[hosts][]*Connection{},
	}
	if f.limit <= 0 {
		f.limit = defaultConnections
	}
	if f.budget <= 0 {
		f.budget = defaultMemory
	}
	return f
}

// Connections returns the connections that are kept, by their IDs.
func (f *Flows) Connections() []*Connection {
	list := make([]*Connection, 0, f.live)
	for c := f.oldest; c != nil; c = c.newer {
		list = append(list, c)
	}
	sortByID(list)
	return list
}

// Forgotten returns what is known of the others.
func (f *Flows) Forgotten() Forgotten { return f.forgot }

// Add takes the next packet of a capture, and sets its Analysis.
func (f *Flows) Add(p *Packet) {
	p.Analysis = Analysis{At: -1}
	if p.Sealed.Present {
		if !f.sealed(p) {
			return
		}
		defer func() {
			if p.Conn != nil {
				p.Conn.Sealed[p.From].add(p, &f.budget)
			}
		}()
	}
	if p.Err != nil || !p.HasBTH {
		f.malformed(p)
		return
	}
	switch p.info.Service {
	case rocev2.ServiceUD:
		f.datagram(p)
	case rocev2.ServiceCNP:
		if e, ok := f.streams[keyOf(p)]; ok {
			f.on(p, e)
			e.conn.CNPs++
		}
	case rocev2.ServiceVendor: // it says nothing of what others may make of its opcodes
		if e, ok := f.streams[keyOf(p)]; ok {
			f.on(p, e)
		}
	default:
		f.connected(p)
	}
}

// malformed counts a packet that no receiver takes, on the connection that its
// destination tells.
func (f *Flows) malformed(p *Packet) {
	if !p.HasBTH {
		return
	}
	if e, ok := f.streams[keyOf(p)]; ok {
		f.on(p, e)
		e.conn.Malformed++
	}
}

func keyOf(p *Packet) streamKey {
	k := streamKey{src: p.IP.Src, dst: p.IP.Dst, qpn: p.Wire.BTH.DestQPN}
	if p.Has(rocev2.HasDETH) {
		k.srcQPN, k.datagram = p.Wire.DETH.SrcQPN, true
	}
	return k
}

// on notes a packet on its connection.
func (f *Flows) on(p *Packet, e end) {
	c := e.conn
	p.Conn, p.From = c, e.from
	p.Index = e.from
	if p.info != nil && p.info.Role == rocev2.RoleResponse {
		p.Index = 1 - e.from
	}
	c.First, c.Last = min(c.First, p.Offset), max(c.Last, p.Offset)
	c.ports[e.from] = p.SrcPort
	c.seen[e.from] = true
	if p.IP.ECN() == 3 {
		c.Marked++
	}
	if p.ICRC == ICRCBad {
		c.BadICRC++
	}
	f.touch(c)
}

// connected takes a packet of RC, XRC or UC.
func (f *Flows) connected(p *Packet) {
	key := keyOf(p)
	e, known := f.streams[key]
	if !known && p.ICRC == ICRCBad {
		return // the address may be what is wrong
	}
	if known && f.restarts(e, p) {
		known = false
		f.unmap(e.conn)
		f.notLonely(e.conn)
	}
	if !known {
		if e = f.pair(p); e.conn == nil {
			e = end{f.newConnection(p), 0}
			e.conn.B.QPN, e.conn.B.Known = key.qpn, true
			f.lonely(e.conn)
		}
		f.lead(key, e)
	} else if !e.conn.End(e.from).Known && e.conn.State == StateUnmanaged {
		if to := f.pair(p); to.conn != nil && to.conn != e.conn {
			f.merge(e.conn, to)
			e = to
			f.lead(key, e)
		}
	}
	f.on(p, e)
	if p.ICRC == ICRCBad {
		return // receivers drop it
	}
	c := e.conn
	if n := mtuOf(p); n > c.MTU {
		c.MTU = n
	}
	if p.info.Role == rocev2.RoleResponse {
		f.response(c, p)
	} else {
		f.request(c, p)
	}
}

// mtuOf returns the path MTU, if the packet tells it: a packet that others of
// its message follow is full.
func mtuOf(p *Packet) int {
	if p.info.Payload == rocev2.PayloadMTU {
		if _, err := rocev2.MTUOf(p.PayloadLen); err == nil {
			return p.PayloadLen
		}
	}
	return 0
}

// restarts reports whether a packet is of another connection than the one that
// had its queue pair before: its PSN is far from what is expected.
func (f *Flows) restarts(e end, p *Packet) bool {
	if p.info.Role != rocev2.RoleRequest || !p.info.First || p.ICRC != ICRCGood {
		return false
	}
	s := &e.conn.Requests[e.from]
	if !s.started || s.looseRead {
		return false
	}
	d := p.Wire.BTH.PSN.Sub(s.next)
	return d > farAway || d < -farAway && s.messages.find(p.Wire.BTH.PSN) == nil
}

// maxCandidates is how many connections are looked at to find the one that a
// packet answers.
const maxCandidates = 64

// pair finds the connection in the other direction whose sender a packet goes
// to. It is nil if that is not certain.
func (f *Flows) pair(p *Packet) end {
	response := p.info.Role == rocev2.RoleResponse
	if !response && p.info.Service != rocev2.ServiceUC {
		return end{}
	}
	list := f.alone[hosts{p.IP.Dst, p.IP.Src}]
	var found, samePort []*Connection
	for _, c := range list[max(0, len(list)-maxCandidates):] {
		if c.Service != p.info.Service || c.A.Known {
			continue
		}
		if s := &c.Requests[0]; response && (!s.started || !s.outstanding(p.Wire.BTH.PSN)) {
			continue
		}
		found = append(found, c)
		if c.ports[0] == p.SrcPort {
			samePort = append(samePort, c)
		}
	}
	// Linux uses one source port for both directions of a connection.
	if len(samePort) == 1 {
		found = samePort
	}
	if len(found) != 1 {
		return end{}
	}
	c := found[0]
	c.A.QPN, c.A.Known = p.Wire.BTH.DestQPN, true
	f.notLonely(c)
	return end{c, 1}
}

// outstanding reports whether a response with this PSN may come now. What was
// acknowledged may be acknowledged again.
func (s *Side) outstanding(p rocev2.PSN) bool {
	const again = 256
	return p.Before(s.next) && p.Sub(s.una) > -again && !p.Before(s.lowest())
}

// lowest returns the first PSN of which the side knows.
func (s *Side) lowest() rocev2.PSN {
	if list := s.messages.all(); len(list) > 0 {
		return list[0].First
	}
	return s.una
}

// datagram takes a UD packet.
func (f *Flows) datagram(p *Packet) {
	key := keyOf(p)
	if key.qpn == rocev2.GSIQPN || key.qpn == 0 {
		if f.management(p) {
			return
		}
	}
	e, known := f.streams[key]
	if !known {
		back := streamKey{src: key.dst, dst: key.src, qpn: key.srcQPN, srcQPN: key.qpn, datagram: true}
		if other, ok := f.streams[back]; ok {
			e = end{other.conn, 1 - other.from}
		} else if e = f.resolved(p); e.conn == nil {
			e = end{f.newConnection(p), 0}
			e.conn.A.QPN, e.conn.A.Known = key.srcQPN, true
			e.conn.B.QPN, e.conn.B.Known = key.qpn, true
		}
		f.lead(key, e)
	}
	f.on(p, e)
	if p.ICRC == ICRCBad {
		return
	}
	s := &e.conn.Requests[e.from]
	s.Packets++
	s.Bytes += uint64(p.Length)
	s.Payload += uint64(p.PayloadLen)
	s.Messages++
	s.Completed++
	p.HasMessage, p.At = true, 0
	p.Message = Message{
		Number: s.Messages, Operation: rocev2.OpSend, First: p.Wire.BTH.PSN, Last: p.Wire.BTH.PSN, Whole: true,
		Length: int64(p.PayloadLen), Started: p.Offset, Completed: p.Offset, Done: true,
	}
}

// resolved finds the connection whose SIDR found the queue pair that a datagram
// goes to.
func (f *Flows) resolved(p *Packet) end {
	list := f.alone[hosts{p.IP.Src, p.IP.Dst}]
	for i := len(list) - 1; i >= max(0, len(list)-maxCandidates); i-- {
		c := list[i]
		if c.Service == rocev2.ServiceUD && c.B.Known && c.B.QPN == p.Wire.BTH.DestQPN && !c.A.Known {
			c.A.QPN, c.A.Known = p.Wire.DETH.SrcQPN, true
			f.notLonely(c)
			return end{c, 0}
		}
	}
	return end{}
}
