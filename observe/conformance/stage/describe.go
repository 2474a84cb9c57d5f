package stage

import (
	"fmt"
	"strings"

	"github.com/gosoftroce/rocev2/rocev2"
)

// nakNames are the NAK codes as the standard calls them.
var nakNames = map[rocev2.Syndrome]string{
	rocev2.NAKSequence:          "PSN sequence error",
	rocev2.NAKInvalidRequest:    "invalid request",
	rocev2.NAKRemoteAccess:      "remote access error",
	rocev2.NAKRemoteOperational: "remote operational error",
	rocev2.NAKInvalidRD:         "invalid RD request",
}

// describeSyndrome says what an AETH says.
func describeSyndrome(s rocev2.Syndrome) string {
	switch {
	case s.IsACK():
		return "ACK"
	case s.IsRNR():
		return fmt.Sprintf("RNR NAK (timer code %d)", s.Code())
	case nakNames[s] != "":
		return "NAK " + nakNames[s]
	}
	return fmt.Sprintf("syndrome %#02x", uint8(s))
}

// Describe says in a line what a packet is.
func Describe(p *rocev2.Packet) string {
	var b strings.Builder
	info, _ := p.BTH.Opcode.Info()
	if p.BTH.Opcode == rocev2.RCAcknowledge {
		b.WriteString(describeSyndrome(p.AETH.Syndrome))
	} else {
		b.WriteString(p.BTH.Opcode.String())
	}
	fmt.Fprintf(&b, " psn=%#x", uint32(p.BTH.PSN))
	if p.BTH.AckReq {
		b.WriteString(" ackreq")
	}
	h := info.Headers
	if h.Has(rocev2.HasDETH) {
		fmt.Fprintf(&b, " qkey=%#x src=%d", p.DETH.QKey, p.DETH.SrcQPN)
	}
	if h.Has(rocev2.HasRETH) {
		fmt.Fprintf(&b, " va=%#x rkey=%#x len=%d", p.RETH.VA, p.RETH.RKey, p.RETH.Length)
	}
	if h.Has(rocev2.HasAtomicETH) {
		fmt.Fprintf(&b, " va=%#x rkey=%#x", p.AtomicETH.VA, p.AtomicETH.RKey)
	}
	if h.Has(rocev2.HasAETH) {
		if p.BTH.Opcode != rocev2.RCAcknowledge {
			fmt.Fprintf(&b, " %s", describeSyndrome(p.AETH.Syndrome))
		}
		fmt.Fprintf(&b, " msn=%d", p.AETH.MSN)
	}
	if h.Has(rocev2.HasAtomicAckETH) {
		fmt.Fprintf(&b, " original=%d", p.AtomicAck.Original)
	}
	if h.Has(rocev2.HasImmDt) {
		fmt.Fprintf(&b, " imm=%#x", p.Imm)
	}
	if len(p.Payload) > 0 {
		fmt.Fprintf(&b, " [%d bytes]", len(p.Payload))
	}
	return b.String()
}

// flaw says what is wrong with the form of a packet that a peer has sent,
// whatever it is for: "" if nothing is.
func flaw(a *arrival, p *rocev2.Packet) string {
	if err := p.Parse(a.data); err != nil {
		return "no packet: " + strings.TrimPrefix(err.Error(), "rocev2: ")
	}
	info, _ := p.BTH.Opcode.Info()
	end := len(a.data) - rocev2.ICRCLen
	switch {
	case !a.icrc:
		return "its ICRC is wrong"
	case p.BTH.PKey&0x7fff != 0x7fff:
		return fmt.Sprintf("its P_Key is %#04x", p.BTH.PKey)
	case p.BTH.Reserved7 != 0 || p.BTH.Reserved6 != 0:
		return "its reserved bits are not zero"
	case info.Role == rocev2.RoleResponse && p.BTH.AckReq:
		return "a response asks for an acknowledgement"
	case info.Payload == rocev2.PayloadNone && end != info.HeaderLen:
		return fmt.Sprintf("%d bytes follow the headers", end-info.HeaderLen)
	}
	for _, b := range a.data[end-int(p.BTH.PadCount) : end] {
		if b != 0 {
			return "its pad bytes are not zero"
		}
	}
	return ""
}
