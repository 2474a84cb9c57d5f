package dissect

import (
	"fmt"
	"strings"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// Line says in one line what a packet is, without a line end: number, time,
// addresses, connection, operation, and what is particular about it.
func Line(p *Packet) string { return fmt.Sprintf("%s %s", Prefix(p), Summary(p)) }

// Prefix is the beginning of a line: number, time, addresses and connection.
func Prefix(p *Packet) string {
	return fmt.Sprintf("%5d %11s  %s > %s  %-4s", p.Number, Seconds(p.Offset), p.IP.Src, p.IP.Dst, p.connName())
}

func (p *Packet) connName() string {
	if p.Conn == nil {
		return "-"
	}
	return p.Conn.Name()
}

// Summary says what a packet is, without where it comes from.
func Summary(p *Packet) string {
	var b strings.Builder
	switch {
	case p.closed():
		p.Sealed.brief(&b)
		p.notes(&b)
		return b.String()
	case p.Err != nil && p.Sealed.Present && !p.Sealed.Opened && p.Sealed.IV != 0:
		p.Sealed.brief(&b)
		fmt.Fprintf(&b, "  [malformed: %v]", p.Err)
		return b.String()
	case p.Err != nil:
		p.brief(&b)
		fmt.Fprintf(&b, "  [malformed: %s]", strings.TrimPrefix(p.Err.Error(), "rocev2: "))
		return b.String()
	}
	if p.Mgmt.Present {
		p.Mgmt.brief(&b)
	} else {
		p.brief(&b)
		p.extended(&b)
	}
	if p.App.Text != "" {
		fmt.Fprintf(&b, "  %s", p.App.Text)
	}
	p.notes(&b)
	return b.String()
}

// brief writes opcode, QPN and PSN.
func (p *Packet) brief(b *strings.Builder) {
	if !p.HasBTH {
		fmt.Fprintf(b, "%d bytes", p.Length)
		return
	}
	h := &p.Wire.BTH
	name := h.Opcode.String()
	if p.Info().Operation == rocev2.OpAcknowledge && p.Err == nil {
		name = h.Opcode.Service().String() + "_" + p.answer()
	}
	if p.Info().Operation == rocev2.OpCNP {
		fmt.Fprintf(b, "%-22s qp %v", name, h.DestQPN)
		return
	}
	fmt.Fprintf(b, "%-22s qp %v psn %d", name, h.DestQPN, h.PSN)
	if n := p.PayloadLen; n > 0 {
		fmt.Fprintf(b, " len %d", n)
	}
}

// answer is ACK, NAK or RNR_NAK.
func (p *Packet) answer() string {
	switch s := p.Wire.AETH.Syndrome; {
	case s.IsACK():
		return "ACK"
	case s.IsRNR():
		return "RNR_NAK"
	}
	return "NAK"
}

// extended writes what the extended headers say.
func (p *Packet) extended(b *strings.Builder) {
	w, h := &p.Wire, p.info.Headers
	if h.Has(rocev2.HasXRCETH) {
		fmt.Fprintf(b, " srq %d", w.XRCETH.SRQN)
	}
	if h.Has(rocev2.HasDETH) {
		fmt.Fprintf(b, " from qp %v", w.DETH.SrcQPN)
	}
	if h.Has(rocev2.HasFETH) {
		fmt.Fprintf(b, " flush %#x", uint8(w.FETH.Type))
	}
	if h.Has(rocev2.HasRETH) {
		fmt.Fprintf(b, " va %#x rkey %#x of %s", w.RETH.VA, w.RETH.RKey, Bytes(int64(w.RETH.Length)))
	}
	if h.Has(rocev2.HasAtomicETH) {
		fmt.Fprintf(b, " va %#x rkey %#x", w.AtomicETH.VA, w.AtomicETH.RKey)
		if p.info.Operation == rocev2.OpFetchAdd {
			fmt.Fprintf(b, " add %d", w.AtomicETH.SwapAdd)
		} else {
			fmt.Fprintf(b, " compare %d swap %d", w.AtomicETH.Compare, w.AtomicETH.SwapAdd)
		}
	}
	if h.Has(rocev2.HasAETH) {
		fmt.Fprintf(b, " msn %d", w.AETH.MSN)
		if s := w.AETH.Syndrome; !s.IsACK() {
			fmt.Fprintf(b, " (%v)", s)
		}
	}
	if h.Has(rocev2.HasAtomicAckETH) {
		fmt.Fprintf(b, " original %d", w.AtomicAck.Original)
	}
	if h.Has(rocev2.HasImmDt) {
		fmt.Fprintf(b, " imm %#x", w.Imm)
	}
	if h.Has(rocev2.HasIETH) {
		fmt.Fprintf(b, " invalidate %#x", w.IETH.RKey)
	}
}

// notes writes what is particular about the packet, and what the analysis
// says.
func (p *Packet) notes(b *strings.Builder) {
	if p.HasMessage && p.Info().Service != rocev2.ServiceUD {
		fmt.Fprintf(b, "  %v", &p.Message)
		if p.PayloadLen > 0 && p.At >= 0 && !(p.Info().First && p.Info().Last) {
			fmt.Fprintf(b, " at %d", p.At)
		}
	}
	if n := p.Completes.Count; n > 0 && p.Info().Service != rocev2.ServiceUD {
		m := &p.Completes.Last
		if n == 1 {
			fmt.Fprintf(b, "  completes #%d after %s", m.Number, Duration(m.Completed-m.Started))
		} else {
			fmt.Fprintf(b, "  completes %d messages to #%d", n, m.Number)
		}
	}
	if p.RTT > 0 {
		fmt.Fprintf(b, "  rtt %s", Duration(p.RTT))
	}
	for _, note := range p.Notes() {
		fmt.Fprintf(b, "  [%s]", note)
	}
}

// Notes lists what is particular about a packet: a wrong ICRC, what is sent
// again, what is missing, congestion.
func (p *Packet) Notes() (notes []string) {
	add := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	switch {
	case p.ICRC == ICRCBad:
		add("BAD ICRC: receivers drop it")
	case p.ICRC == ICRCUnknown && p.Cut:
		if p.Trimmed {
			add("trimmed: without its payload")
		}
		add("cut at %d of %d bytes", len(p.raw), p.Length)
	}
	if note := p.Sealed.note(); note != "" {
		add("%s", note)
	}
	if p.Flags&Replayed != 0 {
		add("replayed: its IV has come before, receivers drop it")
	}
	if p.Flags&Retransmitted != 0 {
		text := "retransmitted"
		if p.Cause != "" {
			text += map[string]string{"nak": ", after a NAK", "rnr": ", after an RNR NAK", "timeout": ", nothing asked for it", "request": ", answered again"}[p.Cause]
		}
		if p.Since > 0 {
			text += ", first sent " + Duration(p.Since) + " before"
		}
		add("%s", text)
	}
	if p.Flags&Duplicate != 0 {
		add("duplicate: acknowledged already")
	}
	if p.Flags&Gap != 0 {
		add("gap: %d missing", p.Missing)
	}
	if p.Flags&OutOfOrder != 0 {
		add("out of order")
	}
	if p.Flags&DuplicateAck != 0 {
		add("duplicate ACK")
	}
	if p.Flags&Unseen != 0 {
		add("the capture has no request for it")
	}
	if p.IP.ECN() == 3 {
		add("congestion experienced")
	}
	if p.HasBTH && p.Wire.BTH.BECN && p.Info().Operation != rocev2.OpCNP {
		add("BECN")
	}
	if p.Segments > 0 {
		add("segment %d of %d, offloaded", p.Segment, p.Segments)
	}
	return notes
}

// brief writes a MAD in short.
func (m *Management) brief(b *strings.Builder) {
	if m.Header.Class != classCM {
		fmt.Fprintf(b, "MAD %s method %#x attribute %#x status %#x", m.Class(), m.Header.Method, uint16(m.Header.Attribute), m.Header.Status)
		return
	}
	fmt.Fprintf(b, "CM %s", m.Name())
	if m.Err != nil {
		fmt.Fprintf(b, " (%s)", strings.TrimPrefix(m.Err.Error(), "mad: "))
		return
	}
	local, remote := ids(m.Message)
	switch msg := m.Message.(type) {
	case *mad.REQ:
		fmt.Fprintf(b, " id %#x %s %v", msg.LocalID, purpose(msg.ServiceID), msg.Transport)
		m.from(b)
		fmt.Fprintf(b, " qp %v psn %d mtu %d", msg.LocalQPN, msg.StartingPSN, rocev2.MTU(msg.PathMTU).Bytes())
	case *mad.REP:
		fmt.Fprintf(b, " id %#x to %#x qp %v psn %d", local, remote, msg.LocalQPN, msg.StartingPSN)
	case *mad.REJ:
		fmt.Fprintf(b, " id %#x to %#x of %v: %v (%d)", local, remote, msg.Message, msg.Reason, msg.Reason)
	case *mad.MRA:
		fmt.Fprintf(b, " id %#x to %#x of %v: wait %s", local, remote, msg.Message, Duration(mad.Timeout(msg.ServiceTimeout)))
	case *mad.DREQ:
		fmt.Fprintf(b, " id %#x to %#x qp %v", local, remote, msg.RemoteQPN)
	case *mad.SIDRREQ:
		fmt.Fprintf(b, " id %#x %s", msg.RequestID, purpose(msg.ServiceID))
		m.from(b)
	case *mad.SIDRREP:
		fmt.Fprintf(b, " id %#x %s: %v qp %v qkey %#x", msg.RequestID, purpose(msg.ServiceID), msg.Status, msg.QPN, msg.QKey)
	default:
		fmt.Fprintf(b, " id %#x to %#x", local, remote)
	}
	if n := len(trimZeros(m.Private)); n > 0 {
		fmt.Fprintf(b, " private %d B", n)
	}
}

// from writes the address that RDMA-CM names.
func (m *Management) from(b *strings.Builder) {
	if m.HasIP {
		fmt.Fprintf(b, " from %v:%d", m.IP.Source, m.IP.SourcePort)
	}
}

// trimZeros takes the zeros off the end: private data has no length.
func trimZeros(b []byte) []byte {
	for len(b) > 0 && b[len(b)-1] == 0 {
		b = b[:len(b)-1]
	}
	return b
}
