package dissect

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"time"

	"github.com/gosoftroce/rocev2/rocev2"
)

// Field is a field of a packet. Its name is tshark's, if tshark has the field,
// and begins with "rocev2." if it is from the analysis. Its value is a uint64,
// a Hex, a bool, a float64, a string, a netip.Addr or a []byte. It stays valid
// when its packet does not.
type Field struct {
	Name  string
	Value any
}

// Hex is a number of 64 bits, which JSON has as a text: many readers of JSON
// have only 53 bits.
type Hex uint64

// MarshalJSON returns the number as tshark writes it.
func (h Hex) MarshalJSON() ([]byte, error) { return fmt.Appendf(nil, `"0x%016x"`, uint64(h)), nil }

// fields collects them.
type fields []Field

// add adds a field. Bytes are copied: those of the packet do not last.
func (f *fields) add(name string, v any) {
	if b, ok := v.([]byte); ok {
		v = bytes.Clone(b)
	}
	*f = append(*f, Field{name, v})
}

// number adds an integer.
func (f *fields) number(name string, v uint64) { f.add(name, v) }

func (f *fields) flag(name string, v bool) { f.add(name, v) }

// Fields returns what is known of a packet, from the outside to the inside.
func Fields(p *Packet) []Field {
	f := make(fields, 0, 64)
	f.number("frame.number", p.Number)
	f.add("frame.time_epoch", fmt.Sprintf("%d.%09d", p.Time.Unix(), p.Time.Nanosecond()))
	f.add("frame.time_relative", p.Offset.Seconds())
	if p.VLAN >= 0 {
		f.number("vlan.id", uint64(p.VLAN))
	}
	f.network(p)
	f.number("udp.srcport", uint64(p.SrcPort))
	f.number("udp.dstport", rocev2.UDPPort)
	f.number("udp.length", uint64(8+max(p.Length, p.Sealed.Length)))
	f.sealed(&p.Sealed)
	f.bth(p)
	if p.Err == nil {
		f.extended(p)
		f.management(&p.Mgmt)
		if p.ICRC != ICRCUnknown {
			f.number("infiniband.invariant.crc", uint64(p.Value))
		}
	}
	f.analysis(p)
	return f
}

func (f *fields) network(p *Packet) {
	h := &p.IP
	if h.Src.Is4() {
		f.add("ip.src", h.Src)
		f.add("ip.dst", h.Dst)
		f.number("ip.dsfield.dscp", uint64(h.Class>>2))
		f.number("ip.dsfield.ecn", uint64(h.ECN()))
		f.number("ip.id", uint64(h.ID))
		f.flag("ip.flags.df", h.DF)
		f.number("ip.ttl", uint64(h.HopLimit))
		return
	}
	f.add("ipv6.src", h.Src)
	f.add("ipv6.dst", h.Dst)
	f.number("ipv6.tclass.dscp", uint64(h.Class>>2))
	f.number("ipv6.tclass.ecn", uint64(h.ECN()))
	f.number("ipv6.flow", uint64(h.FlowLabel))
	f.number("ipv6.hlim", uint64(h.HopLimit))
}

func (f *fields) bth(p *Packet) {
	if !p.HasBTH {
		return
	}
	h := &p.Wire.BTH
	f.number("infiniband.bth.opcode", uint64(h.Opcode))
	f.flag("infiniband.bth.se", h.Solicited)
	f.flag("infiniband.bth.m", h.MigReq)
	f.number("infiniband.bth.padcnt", uint64(h.PadCount))
	f.number("infiniband.bth.tver", uint64(h.Version))
	f.number("infiniband.bth.p_key", uint64(h.PKey))
	f.flag("rocev2.bth.fecn", h.FECN)
	f.flag("rocev2.bth.becn", h.BECN)
	f.number("infiniband.bth.destqp", uint64(h.DestQPN))
	f.flag("infiniband.bth.a", h.AckReq)
	f.number("infiniband.bth.reserved7", uint64(h.Reserved7))
	f.number("infiniband.bth.psn", uint64(h.PSN))
}

func (f *fields) extended(p *Packet) {
	w, h := &p.Wire, p.info.Headers
	if h.Has(rocev2.HasXRCETH) {
		f.number("rocev2.xrceth.srqn", uint64(w.XRCETH.SRQN))
	}
	if h.Has(rocev2.HasDETH) {
		f.number("infiniband.deth.q_key", uint64(w.DETH.QKey))
		f.number("infiniband.deth.srcqp", uint64(w.DETH.SrcQPN))
	}
	if h.Has(rocev2.HasFETH) {
		f.number("rocev2.feth.type", uint64(w.FETH.Type))
		f.number("rocev2.feth.level", uint64(w.FETH.Level))
	}
	if h.Has(rocev2.HasRETH) {
		f.add("infiniband.reth.va", Hex(w.RETH.VA))
		f.number("infiniband.reth.r_key", uint64(w.RETH.RKey))
		f.number("infiniband.reth.dmalen", uint64(w.RETH.Length))
	}
	if h.Has(rocev2.HasAtomicETH) {
		// tshark 4.0 has these two under the name of the RETH.
		f.add("infiniband.reth.va", Hex(w.AtomicETH.VA))
		f.number("infiniband.reth.r_key", uint64(w.AtomicETH.RKey))
		f.add("infiniband.atomiceth.swapdt", Hex(w.AtomicETH.SwapAdd))
		f.add("infiniband.atomiceth.cmpdt", Hex(w.AtomicETH.Compare))
	}
	if h.Has(rocev2.HasAETH) {
		f.aeth(w.AETH)
	}
	if h.Has(rocev2.HasAtomicAckETH) {
		f.add("infiniband.atomicacketh.origremdt", Hex(w.AtomicAck.Original))
	}
	if h.Has(rocev2.HasImmDt) {
		f.add("infiniband.immdt", be.AppendUint32(nil, w.Imm))
	}
	if h.Has(rocev2.HasIETH) {
		f.add("infiniband.ieth", be.AppendUint32(nil, w.IETH.RKey))
	}
}

func (f *fields) aeth(h rocev2.AETH) {
	s := h.Syndrome
	f.number("infiniband.aeth.syndrome", uint64(s))
	f.number("infiniband.aeth.syndrome.reserved", uint64(s>>7))
	f.number("infiniband.aeth.syndrome.opcode", uint64(s>>5&3))
	switch code := uint64(s.Code()); s >> 5 & 3 {
	case 0:
		f.number("infiniband.aeth.syndrome.credit_count", code)
	case 1:
		f.number("infiniband.aeth.syndrome.timer", code)
	case 2:
		f.number("infiniband.aeth.syndrome.reserved_value", code)
	case 3:
		f.number("infiniband.aeth.syndrome.error_code", code)
	}
	f.number("infiniband.aeth.msn", uint64(h.MSN))
}

// analysis adds what the analysis says.
func (f *fields) analysis(p *Packet) {
	if p.HasBTH {
		f.add("rocev2.opcode", p.Wire.BTH.Opcode.String())
	}
	f.add("rocev2.icrc", p.ICRC.String())
	f.number("rocev2.length", uint64(p.Length))
	f.number("rocev2.payload_length", uint64(p.PayloadLen))
	if p.Segments > 0 {
		f.number("rocev2.segment", uint64(p.Segment))
		f.number("rocev2.segments", uint64(p.Segments))
	}
	if p.Malformed() {
		f.add("rocev2.malformed", p.Err.Error())
	}
	if p.Mgmt.Present {
		f.add("rocev2.mad", p.Mgmt.Name())
	}
	*f = append(*f, p.App.fields...)
	if p.Conn == nil {
		return
	}
	f.number("rocev2.connection", uint64(p.Conn.ID))
	if src := p.Conn.End(p.From); src.Known && !p.Mgmt.Present {
		f.number("rocev2.srcqp", uint64(src.QPN))
	}
	for _, name := range p.Flags.Names() {
		f.flag("rocev2."+name, true)
	}
	if p.Missing > 0 {
		f.number("rocev2.missing", uint64(p.Missing))
	}
	if p.Cause != "" {
		f.add("rocev2.cause", p.Cause)
	}
	if protocol := p.Conn.Protocol(); protocol != ProtocolUnknown && !p.Mgmt.Present {
		f.add("rocev2.protocol", protocol.String())
	}
	f.message(p)
	if p.Acked > 0 {
		f.number("rocev2.acked", uint64(p.Acked))
	}
	f.duration("rocev2.rtt", p.RTT)
	f.duration("rocev2.since_first", p.Since)
}

// duration adds a time in seconds if it is not zero.
func (f *fields) duration(name string, d time.Duration) {
	if d != 0 {
		f.add(name, d.Seconds())
	}
}

func (f *fields) message(p *Packet) {
	if p.HasMessage {
		m := &p.Message
		f.number("rocev2.message", m.Number)
		f.add("rocev2.message.kind", m.kind())
		if m.Length >= 0 {
			f.number("rocev2.message.length", uint64(m.Length))
		}
		if p.At >= 0 {
			f.number("rocev2.message.offset", uint64(p.At))
		}
	}
	if n := p.Completes.Count; n > 0 {
		m := &p.Completes.Last
		f.number("rocev2.completes", uint64(n))
		f.number("rocev2.completes.last", m.Number)
		f.duration("rocev2.completes.time", m.Completed-m.Started)
	}
}

// JSON appends a packet as one JSON object, without a line end: its members are
// the fields of Fields, in their order.
func JSON(b []byte, p *Packet) []byte {
	b = append(b, '{')
	for i, f := range Fields(p) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '"')
		b = append(b, f.Name...)
		b = append(b, '"', ':')
		b = appendValue(b, f.Value)
	}
	return append(b, '}')
}

func appendValue(b []byte, v any) []byte {
	switch v := v.(type) {
	case []byte:
		b = append(b, '"')
		b = hex.AppendEncode(b, v)
		return append(b, '"')
	case netip.Addr:
		b = append(b, '"')
		b = v.AppendTo(b)
		return append(b, '"')
	}
	var w bytes.Buffer
	e := json.NewEncoder(&w)
	e.SetEscapeHTML(false)
	if e.Encode(v) != nil {
		return append(b, "null"...)
	}
	return append(b, bytes.TrimSuffix(w.Bytes(), []byte("\n"))...)
}
