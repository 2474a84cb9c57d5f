// Package layers decodes RoCEv2 for gopacket: captures show the base transport
// header, every extended header, the payload and the ICRC as layers of their
// own. Importing the package registers LayerTypeRoCEv2 for UDP port 4791.
// Packets with Ethernet, IP and UDP then decode to the end:
//
//	eth := layers.LinkTypeEthernet
//	p := gopacket.NewPacket(frame, eth, gopacket.Default)
//	bth, _ := p.Layer(rocelayers.LayerTypeRoCEv2).(*rocelayers.RoCEv2)
//
// It is for tools and tests: it allocates for every layer, and it only decodes.
// The datapath does not use it.
package layers

import (
	"encoding/binary"
	"errors"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"github.com/gosoftroce/rocev2/rocev2"
)

// The layer types. A packet has a LayerTypeRoCEv2 first, then its extended
// headers in wire order, a gopacket.LayerTypePayload if its payload is not
// empty, and a LayerTypeICRC at the end.
var (
	LayerTypeRoCEv2       = register(0, "RoCEv2", gopacket.DecodeFunc(decode))
	LayerTypeXRCETH       = register(1, "XRCETH", nil)
	LayerTypeDETH         = register(2, "DETH", nil)
	LayerTypeFETH         = register(3, "FETH", nil)
	LayerTypeRETH         = register(4, "RETH", nil)
	LayerTypeAtomicETH    = register(5, "AtomicETH", nil)
	LayerTypeAETH         = register(6, "AETH", nil)
	LayerTypeAtomicAckETH = register(7, "AtomicAckETH", nil)
	LayerTypeImmDt        = register(8, "ImmDt", nil)
	LayerTypeIETH         = register(9, "IETH", nil)
	LayerTypeCNP          = register(10, "CNP", nil)
	LayerTypeICRC         = register(11, "ICRC", nil)
)

// firstLayerType is far from the numbers that other packages are likely to pick
// for theirs.
const firstLayerType = rocev2.UDPPort * 100

// errNested is for the layers that only a decoded LayerTypeRoCEv2 produces:
// alone, they do not tell what follows them.
var errNested = errors.New("rocev2/layers: an extended header does not decode by itself")

func register(n int, name string, d gopacket.Decoder) gopacket.LayerType {
	if d == nil {
		d = gopacket.DecodeFunc(func([]byte, gopacket.PacketBuilder) error { return errNested })
	}
	return gopacket.RegisterLayerType(firstLayerType+n, gopacket.LayerTypeMetadata{Name: name, Decoder: d})
}

func init() {
	layers.RegisterUDPPortLayerType(rocev2.UDPPort, LayerTypeRoCEv2)
}

// RoCEv2 is the base transport header. Its LayerPayload is all that follows it,
// to the end of the ICRC.
type RoCEv2 struct {
	layers.BaseLayer
	rocev2.BTH
}

// XRCETH is the XRC extended transport header.
type XRCETH struct {
	layers.BaseLayer
	rocev2.XRCETH
}

// DETH is the datagram extended transport header.
type DETH struct {
	layers.BaseLayer
	rocev2.DETH
}

// FETH is the flush extended transport header.
type FETH struct {
	layers.BaseLayer
	rocev2.FETH
}

// RETH is the RDMA extended transport header.
type RETH struct {
	layers.BaseLayer
	rocev2.RETH
}

// AtomicETH is the atomic extended transport header.
type AtomicETH struct {
	layers.BaseLayer
	rocev2.AtomicETH
}

// AETH is the ACK extended transport header.
type AETH struct {
	layers.BaseLayer
	rocev2.AETH
}

// AtomicAckETH is the atomic ACK extended transport header.
type AtomicAckETH struct {
	layers.BaseLayer
	rocev2.AtomicAckETH
}

// ImmDt is immediate data.
type ImmDt struct {
	layers.BaseLayer
	Imm uint32 // most significant byte first on the wire
}

// IETH is the invalidate extended transport header.
type IETH struct {
	layers.BaseLayer
	rocev2.IETH
}

// CNP is what a congestion notification has after its BTH: reserved bytes,
// which are the Contents.
type CNP struct {
	layers.BaseLayer
}

// ICRC is the end of a packet. Its Contents begin after the payload.
type ICRC struct {
	layers.BaseLayer
	Pad   []byte // what lies in front of the ICRC: 0 to 3 bytes, or what a packet without payload carries nevertheless
	Value uint32
}

// LayerType returns LayerTypeRoCEv2.
func (*RoCEv2) LayerType() gopacket.LayerType { return LayerTypeRoCEv2 }

// LayerType returns LayerTypeXRCETH.
func (*XRCETH) LayerType() gopacket.LayerType { return LayerTypeXRCETH }

// LayerType returns LayerTypeDETH.
func (*DETH) LayerType() gopacket.LayerType { return LayerTypeDETH }

// LayerType returns LayerTypeFETH.
func (*FETH) LayerType() gopacket.LayerType { return LayerTypeFETH }

// LayerType returns LayerTypeRETH.
func (*RETH) LayerType() gopacket.LayerType { return LayerTypeRETH }

// LayerType returns LayerTypeAtomicETH.
func (*AtomicETH) LayerType() gopacket.LayerType { return LayerTypeAtomicETH }

// LayerType returns LayerTypeAETH.
func (*AETH) LayerType() gopacket.LayerType { return LayerTypeAETH }

// LayerType returns LayerTypeAtomicAckETH.
func (*AtomicAckETH) LayerType() gopacket.LayerType { return LayerTypeAtomicAckETH }

// LayerType returns LayerTypeImmDt.
func (*ImmDt) LayerType() gopacket.LayerType { return LayerTypeImmDt }

// LayerType returns LayerTypeIETH.
func (*IETH) LayerType() gopacket.LayerType { return LayerTypeIETH }

// LayerType returns LayerTypeCNP.
func (*CNP) LayerType() gopacket.LayerType { return LayerTypeCNP }

// LayerType returns LayerTypeICRC.
func (*ICRC) LayerType() gopacket.LayerType { return LayerTypeICRC }

// decode adds all layers of a packet. What rocev2 does not parse becomes a
// gopacket.DecodeFailure with its error.
func decode(data []byte, b gopacket.PacketBuilder) error {
	var p rocev2.Packet
	if err := p.Parse(data); err != nil {
		if errors.Is(err, rocev2.ErrShort) {
			b.SetTruncated()
		}
		return err
	}
	rest := data
	next := func(n int) layers.BaseLayer {
		base := layers.BaseLayer{Contents: rest[:n:n], Payload: rest[n:]}
		rest = rest[n:]
		return base
	}
	b.AddLayer(&RoCEv2{next(rocev2.BTHLen), p.BTH})
	info, _ := p.BTH.Opcode.Info()
	addExtended(b, &p, info.Headers, next)
	if n := len(p.Payload); n > 0 {
		payload := gopacket.Payload(next(n).Contents)
		b.AddLayer(&payload)
		b.SetApplicationLayer(&payload)
	}
	base := next(len(rest))
	pad := len(base.Contents) - rocev2.ICRCLen
	b.AddLayer(&ICRC{base, base.Contents[:pad:pad], binary.LittleEndian.Uint32(base.Contents[pad:])})
	return nil
}

// addExtended adds the extended headers of p; next takes the bytes of one off
// the packet.
func addExtended(b gopacket.PacketBuilder, p *rocev2.Packet, s rocev2.HeaderSet, next func(n int) layers.BaseLayer) {
	if s.Has(rocev2.HasXRCETH) {
		b.AddLayer(&XRCETH{next(rocev2.XRCETHLen), p.XRCETH})
	}
	if s.Has(rocev2.HasDETH) {
		b.AddLayer(&DETH{next(rocev2.DETHLen), p.DETH})
	}
	if s.Has(rocev2.HasFETH) {
		b.AddLayer(&FETH{next(rocev2.FETHLen), p.FETH})
	}
	if s.Has(rocev2.HasRETH) {
		b.AddLayer(&RETH{next(rocev2.RETHLen), p.RETH})
	}
	if s.Has(rocev2.HasAtomicETH) {
		b.AddLayer(&AtomicETH{next(rocev2.AtomicETHLen), p.AtomicETH})
	}
	if s.Has(rocev2.HasAETH) {
		b.AddLayer(&AETH{next(rocev2.AETHLen), p.AETH})
	}
	if s.Has(rocev2.HasAtomicAckETH) {
		b.AddLayer(&AtomicAckETH{next(rocev2.AtomicAckETHLen), p.AtomicAck})
	}
	if s.Has(rocev2.HasImmDt) {
		b.AddLayer(&ImmDt{next(rocev2.ImmDtLen), p.Imm})
	}
	if s.Has(rocev2.HasIETH) {
		b.AddLayer(&IETH{next(rocev2.IETHLen), p.IETH})
	}
	if s.Has(rocev2.HasCNP) {
		b.AddLayer(&CNP{next(rocev2.CNPLen)})
	}
}

// Errors of CheckICRC.
var (
	ErrNotRoCEv2 = errors.New("rocev2/layers: no RoCEv2 packet over IP")
	ErrICRC      = errors.New("rocev2/layers: wrong ICRC")
)

// CheckICRC checks the ICRC of a decoded packet, which takes the IP header that
// it came with. The error is nil, ErrNotRoCEv2 or ErrICRC.
func CheckICRC(p gopacket.Packet) error {
	ip := p.NetworkLayer()
	if ip == nil || p.Layer(LayerTypeICRC) == nil {
		return ErrNotRoCEv2
	}
	datagram := append(append([]byte(nil), ip.LayerContents()...), ip.LayerPayload()...)
	if !rocev2.VerifyDatagram(datagram) {
		return ErrICRC
	}
	return nil
}
