package dissect

import (
	"net/netip"
	"strings"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// Management is a management datagram (MAD).
type Management struct {
	Present bool // the packet is one
	Header  mad.Header
	// Message is what a MAD of connection management says; nil for other
	// classes, and for a message that is malformed: Err says why.
	Message mad.Message
	Err     error
	// IP is what RDMA-CM puts before the private data of REQ and SIDR_REQ,
	// if HasIP, and Private is the private data after it.
	IP      mad.IPHeader
	HasIP   bool
	Private []byte
}

// classes of management (IBTA 13.4.4).
var classes = map[uint8]string{
	0x01: "SubnLIDRouted", 0x81: "SubnDirectedRoute", 0x03: "SubnAdm", 0x04: "Perf", 0x05: "BM", 0x06: "DevMgt",
	0x07: "CM", 0x08: "SNMP", 0x10: "DevAdm", 0x11: "BootMgt", 0x12: "BIS", 0x21: "CongestionMgt",
}

const classCM = 0x07

// Class returns the name of a MAD's management class.
func (m *Management) Class() string {
	if name, ok := classes[m.Header.Class]; ok {
		return name
	}
	if c := m.Header.Class; c >= 0x09 && c <= 0x0f || c >= 0x30 && c <= 0x4f {
		return "vendor"
	}
	return "unknown"
}

// Name returns the name of a message of connection management, or of the class
// of another MAD.
func (m *Management) Name() string {
	if m.Header.Class == classCM && m.Header.Attribute.Valid() {
		return m.Header.Attribute.String()
	}
	return m.Class()
}

// parse decodes a MAD.
func (m *Management) parse(b []byte) {
	*m = Management{}
	if m.Header.Parse(b) != nil {
		return
	}
	m.Present = true
	if m.Header.Class != classCM {
		return
	}
	if _, m.Message, m.Err = mad.Parse(b); m.Err != nil {
		m.Message = nil
		return
	}
	switch msg := m.Message.(type) {
	case *mad.REQ:
		m.withIP(msg.ServiceID, msg.Private)
	case *mad.SIDRREQ:
		m.withIP(msg.ServiceID, msg.Private)
	case *mad.REP:
		m.Private = msg.Private
	case *mad.RTU:
		m.Private = msg.Private
	case *mad.REJ:
		m.Private = msg.Private
	case *mad.MRA:
		m.Private = msg.Private
	case *mad.DREQ:
		m.Private = msg.Private
	case *mad.DREP:
		m.Private = msg.Private
	case *mad.SIDRREP:
		m.Private = msg.Private
	case *mad.LAP:
		m.Private = msg.Private
	case *mad.APR:
		m.Private = msg.Private
	}
}

// withIP takes the IP header of RDMA-CM off private data, if the service is
// one of RDMA-CM and the header is there.
func (m *Management) withIP(id mad.ServiceID, private []byte) {
	m.Private = private
	if _, _, ok := id.Port(); !ok {
		return
	}
	if data, err := m.IP.Parse(private); err == nil {
		m.HasIP, m.Private = true, data
	}
}

// Purpose is the short name of a service, such as tcp:7471.
func purpose(id mad.ServiceID) string {
	if space, port, ok := id.Port(); ok {
		return strings.ToLower(space.String()) + ":" + itoa(uint64(port))
	}
	return "service " + hexNumber(uint64(id))
}

// cmKey is a communication ID of a host.
type cmKey struct {
	addr netip.Addr
	id   mad.CommID
	sidr bool
}

// management takes a packet to QP 0 or 1. It returns false if that is no
// message of connection management that belongs to a connection.
func (f *Flows) management(p *Packet) bool {
	if p.ICRC == ICRCBad || p.Mgmt.Message == nil {
		return false
	}
	e, fresh := f.conversation(p)
	if e.conn == nil {
		return false
	}
	f.on(p, e)
	p.Index = e.from
	c := e.conn
	c.Management++
	bit := uint32(1) << (uint(p.Mgmt.Header.Attribute) & 15 << 1) << e.from
	if c.messages&bit != 0 && !fresh {
		p.Flags |= Retransmitted
	}
	c.messages |= bit
	f.learn(e, p)
	return true
}

// conversation finds the connection of a message, and reports whether it is a
// new one.
func (f *Flows) conversation(p *Packet) (e end, fresh bool) {
	src, dst := p.IP.Src, p.IP.Dst
	switch m := p.Mgmt.Message.(type) {
	case *mad.REQ:
		return f.asked(p, cmKey{src, m.LocalID, false}, m.LocalQPN, serviceOf(m), m.ServiceID)
	case *mad.SIDRREQ:
		return f.asked(p, cmKey{src, m.RequestID, true}, 0, rocev2.ServiceUD, m.ServiceID)
	case *mad.SIDRREP:
		e = f.cm[cmKey{dst, m.RequestID, true}]
		e.from = 1 - e.from
		return e, false
	default:
		local, remote := ids(m)
		if e, ok := f.cm[cmKey{dst, remote, false}]; ok && remote != 0 && e.conn.End(e.from).Addr == dst {
			return end{e.conn, 1 - e.from}, false
		}
		return f.cm[cmKey{src, local, false}], false
	}
}

// ids returns the communication IDs of a message: the sender's first.
func ids(m mad.Message) (local, remote mad.CommID) {
	switch m := m.(type) {
	case *mad.REP:
		return m.LocalID, m.RemoteID
	case *mad.RTU:
		return m.LocalID, m.RemoteID
	case *mad.REJ:
		return m.LocalID, m.RemoteID
	case *mad.MRA:
		return m.LocalID, m.RemoteID
	case *mad.DREQ:
		return m.LocalID, m.RemoteID
	case *mad.DREP:
		return m.LocalID, m.RemoteID
	case *mad.LAP:
		return m.LocalID, m.RemoteID
	case *mad.APR:
		return m.LocalID, m.RemoteID
	}
	return 0, 0
}

func serviceOf(m *mad.REQ) rocev2.Service {
	switch m.Transport {
	case mad.TransportUC:
		return rocev2.ServiceUC
	case mad.TransportExtended:
		return rocev2.ServiceXRC
	}
	return rocev2.ServiceRC
}

// asked finds or makes the connection of a REQ or SIDR_REQ.
func (f *Flows) asked(p *Packet, k cmKey, qpn rocev2.QPN, service rocev2.Service, id mad.ServiceID) (e end, fresh bool) {
	e, ok := f.cm[k]
	if ok && e.from == 0 && e.conn.B.Addr == p.IP.Dst && e.conn.A.QPN == qpn && e.conn.State < StateRejected {
		return e, false
	}
	c := f.newConnection(p)
	c.Service, c.Purpose, c.State = service, purpose(id), StateRequested
	if service != rocev2.ServiceUD {
		c.A.QPN, c.A.Known = qpn, true
		f.lead(streamKey{src: p.IP.Dst, dst: p.IP.Src, qpn: qpn}, end{c, 1})
	}
	f.identify(k, end{c, 0})
	return end{c, 0}, true
}

// learn takes from a message what it says of its connection.
func (f *Flows) learn(e end, p *Packet) {
	c := e.conn
	switch m := p.Mgmt.Message.(type) {
	case *mad.REQ:
		if n := rocev2.MTU(m.PathMTU).Bytes(); n > 0 {
			c.MTU = n
		}
		if s := &c.Requests[1]; !s.started && m.Transport != mad.TransportUC {
			s.begin(m.StartingPSN)
		}
	case *mad.REP:
		if e.from != 1 || c.State > StateEstablished {
			return
		}
		c.State = max(c.State, StateReplied)
		if !c.B.Known {
			c.B.QPN, c.B.Known = m.LocalQPN, true
			f.lead(streamKey{src: c.A.Addr, dst: c.B.Addr, qpn: m.LocalQPN}, end{c, 0})
		}
		f.identify(cmKey{p.IP.Src, m.LocalID, false}, end{c, 1})
		if s := &c.Requests[0]; !s.started && c.Service != rocev2.ServiceUC {
			s.begin(m.StartingPSN)
		}
	case *mad.RTU:
		c.State = max(c.State, StateEstablished)
	case *mad.REJ:
		c.State = max(c.State, StateRejected)
	case *mad.DREQ:
		c.State = max(c.State, StateDisconnecting)
	case *mad.DREP:
		c.State = StateDisconnected
	case *mad.SIDRREP:
		if c.State = StateRejected; m.Status == mad.SIDRSuccess {
			c.State = StateEstablished
			if !c.B.Known {
				c.B.QPN, c.B.Known = m.QPN, true
				f.lonely(c)
			}
		}
	}
}
