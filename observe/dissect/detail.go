package dissect

import (
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// Detail writes all that is known of a packet, with its payload if payload is
// true: a line as Line has it, and indented lines below it.
func Detail(w io.Writer, p *Packet, payload bool) error {
	var b strings.Builder
	fmt.Fprintln(&b, Line(p))
	row := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "        %-14s %s\n", name, fmt.Sprintf(format, args...))
	}
	row("time", "%s", p.Time.Format("2006-01-02 15:04:05.000000000 MST"))
	p.detailIP(row)
	p.Sealed.detail(row)
	if p.HasBTH {
		p.detailBTH(row)
	}
	switch {
	case p.Err == nil:
		p.detailExtended(row)
		p.Mgmt.detail(row)
		p.App.detail(row)
		if p.PayloadLen > 0 {
			row("payload", "%d B, %d pad", p.PayloadLen, p.Wire.BTH.PadCount)
		}
	case p.Malformed():
		row("malformed", "%v", p.Err)
	}
	switch {
	case p.ICRC == ICRCUnknown && p.Cut:
		row("ICRC", "unknown: %d of %d bytes were captured", len(p.raw), p.Length)
	case p.Sealed.Present && !p.Sealed.Opened: // it is in what is closed
	case p.Sealed.Opened:
		row("ICRC", "0x%08x, %v", p.Value, p.Sealed.ICRC)
	default:
		row("ICRC", "0x%08x, %v", p.Value, p.ICRC)
	}
	p.detailAnalysis(row)
	if payload && p.Err == nil && !p.Mgmt.Present && len(p.Wire.Payload) > 0 {
		dump(&b, p.Wire.Payload)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

type rowFunc = func(name, format string, args ...any)

func dump(b *strings.Builder, data []byte) {
	for line := range strings.Lines(hex.Dump(data)) {
		b.WriteString("          ")
		b.WriteString(line)
	}
}

var ecnNames = [...]string{"not ECN-capable", "ECT(1)", "ECT(0)", "congestion experienced"}

func (p *Packet) detailIP(row rowFunc) {
	h := &p.IP
	vlan := ""
	if p.VLAN >= 0 {
		vlan = fmt.Sprintf(", VLAN %d", p.VLAN)
	}
	if h.Src.Is4() {
		row("IPv4", "%v > %v, DSCP %d, %s, TTL %d, Identification %#04x, DF %t%s", h.Src, h.Dst, h.Class>>2, ecnNames[h.ECN()], h.HopLimit, h.ID, h.DF, vlan)
	} else {
		row("IPv6", "%v > %v, DSCP %d, %s, hop limit %d, flow label %#05x%s", h.Src, h.Dst, h.Class>>2, ecnNames[h.ECN()], h.HopLimit, h.FlowLabel, vlan)
	}
	row("UDP", "%d > %d, %d B", p.SrcPort, rocev2.UDPPort, max(p.Length, p.Sealed.Length))
	if p.Segments > 0 {
		row("offload", "segment %d of %d of one buffer: captured where the network adapter had not cut it", p.Segment, p.Segments)
	}
}

func (p *Packet) detailBTH(row rowFunc) {
	h := &p.Wire.BTH
	row("BTH", "opcode %#02x %v, P_Key %#04x, dest qp %v, PSN %d%s", uint8(h.Opcode), h.Opcode, h.PKey, h.DestQPN, h.PSN, set(
		bitName{h.AckReq, "AckReq"}, bitName{h.Solicited, "solicited event"}, bitName{h.MigReq, "MigReq"},
		bitName{h.FECN, "FECN"}, bitName{h.BECN, "BECN"}, bitName{h.Version != 0, fmt.Sprintf("version %d", h.Version)},
		bitName{h.Reserved6 != 0, fmt.Sprintf("reserved6 %#x", h.Reserved6)}, bitName{h.Reserved7 != 0, fmt.Sprintf("reserved7 %#x", h.Reserved7)}))
}

type bitName struct {
	set  bool
	name string
}

// set lists the bits that are set, each after a comma.
func set(bits ...bitName) (s string) {
	for _, b := range bits {
		if b.set {
			s += ", " + b.name
		}
	}
	return s
}

func (p *Packet) detailExtended(row rowFunc) {
	w, h := &p.Wire, p.info.Headers
	if h.Has(rocev2.HasXRCETH) {
		row("XRCETH", "SRQ number %d", w.XRCETH.SRQN)
	}
	if h.Has(rocev2.HasDETH) {
		row("DETH", "Q_Key %#08x, source qp %v", w.DETH.QKey, w.DETH.SrcQPN)
	}
	if h.Has(rocev2.HasFETH) {
		row("FETH", "placement type %#x, selectivity level %d", uint8(w.FETH.Type), uint8(w.FETH.Level))
	}
	if h.Has(rocev2.HasRETH) {
		row("RETH", "VA %#016x, rkey %#08x, DMA length %d", w.RETH.VA, w.RETH.RKey, w.RETH.Length)
	}
	if h.Has(rocev2.HasAtomicETH) {
		a := &w.AtomicETH
		row("AtomicETH", "VA %#016x, rkey %#08x, swap or add %#016x, compare %#016x", a.VA, a.RKey, a.SwapAdd, a.Compare)
	}
	if h.Has(rocev2.HasAETH) {
		s := w.AETH.Syndrome
		note := ""
		if s.IsRNR() {
			note = fmt.Sprintf(", wait at least %s", Duration(rocev2.RNRDelay(s.Code())))
		}
		row("AETH", "syndrome %#02x: %v%s, MSN %d", uint8(s), s, note, w.AETH.MSN)
	}
	if h.Has(rocev2.HasAtomicAckETH) {
		row("AtomicAckETH", "original value %#016x", w.AtomicAck.Original)
	}
	if h.Has(rocev2.HasImmDt) {
		row("ImmDt", "%#08x", w.Imm)
	}
	if h.Has(rocev2.HasIETH) {
		row("IETH", "invalidate rkey %#08x", w.IETH.RKey)
	}
}

func (p *Packet) detailAnalysis(row rowFunc) {
	c := p.Conn
	if c == nil {
		return
	}
	managed := ""
	if c.State != StateUnmanaged {
		managed = ", " + stateText(c)
	}
	row("connection", "%s %v: %v and %v%s", c.Name(), c.Service, c.A, c.B, managed)
	if p.HasMessage {
		m := &p.Message
		row("message", "%v of %v, PSN %d to %d%s%s", m, c.End(p.Index).Addr, m.First, m.Last,
			set(bitName{!m.Whole, "not ended"}, bitName{m.Partial, "beginning not captured"}),
			map[bool]string{true: fmt.Sprintf(", payload at %d", p.At)}[p.At >= 0 && p.PayloadLen > 0])
	}
	if p.Acked > 0 {
		row("acknowledges", "%d PSNs for the first time", p.Acked)
	}
	if n := p.Completes.Count; n > 0 {
		m := &p.Completes.Last
		row("completes", "%d messages, the last is %v, after %s", n, m, Duration(m.Completed-m.Started))
	}
	if p.RTT > 0 {
		row("round trip", "%s", Duration(p.RTT))
	}
	for _, note := range p.Notes() {
		row("note", "%s", note)
	}
}

// detail writes a MAD.
func (m *Management) detail(row rowFunc) {
	if !m.Present {
		return
	}
	h := &m.Header
	row("MAD", "class %#02x %s, version %d, method %#02x, attribute %#04x, modifier %#x, status %#x, transaction %#016x",
		h.Class, m.Class(), h.ClassVersion, h.Method, uint16(h.Attribute), h.Modifier, h.Status, h.TransactionID)
	if m.Err != nil {
		row("CM", "%v", m.Err)
		return
	}
	if m.Message == nil {
		return
	}
	// The fields say the rest, with their names.
	var f fields
	f.management(m)
	for _, field := range f {
		name, ok := strings.CutPrefix(field.Name, "infiniband.cm.")
		if !ok {
			if name, ok = strings.CutPrefix(field.Name, "rocev2.cm."); !ok {
				continue
			}
		}
		if strings.HasSuffix(name, "private") {
			continue
		}
		row("CM", "%-28s %s", name, fieldText(name, field.Value))
	}
	if data := trimZeros(m.Private); len(data) > 0 {
		for line := range strings.Lines(hex.Dump(data)) {
			row("private data", "%s", strings.TrimSuffix(line, "\n"))
		}
	}
}

// detail writes what a packet says to programs.
func (a *Application) detail(row rowFunc) {
	for _, field := range a.fields {
		name := strings.TrimPrefix(field.Name, "rocev2.")
		row("program", "%-28s %s", name, fieldText(name, field.Value))
	}
	for _, text := range a.rows {
		row("program", "%s", text)
	}
}

// timeouts are fields whose value is an exponent.
var timeouts = []string{"remoteresptout", "localresptout", "tgtackdelay", "servicetimeout", "localacktout"}

// hexNames are the ends of the names of fields that are not counts.
var hexNames = []string{"commid", "requestid", "key", "lid", "vendorid", "flowlabel"}

// fieldText writes the value of a field for people.
func fieldText(name string, v any) string {
	switch v := v.(type) {
	case Hex:
		return fmt.Sprintf("%#x", uint64(v))
	case []byte:
		return hex.EncodeToString(v)
	case uint64:
		for _, t := range timeouts {
			if strings.HasSuffix(name, t) {
				return fmt.Sprintf("%d (%s)", v, Duration(mad.Timeout(uint8(v))))
			}
		}
		switch {
		case strings.HasSuffix(name, "pppmtu"):
			return fmt.Sprintf("%d (%d B)", v, rocev2.MTU(v).Bytes())
		case strings.HasSuffix(name, "qpn"), strings.HasSuffix(name, "qpneecn"):
			return rocev2.QPN(v).String()
		case name == "req" || name == "rep" || slices.ContainsFunc(hexNames, func(s string) bool { return strings.HasSuffix(name, s) }):
			return fmt.Sprintf("%#x", v)
		}
	}
	return fmt.Sprint(v)
}
