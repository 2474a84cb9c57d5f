package mad

import (
	"net/netip"

	"github.com/gosoftroce/rocev2/rocev2"
)

// REQPrivateLen is the size of the private data of a REQ in bytes. RDMA-CM
// takes the first 36 for its IP header.
const REQPrivateLen = 92

// REQ asks for a connection (IBTA 12.6.5).
//
//	0-3: local communication ID   5-7: vendor ID   8-15: service ID
//	16-23: CA GUID   28-31: Q_Key   32-34: QPN   35: responder resources
//	36-38: EECN   39: initiator depth   40-42: remote EECN
//	43: remote response timeout (7-3), transport (2-1), flow control (0)
//	44-46: PSN   47: local response timeout (7-3), retry count (2-0)
//	48-49: P_Key   50: path MTU (7-4), RDC exists (3), RNR retry count (2-0)
//	51: CM retries (7-4), SRQ (3), extended transport (2-0)
//	52-95: primary path   96-139: alternate path   140-231: private data
type REQ struct {
	TransactionID         uint64
	LocalID               CommID
	ECE                   ECE
	ServiceID             ServiceID
	LocalGUID             GUID
	LocalQKey             uint32
	LocalQPN              rocev2.QPN
	ResponderResources    uint8  // READs and atomics of the receiver that the sender holds at once
	LocalEECN             uint32 // 24 bits, of RD
	InitiatorDepth        uint8  // READs and atomics that the sender has under way at once
	RemoteEECN            uint32 // 24 bits, of RD
	RemoteResponseTimeout uint8  // of the receiver, see Timeout
	Transport             Transport
	FlowControl           bool       // end to end
	StartingPSN           rocev2.PSN // the first that the receiver sends
	LocalResponseTimeout  uint8      // of the sender, see Timeout
	RetryCount            uint8      // 0 to 7
	PKey                  uint16
	PathMTU               uint8 // as the verbs count: 1 is 256 bytes, 5 is 4096
	RDCExists             bool
	RNRRetryCount         uint8 // 0 to 7; 7 is for ever
	MaxRetries            uint8 // of the messages of the CM, 0 to 15
	SRQ                   bool
	ExtendedTransport     uint8 // 0 to 7
	Primary               Path
	Alternate             Path // its LIDs are 0 if there is none
	// SuggestedAlternate is bit 2 of byte 139: the sender takes an
	// alternate path that the receiver suggests.
	SuggestedAlternate bool
	Private            []byte // at most REQPrivateLen; after Parse it aliases the MAD, and is the whole field
}

// Path is a path in a REQ: 44 bytes.
//
//	0-1: local LID   2-3: remote LID   4-19: local GID   20-35: remote GID
//	36-38: flow label (20 bits)   39: packet rate (5-0)   40: traffic class
//	41: hop limit   42: SL (7-4), subnet local (3)   43: ACK timeout (7-3)
type Path struct {
	LocalLID, RemoteLID uint16
	LocalGID, RemoteGID netip.Addr // IPv4 is in its short form; the zero Addr encodes as zeros
	FlowLabel           uint32     // 20 bits
	PacketRate          uint8      // 6 bits
	TrafficClass        uint8
	HopLimit            uint8
	SL                  uint8 // 4 bits
	SubnetLocal         bool
	AckTimeout          uint8 // 5 bits, the local ACK timeout of a queue pair
}

// Attribute returns AttrREQ.
func (m *REQ) Attribute() Attribute { return AttrREQ }

// AppendTo appends the encoded MAD to b. It panics if the private data is too
// long.
func (m *REQ) AppendTo(b []byte) []byte {
	b, c := begin(b, AttrREQ, m.TransactionID, m.ECE.Options)
	be.PutUint32(c[0:], uint32(m.LocalID))
	put24(c[5:], m.ECE.VendorID)
	be.PutUint64(c[8:], uint64(m.ServiceID))
	be.PutUint64(c[16:], uint64(m.LocalGUID))
	be.PutUint32(c[28:], m.LocalQKey)
	put24(c[32:], uint32(m.LocalQPN))
	c[35] = m.ResponderResources
	put24(c[36:], m.LocalEECN)
	c[39] = m.InitiatorDepth
	put24(c[40:], m.RemoteEECN)
	c[43] = m.RemoteResponseTimeout<<3 | uint8(m.Transport&3)<<1 | bit(m.FlowControl, 1)
	put24(c[44:], uint32(m.StartingPSN))
	c[47] = m.LocalResponseTimeout<<3 | m.RetryCount&7
	be.PutUint16(c[48:], m.PKey)
	c[50] = m.PathMTU<<4 | bit(m.RDCExists, 8) | m.RNRRetryCount&7
	c[51] = m.MaxRetries<<4 | bit(m.SRQ, 8) | m.ExtendedTransport&7
	m.Primary.put(c[52:96])
	m.Alternate.put(c[96:140])
	c[139] |= bit(m.SuggestedAlternate, 4)
	putData(c[140:], m.Private)
	return b
}

// Parse decodes a MAD. The error is one of this package.
func (m *REQ) Parse(b []byte) error {
	h, c, err := open(b, AttrREQ)
	if err != nil {
		return err
	}
	*m = REQ{
		TransactionID:         h.TransactionID,
		LocalID:               CommID(be.Uint32(c)),
		ECE:                   ECE{VendorID: get24(c[5:]), Options: h.Modifier},
		ServiceID:             ServiceID(be.Uint64(c[8:])),
		LocalGUID:             GUID(be.Uint64(c[16:])),
		LocalQKey:             be.Uint32(c[28:]),
		LocalQPN:              rocev2.QPN(get24(c[32:])),
		ResponderResources:    c[35],
		LocalEECN:             get24(c[36:]),
		InitiatorDepth:        c[39],
		RemoteEECN:            get24(c[40:]),
		RemoteResponseTimeout: c[43] >> 3,
		Transport:             Transport(c[43] >> 1 & 3),
		FlowControl:           c[43]&1 != 0,
		StartingPSN:           rocev2.PSN(get24(c[44:])),
		LocalResponseTimeout:  c[47] >> 3,
		RetryCount:            c[47] & 7,
		PKey:                  be.Uint16(c[48:]),
		PathMTU:               c[50] >> 4,
		RDCExists:             c[50]&8 != 0,
		RNRRetryCount:         c[50] & 7,
		MaxRetries:            c[51] >> 4,
		SRQ:                   c[51]&8 != 0,
		ExtendedTransport:     c[51] & 7,
		SuggestedAlternate:    c[139]&4 != 0,
		Private:               c[140:],
	}
	m.Primary.parse(c[52:96])
	m.Alternate.parse(c[96:140])
	return nil
}

func (p *Path) put(c []byte) {
	be.PutUint16(c[0:], p.LocalLID)
	be.PutUint16(c[2:], p.RemoteLID)
	putGID(c[4:], p.LocalGID)
	putGID(c[20:], p.RemoteGID)
	be.PutUint32(c[36:], p.FlowLabel<<12|uint32(p.PacketRate&0x3f))
	c[40] = p.TrafficClass
	c[41] = p.HopLimit
	c[42] = p.SL<<4 | bit(p.SubnetLocal, 8)
	c[43] = p.AckTimeout << 3
}

func (p *Path) parse(c []byte) {
	w := be.Uint32(c[36:])
	*p = Path{
		LocalLID:     be.Uint16(c[0:]),
		RemoteLID:    be.Uint16(c[2:]),
		LocalGID:     getGID(c[4:]),
		RemoteGID:    getGID(c[20:]),
		FlowLabel:    w >> 12,
		PacketRate:   uint8(w & 0x3f),
		TrafficClass: c[40],
		HopLimit:     c[41],
		SL:           c[42] >> 4,
		SubnetLocal:  c[42]&8 != 0,
		AckTimeout:   c[43] >> 3,
	}
}

// putGID encodes an address as a GID: IPv4 is mapped into IPv6 (IBTA A17). The
// zero Addr gives zeros.
func putGID(c []byte, a netip.Addr) {
	g := a.As16()
	copy(c, g[:])
}

func getGID(c []byte) netip.Addr { return netip.AddrFrom16([16]byte(c)).Unmap() }
