package rocev2

import "errors"

const (
	// UDPPort is the destination port of RoCEv2 datagrams (IBTA A17;
	// registered with IANA as "roce").
	UDPPort = 4791
	// DefaultPKey is the default partition key with full membership (IBTA
	// 10.9).
	DefaultPKey = 0xffff
	// ICRCLen is the size of the invariant CRC at the end of a packet, in
	// bytes (IBTA 7.8.1).
	ICRCLen = 4
	// MaxHeaderLen is the size of the longest header: BTH, XRCETH and
	// AtomicETH.
	MaxHeaderLen = BTHLen + XRCETHLen + AtomicETHLen
	// MaxPacketLen is enough for any packet, BTH to ICRC, at a path MTU of
	// 4096.
	MaxPacketLen = MaxHeaderLen + 4096 + ICRCLen
)

// Why a datagram is not a packet. All of them are dropped in silence (IBTA
// 9.6).
var (
	ErrShort   = errors.New("rocev2: packet shorter than its headers and ICRC")
	ErrLength  = errors.New("rocev2: packet length not a multiple of 4, or longer than any MTU allows")
	ErrOpcode  = errors.New("rocev2: unknown opcode")
	ErrVersion = errors.New("rocev2: transport header version is not 0")
	ErrPad     = errors.New("rocev2: pad count exceeds the payload")
)

// Packet is a packet without its ICRC. The opcode says which of the extended
// headers it has. The others mean nothing, and Parse does not touch them.
type Packet struct {
	BTH       BTH
	XRCETH    XRCETH
	DETH      DETH
	FETH      FETH
	RETH      RETH
	AtomicETH AtomicETH
	AETH      AETH
	AtomicAck AtomicAckETH
	Imm       uint32 // ImmDt: the number in wire order, that is most significant byte first
	IETH      IETH
	CNP       [CNPLen]byte // reserved bytes of a CNP
	Payload   []byte       // without pad; aliases the datagram after Parse
}

// Parse decodes a datagram: the UDP payload, from BTH to ICRC. It makes those
// checks of IBTA 9.6 that need no queue pair: not P_Key, QPN and PSN, nor the
// payload's length against the path MTU. It does not check the ICRC. It ignores
// what follows the headers of an opcode without payload, as Linux does. The
// error is one of the five of this package. Parse does not change b.
func (p *Packet) Parse(b []byte) error {
	if len(b) < BTHLen+ICRCLen {
		return ErrShort
	}
	// Of memory that the sender shares these two may change meanwhile: what
	// was checked counts.
	first, second := b[0], b[1]
	info := &opcodes[first]
	if info.HeaderLen == 0 {
		return ErrOpcode
	}
	pad := int(second >> 4 & 3)
	rest := len(b) - info.HeaderLen - ICRCLen
	switch {
	case rest < 0:
		return ErrShort
	case rest < pad:
		return ErrPad
	case len(b)&3 != 0 || len(b) > MaxPacketLen:
		return ErrLength
	case second&15 != 0:
		return ErrVersion
	}
	p.BTH.parse(b)
	p.BTH.Opcode, p.BTH.PadCount = Opcode(first), uint8(pad)
	p.parseExtended(info.Headers, b[BTHLen:])
	if info.Payload == PayloadNone {
		p.Payload = nil
		return nil
	}
	end := info.HeaderLen + rest - pad
	p.Payload = b[info.HeaderLen:end:end]
	return nil
}

// ParseBTH decodes the header of a packet that has no other, and whose payload
// lies elsewhere.
func (p *Packet) ParseBTH(h *[BTHLen]byte, payload []byte) {
	p.BTH.parse(h[:])
	p.Payload = payload
}

// parseExtended decodes the extended headers at the start of b, which the
// caller knows to be long enough.
func (p *Packet) parseExtended(s HeaderSet, b []byte) {
	if s == 0 {
		return
	}
	if s&HasXRCETH != 0 {
		p.XRCETH.parse(b)
		b = b[XRCETHLen:]
	}
	// At most one of DETH, FETH, AtomicETH, AETH and CNP comes next, and
	// RETH alone or after a FETH.
	switch {
	case s&HasRETH != 0:
		if s&HasFETH != 0 {
			p.FETH.parse(b)
			b = b[FETHLen:]
		}
		p.RETH.parse(b)
		b = b[RETHLen:]
	case s&HasAETH != 0:
		p.AETH.parse(b)
		if s&HasAtomicAckETH != 0 {
			p.AtomicAck.parse(b[AETHLen:])
		}
		return
	case s&HasDETH != 0:
		p.DETH.parse(b)
		b = b[DETHLen:]
	case s&HasAtomicETH != 0:
		p.AtomicETH.parse(b)
		return
	case s&HasCNP != 0:
		copy(p.CNP[:], b)
		return
	}
	if s&HasImmDt != 0 {
		p.Imm = be.Uint32(b)
	} else if s&HasIETH != 0 {
		p.IETH.parse(b)
	}
}

// HeaderLen returns the length of the BTH and the extended headers of the
// packet's opcode in bytes, or 0 if the opcode is unknown.
func (p *Packet) HeaderLen() int { return opcodes[p.BTH.Opcode].HeaderLen }

// AppendHeaders appends the BTH, just as it is in p, and the extended headers
// of its opcode to b. An unknown opcode has no extended headers.
func (p *Packet) AppendHeaders(b []byte) []byte {
	b = p.BTH.AppendTo(b)
	s := opcodes[p.BTH.Opcode].Headers
	if s == 0 {
		return b
	}
	if s&HasXRCETH != 0 {
		b = p.XRCETH.AppendTo(b)
	}
	if s&HasDETH != 0 {
		b = p.DETH.AppendTo(b)
	}
	if s&HasFETH != 0 {
		b = p.FETH.AppendTo(b)
	}
	if s&HasRETH != 0 {
		b = p.RETH.AppendTo(b)
	}
	if s&HasAtomicETH != 0 {
		b = p.AtomicETH.AppendTo(b)
	}
	if s&HasAETH != 0 {
		b = p.AETH.AppendTo(b)
	}
	if s&HasAtomicAckETH != 0 {
		b = p.AtomicAck.AppendTo(b)
	}
	if s&HasImmDt != 0 {
		b = be.AppendUint32(b, p.Imm)
	}
	if s&HasIETH != 0 {
		b = p.IETH.AppendTo(b)
	}
	if s&HasCNP != 0 {
		b = append(b, p.CNP[:]...)
	}
	return b
}

// AppendTo appends the headers, the payload and its pad to b; the ICRC is
// Flow.Seal's part. It sets the pad count from the length of the payload.
func (p *Packet) AppendTo(b []byte) []byte {
	p.BTH.PadCount = PadCount(len(p.Payload))
	b = p.AppendHeaders(b)
	b = append(b, p.Payload...)
	var zero [3]byte
	return append(b, zero[:p.BTH.PadCount]...)
}

// PadCount returns the number of pad bytes after a payload of n bytes, 0 to 3:
// the length of a packet is a multiple of 4 (IBTA 9.2).
func PadCount(n int) uint8 { return uint8(-n & 3) }
