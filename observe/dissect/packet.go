package dissect

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/gosoftroce/rocev2/rocev2"
)

// Port is the UDP port that RoCEv2 packets go to.
const Port = rocev2.UDPPort

// Verdict says whether the ICRC of a packet is right.
type Verdict uint8

// The verdicts.
const (
	ICRCUnknown Verdict = iota // the capture does not have the whole packet
	ICRCGood
	ICRCBad
)

var verdictNames = [...]string{ICRCUnknown: "unknown", ICRCGood: "good", ICRCBad: "bad"}

// String returns good, bad or unknown.
func (v Verdict) String() string { return verdictNames[v] }

// Packet is a RoCEv2 packet of a capture. It is valid until the next one.
type Packet struct {
	Number uint64        // of the frame in the capture, from 1
	Time   time.Time     // when it was captured
	Offset time.Duration // since the first frame of the capture
	VLAN   int           // number of the innermost VLAN; -1 = none

	IP      IP
	SrcPort uint16

	Sealed Sealed // what is to be said of it if it is sealed

	// Segment and Segments tell of segmentation offload. The frame was
	// captured before the network adapter cut it, or after it was put
	// together. The packet is number Segment of its Segments, from 1.
	// Both are 0 for an ordinary frame.
	Segment, Segments int

	Length int // of BTH to ICRC in bytes, as sent
	Cut    bool
	// Trimmed says that not all of it was on the wire: the IP header tells
	// of more than the frame had. A switch has cut the payload off, and the
	// packet has not arrived.
	Trimmed bool

	// Wire has the headers and the payload. If Err is not nil only the BTH
	// is to be used, and only if HasBTH. A payload that was cut off is
	// shorter than PayloadLen.
	Wire       rocev2.Packet
	HasBTH     bool
	PayloadLen int
	Value      uint32 // the ICRC, as Wireshark shows it: its 4 bytes as a big-endian number
	ICRC       Verdict

	// Err says why the packet is malformed: no receiver takes it. Of a
	// sealed packet it also says why it is not opened, see Malformed.
	Err error

	// MAD is the management datagram, of packets to QP 0 and 1. Of those of
	// connection management, Msg is what it says.
	Mgmt Management

	Analysis

	info *rocev2.OpcodeInfo
	raw  []byte
}

// Why a packet is malformed, besides the errors of package rocev2.
var (
	ErrFragment = errors.New("an IP fragment: RoCEv2 is never fragmented, and receivers drop it")
	ErrCut      = errors.New("the capture has too little of the packet: capture with a larger snapshot length")
	ErrUDP      = errors.New("the UDP length is wrong")
)

// Info describes the opcode. It is never nil. For an unknown opcode it is
// empty.
func (p *Packet) Info() *rocev2.OpcodeInfo {
	if p.info == nil {
		return &rocev2.OpcodeInfo{}
	}
	return p.info
}

// Src returns the address and UDP port that the packet came from.
func (p *Packet) Src() netip.AddrPort { return netip.AddrPortFrom(p.IP.Src, p.SrcPort) }

// Raw returns the packet from BTH to ICRC, as far as it was captured.
func (p *Packet) Raw() []byte { return p.raw }

// Has reports whether the packet is well formed and has all headers of s.
func (p *Packet) Has(s rocev2.HeaderSet) bool { return p.Err == nil && p.Info().Headers.Has(s) }

// decoder takes frames apart.
type decoder struct {
	scratch []byte // a whole datagram
	padded  []byte // a packet that was cut off, filled up
	opened  []byte // what was in sealed packets of a frame, and their headers
	keys    *Keys
}

// Format keeps the keys out of what is printed.
func (decoder) Format(s fmt.State, _ rune) { io.WriteString(s, "decoder") }

// decode calls each for every RoCEv2 packet in a frame: p, filled in anew. It
// returns false if the frame has none.
func (d *decoder) decode(f *Frame, p *Packet, each func() error) (found bool, err error) {
	b, vlan := network(f.Link, f.Data)
	p.VLAN = vlan
	if b == nil || !p.IP.parse(b) {
		return false, nil
	}
	h := &p.IP
	udp := b[h.header:]
	if len(udp) < 8 || be.Uint16(udp[2:]) != rocev2.UDPPort {
		return false, nil
	}
	p.SrcPort = be.Uint16(udp)
	p.Segment, p.Segments, p.Sealed = 0, 0, Sealed{}
	d.opened = d.opened[:0]
	p.Trimmed = f.Length > 0 && f.Length-(len(f.Data)-len(b)) < h.total
	length := int(be.Uint16(udp[4:]))
	if length < 8 || h.header+length > h.total {
		d.malformed(p, udp[8:], len(udp)-8, ErrUDP)
		return true, each()
	}
	data := udp[8:min(len(udp), length)]
	if h.Fragment {
		d.malformed(p, data, length-8, ErrFragment)
		return true, each()
	}
	head := b[:h.header+8]
	if f.Segment > 0 && f.Segment < length-8 {
		return true, d.segments(head, data, length-8, f.Segment, p, each)
	}
	if size := sealedSize(data, length-8); size > 0 {
		return true, d.segments(head, data, length-8, size, p, each)
	}
	d.one(p, head, data, length-8, h.ID)
	if !p.Sealed.Present && p.ICRC != ICRCGood && length-8 > rocev2.BTHLen {
		if size := d.segmentSize(head, data, length-8, h.ID); size > 0 {
			return true, d.segments(head, data, length-8, size, p, each)
		}
	}
	return true, each()
}

// one fills in one packet, as packet does, which may be sealed.
func (d *decoder) one(p *Packet, head, b []byte, length int, id uint16) {
	p.Sealed = Sealed{}
	if isSealed(b) {
		d.sealed(p, head, b, length)
		return
	}
	d.packet(p, head, b, length, id)
}

// malformed fills in a packet that cannot be parsed.
func (d *decoder) malformed(p *Packet, b []byte, length int, err error) {
	p.raw, p.Length, p.Cut = b, length, len(b) < length
	p.ICRC, p.Value, p.PayloadLen = ICRCUnknown, 0, 0
	p.Err = err
	p.Wire.Payload = nil
	p.setBTH(b)
}

// setBTH reads the BTH even of a packet whose opcode or version is unknown.
func (p *Packet) setBTH(b []byte) {
	p.info = nil
	if p.HasBTH = len(b) >= rocev2.BTHLen; !p.HasBTH {
		return
	}
	var known [rocev2.BTHLen + rocev2.ICRCLen]byte
	copy(known[:rocev2.BTHLen], b)
	known[0], known[1] = byte(rocev2.RCSendOnly), b[1]&0xc0
	if p.Wire.Parse(known[:]) != nil {
		p.HasBTH = false
		return
	}
	bth := &p.Wire.BTH
	bth.Opcode, bth.PadCount, bth.Version = rocev2.Opcode(b[0]), b[1]>>4&3, b[1]&15
	if info, ok := bth.Opcode.Info(); ok {
		p.info = info
	}
}

// packet fills in one packet: its datagram begins with the headers of head, and
// id is its Identification. b is what was captured of it.
func (d *decoder) packet(p *Packet, head, b []byte, length int, id uint16) {
	p.raw, p.Length, p.Cut = b, length, len(b) < length
	p.ICRC, p.Value, p.PayloadLen = ICRCUnknown, 0, 0
	p.IP.ID = id
	whole := b
	if p.Cut {
		whole = d.fill(b, length)
	}
	if p.Err = p.Wire.Parse(whole); p.Err != nil {
		d.malformed(p, b, length, p.Err)
	} else {
		p.HasBTH = true
		p.info, _ = p.Wire.BTH.Opcode.Info()
		p.PayloadLen = len(p.Wire.Payload)
		if p.Cut {
			if len(b) < p.info.HeaderLen {
				d.malformed(p, b, length, ErrCut)
				return
			}
			have := max(0, min(len(b)-p.info.HeaderLen, p.PayloadLen))
			p.Wire.Payload = p.Wire.Payload[:have]
		}
	}
	if p.Cut || length < rocev2.BTHLen+rocev2.ICRCLen {
		return
	}
	p.Value = be.Uint32(b[length-4:])
	if p.ICRC = ICRCBad; !p.IP.Options && d.verify(head, b, id) {
		p.ICRC = ICRCGood
	}
}

// fill makes the captured bytes of a packet as long as it was.
func (d *decoder) fill(b []byte, length int) []byte {
	if cap(d.padded) < length {
		d.padded = make([]byte, maxRecord)
	}
	whole := d.padded[:length]
	clear(whole[copy(whole, b):])
	return whole
}

// verify reports whether b, a whole packet, has the right ICRC in a datagram
// with these IP and UDP headers, this length and this Identification.
func (d *decoder) verify(head, b []byte, id uint16) bool {
	s := append(append(d.scratch[:0], head...), b...)
	d.scratch = s
	ip := len(head) - 8
	if s[0]>>4 == 4 {
		be.PutUint16(s[2:], uint16(len(s)))
		be.PutUint16(s[4:], id)
	} else {
		be.PutUint16(s[4:], uint16(len(s)-40))
	}
	be.PutUint16(s[ip+4:], uint16(8+len(b)))
	return rocev2.VerifyDatagram(s)
}
