package dissect

import (
	"net/netip"

	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// management adds the fields of a MAD.
func (f *fields) management(m *Management) {
	if !m.Present {
		return
	}
	h := &m.Header
	f.number("infiniband.mad.baseversion", uint64(h.BaseVersion))
	f.number("infiniband.mad.mgmtclass", uint64(h.Class))
	f.number("infiniband.mad.classversion", uint64(h.ClassVersion))
	f.number("infiniband.mad.method", uint64(h.Method))
	f.number("infiniband.mad.status", uint64(h.Status))
	f.number("infiniband.mad.classspecific", uint64(h.ClassSpecific))
	f.add("infiniband.mad.transactionid", Hex(h.TransactionID))
	f.number("infiniband.mad.attributeid", uint64(h.Attribute))
	f.number("infiniband.mad.attributemodifier", uint64(h.Modifier))
	switch msg := m.Message.(type) {
	case *mad.REQ:
		f.req(m, msg)
	case *mad.REP:
		f.rep(msg)
	case *mad.RTU:
		f.pair("rtu", msg.LocalID, msg.RemoteID, msg.Private)
	case *mad.REJ:
		f.rej(msg)
	case *mad.DREQ:
		f.pair("dreq", msg.LocalID, msg.RemoteID, msg.Private)
		f.number("infiniband.cm.req.remoteqpneecn", uint64(msg.RemoteQPN)) // tshark's name
	case *mad.DREP:
		f.pair("drsp", msg.LocalID, msg.RemoteID, msg.Private)
	case *mad.SIDRREQ, *mad.SIDRREP:
		f.sidr(m)
	case *mad.MRA:
		f.own("mra", msg.LocalID, msg.RemoteID)
		f.add("rocev2.cm.mra.message", msg.Message.String())
		f.number("rocev2.cm.mra.servicetimeout", uint64(msg.ServiceTimeout))
	case *mad.LAP:
		f.own("lap", msg.LocalID, msg.RemoteID)
		f.number("rocev2.cm.lap.remoteqpn", uint64(msg.RemoteQPN))
	case *mad.APR:
		f.own("apr", msg.LocalID, msg.RemoteID)
		f.number("rocev2.cm.apr.status", uint64(msg.Status))
	}
}

// pair adds what tshark has of a message with both communication IDs.
func (f *fields) pair(name string, local, remote mad.CommID, private []byte) {
	f.number("infiniband.cm."+name+".localcommid", uint64(local))
	f.number("infiniband.cm."+name+".remotecommid", uint64(remote))
	f.add("infiniband.cm."+name+".private", private)
}

// own adds the communication IDs of a message that tshark does not decode.
func (f *fields) own(name string, local, remote mad.CommID) {
	f.number("rocev2.cm."+name+".localcommid", uint64(local))
	f.number("rocev2.cm."+name+".remotecommid", uint64(remote))
}

func bit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

func (f *fields) req(m *Management, r *mad.REQ) {
	const prefix = "infiniband.cm.req"
	n := func(name string, v uint64) { f.number(prefix+"."+name, v) }
	f.number(prefix, uint64(r.LocalID))
	f.add(prefix+".serviceid", Hex(r.ServiceID))
	f.add(prefix+".localcaguid", Hex(r.LocalGUID))
	n("localqkey", uint64(r.LocalQKey))
	n("localqpn", uint64(r.LocalQPN))
	n("responderres", uint64(r.ResponderResources))
	n("localeecn", uint64(r.LocalEECN))
	n("initdepth", uint64(r.InitiatorDepth))
	n("remoteeecn", uint64(r.RemoteEECN))
	n("remoteresptout", uint64(r.RemoteResponseTimeout))
	n("transpsvctype", uint64(r.Transport))
	n("e2eflowctrl", bit(r.FlowControl))
	n("startpsn", uint64(r.StartingPSN))
	n("localresptout", uint64(r.LocalResponseTimeout))
	n("retrcount", uint64(r.RetryCount))
	n("pkey", uint64(r.PKey))
	n("pppmtu", uint64(r.PathMTU))
	n("rdcexist", bit(r.RDCExists))
	n("rnrretrcount", uint64(r.RNRRetryCount))
	n("maxcmretr", uint64(r.MaxRetries))
	n("srq", bit(r.SRQ))
	n("ext_transport", uint64(r.ExtendedTransport))
	f.number("rocev2.cm.req.vendorid", uint64(r.ECE.VendorID))
	f.path(prefix+".prim_", &r.Primary)
	if r.Alternate.LocalLID != 0 {
		f.path(prefix+".alt_", &r.Alternate)
	}
	f.ip(prefix, m, r.Private)
	if _, _, ok := r.ServiceID.Port(); ok {
		f.add("rocev2.cm.service", purpose(r.ServiceID))
	}
}

func (f *fields) path(prefix string, p *mad.Path) {
	n := func(name string, v uint64) { f.number(prefix+name, v) }
	n("locallid", uint64(p.LocalLID))
	n("remotelid", uint64(p.RemoteLID))
	f.gid(prefix+"localgid", p.LocalGID)
	f.gid(prefix+"remotegid", p.RemoteGID)
	n("flowlabel", uint64(p.FlowLabel))
	n("pktrate", uint64(p.PacketRate))
	n("tfcclass", uint64(p.TrafficClass))
	n("hoplim", uint64(p.HopLimit))
	n("sl", uint64(p.SL))
	n("subnetlocal", bit(p.SubnetLocal))
	n("localacktout", uint64(p.AckTimeout))
}

// gid adds a GID: under a name of its own if it stands for an IPv4 address.
func (f *fields) gid(name string, a netip.Addr) {
	if a.Is4() {
		name += "_ipv4"
	}
	if a.IsValid() {
		f.add(name, a)
	}
}

// ip adds what RDMA-CM says in front of the private data, and that data.
func (f *fields) ip(prefix string, m *Management, private []byte) {
	if !m.HasIP {
		f.add(prefix+".private", private)
		return
	}
	prefix += ".ip_cm."
	version := uint64(6)
	if m.IP.Source.Is4() {
		version = 4
	}
	f.number(prefix+"ipv", version)
	f.number(prefix+"sport", uint64(m.IP.SourcePort))
	digit := itoa(version)
	f.add(prefix+"sip"+digit, m.IP.Source)
	f.add(prefix+"dip"+digit, m.IP.Destination)
	f.add(prefix+"private", m.Private)
}

func (f *fields) rep(r *mad.REP) {
	const prefix = "infiniband.cm.rep"
	n := func(name string, v uint64) { f.number(prefix+"."+name, v) }
	f.number(prefix, uint64(r.LocalID))
	n("remotecommid", uint64(r.RemoteID))
	n("localqkey", uint64(r.LocalQKey))
	n("localqpn", uint64(r.LocalQPN))
	n("localeecn", uint64(r.LocalEECN))
	n("startpsn", uint64(r.StartingPSN))
	n("respres", uint64(r.ResponderResources))
	n("initdepth", uint64(r.InitiatorDepth))
	n("tgtackdelay", uint64(r.TargetAckDelay))
	n("failoveracc", uint64(r.FailoverAccepted))
	n("e2eflowctrl", bit(r.FlowControl))
	n("rnrretrcount", uint64(r.RNRRetryCount))
	n("srq", bit(r.SRQ))
	f.add(prefix+".localcaguid", Hex(r.LocalGUID))
	f.number("rocev2.cm.rep.vendorid", uint64(r.ECE.VendorID))
	f.add(prefix+".private", r.Private)
}

func (f *fields) rej(r *mad.REJ) {
	f.pair("rej", r.LocalID, r.RemoteID, r.Private)
	f.number("infiniband.cm.rej.msgrej", uint64(r.Message))
	f.number("infiniband.cm.rej.rejinfolen", uint64(len(r.ARI)))
	f.number("infiniband.cm.rej.reason", uint64(r.Reason))
	f.add("rocev2.cm.rej.ari", r.ARI)
	f.add("rocev2.cm.rej.text", r.Reason.String())
}

// sidr adds the fields of service ID resolution, which tshark does not decode.
func (f *fields) sidr(m *Management) {
	switch r := m.Message.(type) {
	case *mad.SIDRREQ:
		f.number("rocev2.cm.sidr_req.requestid", uint64(r.RequestID))
		f.add("rocev2.cm.sidr_req.serviceid", Hex(r.ServiceID))
		f.number("rocev2.cm.sidr_req.pkey", uint64(r.PKey))
		f.ip("rocev2.cm.sidr_req", m, r.Private)
		f.add("rocev2.cm.service", purpose(r.ServiceID))
	case *mad.SIDRREP:
		f.number("rocev2.cm.sidr_rep.requestid", uint64(r.RequestID))
		f.number("rocev2.cm.sidr_rep.status", uint64(r.Status))
		f.number("rocev2.cm.sidr_rep.qpn", uint64(r.QPN))
		f.number("rocev2.cm.sidr_rep.q_key", uint64(r.QKey))
		f.add("rocev2.cm.sidr_rep.serviceid", Hex(r.ServiceID))
		f.add("rocev2.cm.sidr_rep.private", r.Private)
	}
}
