package mad

import (
	"github.com/gosoftroce/rocev2/rocev2"
)

// The sizes of private data, and of the additional information, in bytes.
const (
	LAPPrivateLen = 168
	APRPrivateLen = 148
	APRInfoLen    = 72
)

// LAP asks for another alternate path (IBTA 12.8.1). RoCE has no migration of
// paths: a LAP is decoded for those who look at captures.
//
//	0-3: local communication ID   4-7: remote communication ID
//	12-14: QPN of the receiver   15: remote response timeout (7-3)
//	20-21: LID   22-23: remote LID   24-39: GID   40-55: remote GID
//	56-58: flow label (20 bits)   59: traffic class   60: hop limit
//	61: packet rate (5-0)   62: SL (7-4), subnet local (3)
//	63: ACK timeout (7-3)   64-231: private data
type LAP struct {
	TransactionID         uint64
	LocalID, RemoteID     CommID
	RemoteQPN             rocev2.QPN // the receiver's
	RemoteResponseTimeout uint8      // of the receiver, see Timeout
	Alternate             Path
	Private               []byte // at most LAPPrivateLen; after Parse it aliases the MAD, and is the whole field
}

// Attribute returns AttrLAP.
func (m *LAP) Attribute() Attribute { return AttrLAP }

// AppendTo appends the encoded MAD to b. It panics if the private data is too
// long.
func (m *LAP) AppendTo(b []byte) []byte {
	b, c := begin(b, AttrLAP, m.TransactionID, 0)
	putIDs(c, m.LocalID, m.RemoteID)
	put24(c[12:], uint32(m.RemoteQPN))
	c[15] = m.RemoteResponseTimeout << 3
	p := &m.Alternate
	be.PutUint16(c[20:], p.LocalLID)
	be.PutUint16(c[22:], p.RemoteLID)
	putGID(c[24:], p.LocalGID)
	putGID(c[40:], p.RemoteGID)
	be.PutUint32(c[56:], p.FlowLabel<<12|uint32(p.TrafficClass))
	c[60] = p.HopLimit
	c[61] = p.PacketRate & 0x3f
	c[62] = p.SL<<4 | bit(p.SubnetLocal, 8)
	c[63] = p.AckTimeout << 3
	putData(c[64:], m.Private)
	return b
}

// Parse decodes a MAD. The error is one of this package.
func (m *LAP) Parse(b []byte) error {
	h, c, err := open(b, AttrLAP)
	if err != nil {
		return err
	}
	*m = LAP{
		TransactionID:         h.TransactionID,
		RemoteQPN:             rocev2.QPN(get24(c[12:])),
		RemoteResponseTimeout: c[15] >> 3,
		Alternate: Path{
			LocalLID: be.Uint16(c[20:]), RemoteLID: be.Uint16(c[22:]),
			LocalGID: getGID(c[24:]), RemoteGID: getGID(c[40:]),
			FlowLabel: be.Uint32(c[56:]) >> 12, TrafficClass: c[59], HopLimit: c[60],
			PacketRate: c[61] & 0x3f, SL: c[62] >> 4, SubnetLocal: c[62]&8 != 0, AckTimeout: c[63] >> 3,
		},
		Private: c[64:],
	}
	m.LocalID, m.RemoteID = getIDs(c)
	return nil
}

// APR answers a LAP (IBTA 12.8.2).
//
//	0-3: local communication ID   4-7: remote communication ID
//	8: length of the information   9: status   12-83: additional information
//	84-231: private data
type APR struct {
	TransactionID     uint64
	LocalID, RemoteID CommID
	Status            uint8
	Info              []byte // additional information, at most APRInfoLen; after Parse it aliases the MAD
	Private           []byte // at most APRPrivateLen; after Parse it aliases the MAD, and is the whole field
}

// Attribute returns AttrAPR.
func (m *APR) Attribute() Attribute { return AttrAPR }

// AppendTo appends the encoded MAD to b. It panics if information or private
// data are too long.
func (m *APR) AppendTo(b []byte) []byte {
	b, c := begin(b, AttrAPR, m.TransactionID, 0)
	putIDs(c, m.LocalID, m.RemoteID)
	c[8] = uint8(len(m.Info))
	c[9] = m.Status
	putData(c[12:84], m.Info)
	putData(c[84:], m.Private)
	return b
}

// Parse decodes a MAD. Of information that claims to be longer than its field,
// it returns the field. The error is one of this package.
func (m *APR) Parse(b []byte) error {
	h, c, err := open(b, AttrAPR)
	if err != nil {
		return err
	}
	*m = APR{TransactionID: h.TransactionID, Status: c[9], Info: information(c[12:84], c[8]), Private: c[84:]}
	m.LocalID, m.RemoteID = getIDs(c)
	return nil
}
