package record

import (
	"encoding/binary"
	"io"
	"time"

	"github.com/gosoftroce/rocev2/fabric/lab"
	"github.com/gosoftroce/rocev2/observe/dissect"
	"github.com/gosoftroce/rocev2/rocev2"
)

// DefaultSnap is how many bytes of a frame a Pcap has by default: all headers,
// and some payload.
const DefaultSnap = 128

// MostPackets is how many packets a Pcap takes.
const MostPackets = 1 << 20

// Pcap writes the packets that pass a port as pcapng, with the headers of
// Ethernet, IPv4, and UDP and RoCEv2, or TCP. There are no bytes of payload in
// a simulated network: a capture has zeros in their place, up to its snapshot
// length. It never has the ICRC, which the simulator does not compute: each
// frame ends before it, as if the snapshot length had cut it off, and says how
// long it was on the wire, with what switches have added to it (INT), of which
// there are no bytes. Of a packet that a switch has trimmed there is what is
// left; its IP header says how long it was. Times begin with 1970 at the
// beginning of the run. A pause frame is a MAC control frame (IEEE 802.1Qbb), a
// frame of a program has an experimental EtherType, and so has a header that
// goes back to its sender because a switch has trimmed it: it is no packet of
// RoCE, but has its addresses and its BTH.
type Pcap struct {
	w     *dissect.Writer
	snap  int
	frame []byte
	left  int // packets that may come
	more  uint64
	err   error
}

const pcapComment = "a simulated network: payload is zeros, and the ICRC is not captured, because the simulator computes none"

// NewPcap begins the capture of a port. snap is the most bytes of a frame that
// it has; 0: all but the ICRC.
func NewPcap(w io.Writer, port string, snap int) (*Pcap, error) {
	p := &Pcap{w: dissect.NewWriter(w), snap: snap, left: MostPackets}
	return p, p.w.Interface(dissect.LinkEthernet, port, pcapComment, snap)
}

const (
	ethernetLen = 14
	ipv4Len     = 20
	udpLen      = 8
	headersLen  = ethernetLen + ipv4Len + udpLen
	leastFrame  = 60         // without its FCS
	aroundFrame = 4 + 8 + 12 // FCS, preamble and gap

	// experimental is the EtherType of frames of programs, Local
	// Experimental EtherType 1 (IEEE 802, 9.2.4).
	experimental = 0x88b5
	// returnedType is the first byte of a header that goes back to its
	// sender; that of other frames is network.Frame.Type.
	returnedType = 0xff
)

var be = binary.BigEndian

// Take writes a packet. An error shows in Close.
func (p *Pcap) Take(x *lab.Packet) {
	if p.left == 0 {
		p.more++
		return
	}
	p.left--
	f := dissect.Frame{Time: time.Unix(0, int64(x.At/1000)).UTC(), Link: dissect.LinkEthernet, Length: max(x.Wire-aroundFrame, leastFrame)}
	b := p.appendFrame(x, f.Length)
	p.frame = b
	if p.snap > 0 {
		b = b[:min(len(b), p.snap)]
	}
	f.Data = b
	if err := p.w.Write(&f); err != nil && p.err == nil {
		p.err = err
	}
}

// appendFrame returns a frame, which is that long without its FCS.
func (p *Pcap) appendFrame(x *lab.Packet, length int) []byte {
	b := p.frame[:0]
	switch {
	case x.Frame:
		b = append(b, 0x01, 0x80, 0xc2, 0, 0, 1)
		b = appendMAC(b, x.From)
		b = be.AppendUint16(b, experimental)
		b = append(b, x.Type, x.Class)
		b = be.AppendUint64(b, x.Value)
		b = fill(b, leastFrame)
	case x.Returned:
		b = appendMAC(b, x.To)
		b = appendMAC(b, x.From)
		b = be.AppendUint16(b, experimental)
		b = append(b, returnedType, 0)
		b = append(b, x.Src.AsSlice()...)
		b = append(b, x.Dst.AsSlice()...)
		b = append(b, x.Data[:min(len(x.Data), rocev2.BTHLen)]...)
		b = fill(b, leastFrame)
	case x.Pause:
		b = append(b, 0x01, 0x80, 0xc2, 0, 0, 1)
		b = appendMAC(b, x.From)
		b = be.AppendUint16(b, 0x8808)
		b = be.AppendUint16(b, 0x0101)
		b = be.AppendUint16(b, uint16(x.Mask))
		for class := range 8 {
			b = be.AppendUint16(b, 0xffff*uint16(x.Off>>class&1)) // quanta of 512 bits
		}
		b = fill(b, leastFrame)
	default:
		return p.appendPacket(b, x, length)
	}
	return b
}

// appendPacket appends a packet of RoCE or TCP, up to what is captured of it.
func (p *Pcap) appendPacket(b []byte, x *lab.Packet, length int) []byte {
	b = appendMAC(b, x.To)
	b = appendMAC(b, x.From)
	b = be.AppendUint16(b, 0x0800)
	b = appendHeaders(b, x)
	above := len(b)
	b = append(b, x.Data[:min(len(x.Data), x.Length)]...)
	if x.TCP {
		sumTCP(b[above:], x)
	}
	to := min(above+x.Length, length) // less than it was of a packet that was trimmed
	if p.snap > 0 {
		to = min(to, p.snap)
	}
	b = fill(b, to)
	return b[:min(len(b), length)]
}

// appendMAC appends the address of a port, which is administered locally.
func appendMAC(b []byte, at lab.End) []byte {
	if at.Switch {
		return be.AppendUint16(be.AppendUint32(b, 0x02010000|uint32(at.Number)&0xffff), uint16(at.Port))
	}
	return be.AppendUint32(be.AppendUint16(b, 0x0200), uint32(at.Number))
}

// Numbers of protocols above IP.
const (
	protoTCP = 6
	protoUDP = 17
)

// appendHeaders appends that of IPv4, and of UDP if it is not of TCP. There is
// no UDP checksum, as in packets of adapters.
func appendHeaders(b []byte, x *lab.Packet) []byte {
	above, protocol := udpLen+x.Length+rocev2.ICRCLen, byte(protoUDP)
	if x.TCP {
		above, protocol = x.Length, protoTCP
	}
	start := len(b)
	b = append(b, 0x45, x.TrafficClass)
	b = be.AppendUint16(b, uint16(ipv4Len+above))
	b = append(b, 0, 0, 0x40, 0, x.HopLimit, protocol, 0, 0)
	b = append(b, x.Src.AsSlice()...)
	b = append(b, x.Dst.AsSlice()...)
	be.PutUint16(b[start+10:], ^checksum(0, b[start:]))
	if x.TCP {
		return b
	}
	b = be.AppendUint16(b, x.SrcPort)
	b = be.AppendUint16(b, rocev2.UDPPort)
	b = be.AppendUint16(b, uint16(above))
	return append(b, 0, 0)
}

// checksum returns the sum of the Internet (RFC 1071), not yet inverted.
func checksum(sum uint32, b []byte) uint16 {
	for ; len(b) > 1; b = b[2:] {
		sum += uint32(be.Uint16(b))
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return uint16(sum)
}

// sumTCP writes the checksum of a header of TCP, and of zeros after it.
func sumTCP(b []byte, x *lab.Packet) {
	const at = 16
	sum := protoTCP + uint32(x.Length) + uint32(checksum(0, x.Src.AsSlice())) + uint32(checksum(0, x.Dst.AsSlice()))
	be.PutUint16(b[at:], ^checksum(sum, b))
}

// fill appends zeros up to a length.
func fill(b []byte, to int) []byte {
	for len(b) < to {
		b = append(b, make([]byte, min(to-len(b), 4096))...)
	}
	return b
}

// LeftOut returns how many packets have come after MostPackets, and are not in
// the capture.
func (p *Pcap) LeftOut() uint64 { return p.more }

// Close writes what is still in memory, and returns the first error. It does
// not close what it writes to.
func (p *Pcap) Close() error {
	if err := p.w.Flush(); p.err == nil {
		p.err = err
	}
	return p.err
}
