package qptest

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
)

// opcodeNames is the notation's own table, so that a wrong entry in the codec's
// shows up as a difference (IBTA table 35).
var opcodeNames = map[rocev2.Opcode]string{
	0x00: "SEND_FIRST", 0x01: "SEND_MIDDLE", 0x02: "SEND_LAST", 0x03: "SEND_LAST_IMM",
	0x04: "SEND_ONLY", 0x05: "SEND_ONLY_IMM", 0x16: "SEND_LAST_INV", 0x17: "SEND_ONLY_INV",
	0x06: "WRITE_FIRST", 0x07: "WRITE_MIDDLE", 0x08: "WRITE_LAST", 0x09: "WRITE_LAST_IMM",
	0x0a: "WRITE_ONLY", 0x0b: "WRITE_ONLY_IMM",
	0x0c: "READ_REQUEST", 0x0d: "READ_RESP_FIRST", 0x0e: "READ_RESP_MIDDLE", 0x0f: "READ_RESP_LAST", 0x10: "READ_RESP_ONLY",
	0x11: "ACK", 0x12: "ATOMIC_ACK", 0x13: "COMPARE_SWAP", 0x14: "FETCH_ADD",
	0x1c: "FLUSH", 0x1d: "ATOMIC_WRITE",
	0x20: "UC_SEND_FIRST", 0x21: "UC_SEND_MIDDLE", 0x22: "UC_SEND_LAST", 0x23: "UC_SEND_LAST_IMM",
	0x24: "UC_SEND_ONLY", 0x25: "UC_SEND_ONLY_IMM", 0x26: "UC_WRITE_FIRST", 0x27: "UC_WRITE_MIDDLE",
	0x28: "UC_WRITE_LAST", 0x29: "UC_WRITE_LAST_IMM", 0x2a: "UC_WRITE_ONLY", 0x2b: "UC_WRITE_ONLY_IMM",
	0x64: "UD_SEND_ONLY", 0x65: "UD_SEND_ONLY_IMM", 0x81: "CNP", 0xd1: "SELECTIVE_ACK",
}

// Headers after the BTH, by opcode: again the notation's own.
const (
	hasRETH = 1 << iota
	hasAETH
	hasImm
	hasInv
	hasAtomic
	hasAtomicAck
	hasPayload
	hasFETH
	hasDETH
	hasXRCETH
)

var opcodeHeaders = map[rocev2.Opcode]int{
	0x00: hasPayload, 0x01: hasPayload, 0x02: hasPayload, 0x03: hasPayload | hasImm,
	0x04: hasPayload, 0x05: hasPayload | hasImm, 0x16: hasPayload | hasInv, 0x17: hasPayload | hasInv,
	0x06: hasPayload | hasRETH, 0x07: hasPayload, 0x08: hasPayload, 0x09: hasPayload | hasImm,
	0x0a: hasPayload | hasRETH, 0x0b: hasPayload | hasRETH | hasImm,
	0x0c: hasRETH, 0x0d: hasPayload | hasAETH, 0x0e: hasPayload, 0x0f: hasPayload | hasAETH, 0x10: hasPayload | hasAETH,
	0x11: hasAETH, 0x12: hasAETH | hasAtomicAck, 0x13: hasAtomic, 0x14: hasAtomic,
	0x1c: hasFETH | hasRETH, 0x1d: hasRETH | hasPayload,
	0x20: hasPayload, 0x21: hasPayload, 0x22: hasPayload, 0x23: hasPayload | hasImm,
	0x24: hasPayload, 0x25: hasPayload | hasImm, 0x26: hasPayload | hasRETH, 0x27: hasPayload, 0x28: hasPayload,
	0x29: hasPayload | hasImm, 0x2a: hasPayload | hasRETH, 0x2b: hasPayload | hasRETH | hasImm,
	0x64: hasPayload | hasDETH, 0x65: hasPayload | hasDETH | hasImm, 0xd1: hasAETH,
}

var nakNames = map[rocev2.Syndrome]string{
	0x60: "NAK-SEQ", 0x61: "NAK-INVALID", 0x62: "NAK-ACCESS", 0x63: "NAK-OP", 0x64: "NAK-RD",
}

// keyNamer turns keys into names and back ("b.m" is region m of side b).
type keyNamer interface {
	keyName(k ib.Key) string
	keyOf(name string) (ib.Key, error)
}

// noNames prints keys as numbers.
type noNames struct{}

func (noNames) keyName(k ib.Key) string { return k.String() }

func (noNames) keyOf(name string) (ib.Key, error) {
	n, err := strconv.ParseUint(name, 0, 32)
	return ib.Key(n), err
}

func psnString(p rocev2.PSN) string {
	if p >= 0xf00000 {
		return fmt.Sprintf("0x%06x", uint32(p))
	}
	return strconv.Itoa(int(p))
}

// format prints a packet as one line. dst is the QPN it should carry: another
// one is shown.
func format(p *rocev2.Packet, dst rocev2.QPN, keys keyNamer) string {
	var b strings.Builder
	op := p.BTH.Opcode
	name, ok := opcodeNames[op]
	if !ok {
		name = fmt.Sprintf("OPCODE_%02x", uint8(op))
	}
	h := opcodeHeaders[op]
	syndrome := p.AETH.Syndrome
	if op == 0x11 || op == 0xb1 {
		service := strings.TrimSuffix(name, "ACK")
		if n, ok := nakNames[syndrome]; ok {
			name = service + n
		} else if syndrome&0xe0 == 0x20 {
			name = service + "RNR"
		}
	}
	fmt.Fprintf(&b, "%s psn=%s", name, psnString(p.BTH.PSN))
	flag := func(on bool, s string) {
		if on {
			b.WriteString(" " + s)
		}
	}
	flag(p.BTH.AckReq, "ackreq")
	flag(p.BTH.Solicited, "se")
	flag(p.BTH.MigReq, "migreq")
	flag(p.BTH.FECN, "fecn")
	flag(p.BTH.BECN, "becn")
	flag(p.BTH.DestQPN != dst, "dqpn="+p.BTH.DestQPN.String())
	flag(p.BTH.PKey != 0xffff, fmt.Sprintf("pkey=0x%04x", p.BTH.PKey))
	flag(h&hasXRCETH != 0, fmt.Sprintf("srqn=%d", p.XRCETH.SRQN))
	if h&hasFETH != 0 {
		fmt.Fprintf(&b, " type=%s level=%s", flushName(flushTypes, p.FETH.Type), flushName(flushLevels, p.FETH.Level))
	}
	if h&hasDETH != 0 {
		fmt.Fprintf(&b, " qkey=%#x sqpn=%v", p.DETH.QKey, p.DETH.SrcQPN)
	}
	if h&hasRETH != 0 {
		fmt.Fprintf(&b, " va=%#x rkey=%s len=%d", p.RETH.VA, keys.keyName(ib.Key(p.RETH.RKey)), p.RETH.Length)
	}
	if h&hasAtomic != 0 {
		fmt.Fprintf(&b, " va=%#x rkey=%s", p.AtomicETH.VA, keys.keyName(ib.Key(p.AtomicETH.RKey)))
		if op&0x1f == 0x13 {
			fmt.Fprintf(&b, " compare=%d swap=%d", p.AtomicETH.Compare, p.AtomicETH.SwapAdd)
		} else {
			fmt.Fprintf(&b, " add=%d", p.AtomicETH.SwapAdd)
		}
	}
	if h&hasAETH != 0 {
		b.WriteString(formatAETH(name, &p.AETH))
	}
	if h&hasAtomicAck != 0 {
		fmt.Fprintf(&b, " original=%d", p.AtomicAck.Original)
	}
	flag(h&hasImm != 0, fmt.Sprintf("imm=%#x", p.Imm))
	flag(h&hasInv != 0, "inv="+keys.keyName(ib.Key(p.IETH.RKey)))
	if op == 0xd1 {
		b.WriteString(" kept=" + keptPSNs(p))
		return b.String()
	}
	flag(h&hasPayload != 0 || len(p.Payload) > 0, fmt.Sprintf("[%d]", len(p.Payload)))
	return b.String()
}

// keptPSNs writes the PSNs that a selective acknowledgement names.
func keptPSNs(p *rocev2.Packet) string {
	var rows []string
	first := -1
	for i := range 8*len(p.Payload) + 1 {
		kept := i < 8*len(p.Payload) && p.Payload[i/8]>>(i%8)&1 != 0
		switch {
		case kept && first < 0:
			first = i
		case !kept && first >= 0:
			row := psnString(p.BTH.PSN.Add(1 + first))
			if i-1 > first {
				row += "-" + psnString(p.BTH.PSN.Add(i))
			}
			rows, first = append(rows, row), -1
		}
	}
	return strings.Join(rows, ",")
}

func formatAETH(name string, a *rocev2.AETH) string {
	s := ""
	switch {
	case strings.HasSuffix(name, "RNR"):
		s = fmt.Sprintf(" timer=%d", uint8(a.Syndrome&0x1f))
	case strings.Contains(name, "NAK-"):
	case a.Syndrome < 0x20:
		if a.Syndrome != 0x1f {
			s = fmt.Sprintf(" credits=%d", uint8(a.Syndrome))
		}
	default:
		s = fmt.Sprintf(" syndrome=%#02x", uint8(a.Syndrome))
	}
	return s + " msn=" + psnString(a.MSN)
}

// pattern is the payload that a script writes as [n].
func pattern(b []byte, seed int) {
	for i := range b {
		b[i] = byte(i*7 + i>>8 + seed)
	}
}

// parsePacket reads the notation that format prints.
func parsePacket(words []string, dst rocev2.QPN, keys keyNamer) (rocev2.Packet, error) {
	var p rocev2.Packet
	p.BTH.PKey, p.BTH.DestQPN = 0xffff, dst
	p.AETH.Syndrome = 0x1f
	if len(words) == 0 {
		return p, errors.New("no packet")
	}
	if err := parseOpcode(words[0], &p); err != nil {
		return p, err
	}
	for _, w := range words[1:] {
		if n, ok := strings.CutPrefix(w, "["); ok {
			size, err := strconv.Atoi(strings.TrimSuffix(n, "]"))
			if err != nil || size < 0 || size > 8192 {
				return p, fmt.Errorf("payload %q", w)
			}
			p.Payload = make([]byte, size)
			pattern(p.Payload, 0)
			continue
		}
		key, val, _ := strings.Cut(w, "=")
		if err := parseField(&p, key, val, keys); err != nil {
			return p, fmt.Errorf("%s: %w", w, err)
		}
	}
	return p, nil
}

func parseOpcode(name string, p *rocev2.Packet) error {
	ack, bare := rocev2.Opcode(0x11), strings.TrimPrefix(name, "XRC_")
	if bare != name {
		ack = 0xb1
	}
	for s, n := range nakNames {
		if n == bare {
			p.BTH.Opcode, p.AETH.Syndrome = ack, s
			return nil
		}
	}
	if bare == "RNR" {
		p.BTH.Opcode, p.AETH.Syndrome = ack, 0x20
		return nil
	}
	for op, n := range opcodeNames {
		if n == name {
			p.BTH.Opcode = op
			return nil
		}
	}
	return fmt.Errorf("no opcode %q", name)
}

func parseField(p *rocev2.Packet, key, val string, keys keyNamer) error {
	switch key {
	case "ackreq":
		p.BTH.AckReq = true
		return nil
	case "se":
		p.BTH.Solicited = true
		return nil
	case "migreq":
		p.BTH.MigReq = true
		return nil
	case "fecn":
		p.BTH.FECN = true
		return nil
	case "becn":
		p.BTH.BECN = true
		return nil
	case "rkey", "inv":
		k, err := keys.keyOf(val)
		p.RETH.RKey, p.AtomicETH.RKey, p.IETH.RKey = uint32(k), uint32(k), uint32(k)
		return err
	case "type":
		t, err := flushValue(flushTypes, val)
		p.FETH.Type = t
		return err
	case "level":
		l, err := flushValue(flushLevels, val)
		p.FETH.Level = l
		return err
	case "data":
		data, err := hex.DecodeString(val)
		p.Payload = data
		return err
	}
	n, err := strconv.ParseUint(val, 0, 64)
	if err != nil {
		return err
	}
	switch key {
	case "psn":
		p.BTH.PSN = rocev2.PSN(n)
	case "dqpn":
		p.BTH.DestQPN = rocev2.QPN(n)
	case "qkey":
		p.DETH.QKey = uint32(n)
	case "srqn":
		p.XRCETH.SRQN = uint32(n)
	case "sqpn":
		p.DETH.SrcQPN = rocev2.QPN(n)
	case "pkey":
		p.BTH.PKey = uint16(n)
	case "va":
		p.RETH.VA, p.AtomicETH.VA = n, n
	case "len":
		p.RETH.Length = uint32(n)
	case "compare":
		p.AtomicETH.Compare = n
	case "swap", "add":
		p.AtomicETH.SwapAdd = n
	case "msn":
		p.AETH.MSN = rocev2.PSN(n)
	case "credits", "syndrome":
		p.AETH.Syndrome = rocev2.Syndrome(n)
	case "timer":
		p.AETH.Syndrome = rocev2.Syndrome(0x20 | n)
	case "original":
		p.AtomicAck.Original = n
	case "imm":
		p.Imm = uint32(n)
	default:
		return errors.New("no such field")
	}
	return nil
}
